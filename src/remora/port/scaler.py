"""The contract between Remora and whoever starts and ends machines: three methods, of a cluster that has an autoscaler.

It decides nothing: which types, how many and for whom is the kernel's answer. It starts what is asked for, and ends what is
idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from remora.model.node_types import NodeTypes


@dataclass(frozen=True)
class Request:
    """So many machines of a type beside ``known``: nodes that were there when it was asked."""

    count: int
    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Failure:
    """Machines of a type could not be had, why, and when that was, in seconds since the epoch."""

    node_type: str
    reason: str
    at: float


@dataclass(frozen=True)
class Survey:
    """How things stand: ``asked`` in our name, by type, and machines that are ``coming``, whoever asked for them, of which
    ``granted`` are those that whoever has the machines has promised; which types ``failed`` lately, and which nodes are
    ``busy`` in the eyes of whoever ends idle ones. ``others`` is how many requests stand there that are not ours; ``refused``
    is whether all of them, ours too, are dropped for now, because they cannot be had together."""

    asked: Mapping[str, Request] = field(default_factory=dict)
    coming: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[Failure, ...] = ()
    busy: frozenset[str] = frozenset()
    others: int = 0
    granted: Mapping[str, int] = field(default_factory=dict)
    refused: bool = False


class Scaler(Protocol):
    def node_types(self) -> NodeTypes:
        """Return the machines that can be started, as they are declared now; raises when they cannot be learned."""
        ...

    def survey(self) -> Survey: ...

    def ask(self, wanted: Mapping[str, int], nodes: Mapping[str, str], head: str) -> None:
        """Ask for so many machines of each type beside ``nodes``, those that are there (by id, of which type each is; ``head``
        is one of them), in place of all that was asked in our name before; with nothing wanted nothing is. What others asked
        for stays."""
        ...
