"""A plan: how many machines of each type to start and for whom; and for everything that waits, what it gets or why nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WORK, GROUP, CLUSTER, TYPE = "work", "placement group", "virtual cluster", "node type"


class Party(NamedTuple):
    """Somebody for whom machines are started. ``key`` is what whoever asked for the plan knows it by."""

    kind: str
    key: Hashable
    name: str


@dataclass(frozen=True)
class Start:
    """So many machines of a type, each for these: with how many of them it takes."""

    node_type: str
    count: int
    parties: tuple[tuple[Party, int], ...]

    def to_dict(self) -> dict[str, Any]:
        parties = [{"kind": party.kind, "name": party.name, "count": count} for party, count in self.parties]
        return {"type": self.node_type, "count": self.count, "for": parties}


@dataclass(frozen=True)
class Answer:
    """What a plan does for one party of which ``count`` wait: ``served`` of them have room by it, on machines to be started
    (``starts``, by type), on their way (``awaits``) or there. ``reason`` is why the others have none; ``note`` is what else
    there is to know."""

    party: Party
    count: int
    served: int
    starts: Mapping[str, int] = field(default_factory=dict)
    awaits: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    note: str = ""
    suggestions: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return the whole answer in one line; empty when it needs no machine."""
        parts = []
        if self.starts:
            parts.append(f"{show_machines(self.starts)} to be started")
        if self.awaits:
            parts.append(f"{show_machines(self.awaits)} on the way")
        said = [" and ".join(parts)] if parts else []
        if self.reason:
            left = self.count - self.served
            said.append(f"{left:,} of {self.count:,} get none: {self.reason}" if self.served else self.reason)
        return "; ".join([*said, *([self.note] if self.note else [])])

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.party.kind,
            "name": self.party.name,
            "count": self.count,
            "served": self.served,
            "starts": dict(self.starts),
            "awaits": dict(self.awaits),
            "reason": self.reason,
            "note": self.note,
            "suggestions": list(self.suggestions),
        }


@dataclass(frozen=True)
class Plan:
    """``awaited`` are the machines on their way that something needs, by type; ``held`` the nodes that are there, look idle and
    are kept for a whole that waits for more, with its name."""

    starts: tuple[Start, ...] = ()
    answers: tuple[Answer, ...] = ()
    awaited: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)

    @property
    def add(self) -> dict[str, int]:
        """Return how many machines of each type to start beside those that are there and on their way."""
        counts: dict[str, int] = {}
        for start in self.starts:
            counts[start.node_type] = counts.get(start.node_type, 0) + start.count
        return dict(sorted(counts.items()))

    @property
    def wanted(self) -> dict[str, int]:
        """Return how many machines of each type are needed beside those that are there: to start, and on their way."""
        counts = self.add
        for name, count in self.awaited.items():
            counts[name] = counts.get(name, 0) + count
        return dict(sorted(counts.items()))

    def answer(self, key: Hashable) -> Answer | None:
        """Return the answer for a party."""
        return next((answer for answer in self.answers if answer.party.key == key), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "add": self.add,
            "awaited": dict(self.awaited),
            "starts": [start.to_dict() for start in self.starts],
            "answers": [answer.to_dict() for answer in self.answers],
            "held": dict(self.held),
        }


def show_machines(counts: Mapping[str, int]) -> str:
    """Return ``1 node of type gpu and 2 nodes of type web``."""
    parts = [f"{count:,} {'node' if count == 1 else 'nodes'} of type {name}" for name, count in sorted(counts.items())]
    return " and ".join(parts)
