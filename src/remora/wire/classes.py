"""A class as it travels and is remembered: the choices in order, and with fallbacks the size asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from remora.model.requests import NodeClass, Request, class_id_of
from remora.model.resources import EMPTY, Resources
from remora.model.selectors import LabelMatchExpression, LabelSelector
from remora.model.taints import Tolerations
from remora.wire.keys import CLUSTERS
from remora.wire.timing import IDLE_SECONDS as IDLE_SECONDS
from remora.wire.tokens import OF_CLUSTER, TASKS


def cluster_key(cluster_id: str) -> str:
    """Where a virtual cluster is remembered; its spec is there for whoever works in it."""
    return CLUSTERS.key(cluster_id)


@dataclass(frozen=True)
class ClassSpec:
    """``cluster`` is the virtual cluster that the class belongs to; its id stands in the name, so that a token tells it."""

    choices: tuple[NodeClass, ...]
    demand: Resources = EMPTY
    cluster: str | None = None
    takers: str = TASKS

    @classmethod
    def of(cls, request: Request) -> ClassSpec:
        return cls(request.choices, request.demand if len(request.choices) > 1 else EMPTY)

    @cached_property
    def class_id(self) -> str:
        return f"{self.part_id}-{self.takers}" if self.takers else self.part_id

    @cached_property
    def part_id(self) -> str:
        """The same for whoever takes it: of the part of a virtual cluster that it selects there is one."""
        name = class_id_of(self.choices, self.demand)
        return name if self.cluster is None else f"{self.cluster}{OF_CLUSTER}{name}"

    def tolerating(self, keys: Iterable[str]) -> ClassSpec:
        """The same, and the taints ``keys`` with any value too."""
        choices = tuple(replace(choice, tolerations=_also(choice.tolerations, keys)) for choice in self.choices)
        return replace(self, choices=choices)

    def to_body(self) -> dict[str, Any]:
        """Return the class in plain values."""
        choices = [choice.canonical() for choice in self.choices]
        return {"choices": choices, "demand": dict(self.demand), "cluster": self.cluster, "takers": self.takers}

    @classmethod
    def of_body(cls, body: Mapping[str, Any]) -> ClassSpec:
        choices = tuple(choice_from(*parts) for parts in body["choices"])
        return cls(choices, Resources(body["demand"]), body["cluster"], body.get("takers", TASKS))

    def encode(self) -> bytes:
        return json.dumps(self.to_body(), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> ClassSpec:
        return cls.of_body(json.loads(data))

    def describe(self) -> str:
        """As people read it: ``zone=a, tolerates gpu_node``."""
        parts = [str(choice.selector) for choice in self.choices]
        tolerated = ", ".join(term.key for term in self.choices[0].tolerations.terms)
        return ", else ".join(parts) + (f", tolerates {tolerated}" if tolerated else "")


def _also(tolerations: Tolerations, keys: Iterable[str]) -> Tolerations:
    for key in keys:
        tolerations = tolerations.also(key)
    return tolerations


def choice_from(selector: Any, tolerations: Any, any_of: Any, node_id: str | None) -> NodeClass:
    return NodeClass(
        LabelSelector(_terms(selector)),
        Tolerations.of(_terms(tolerations)),
        tuple(tuple(_terms(terms)) for terms in any_of),
        node_id,
    )


def _terms(parts: Any) -> list[LabelMatchExpression]:
    return [LabelMatchExpression(*part) for part in parts]
