"""Affinity as scenario files spell it, as the strategies that users write in Python.

scheduling_strategy: SPREAD                     # or {node_id: n1, soft: true}
actor_affinity: [{key: type, operator: not_in, values: [cat], soft: false}]
task_affinity: "stage in [load, clean]"
node_affinity: {expressions: "zone = a or zone = b"}      # also is_or_semantics, and symmetric but for nodes
affinity_to: [cat-0]                            # or {names: [cat-0], soft: true}; anti_affinity_to likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remora.errors import InvalidScenarioError
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import (
    NodeAffinitySchedulingStrategy,
    actor_affinity,
    node_affinity,
    parse_strategies,
    task_affinity,
)
from remora.sim.fields import Fields, at_path, show

STRATEGY_KEYS = (
    "scheduling_strategy",
    "actor_affinity",
    "task_affinity",
    "node_affinity",
    "affinity_to",
    "anti_affinity_to",
)
_EXPRESSION = "{key: type, operator: not_in, values: [cat], soft: false}"


@dataclass(frozen=True)
class Mates:
    """Workloads by name that an arrival wants to be with, or away from."""

    names: tuple[str, ...]
    soft: bool
    away: bool
    path: str


@dataclass(frozen=True)
class Strategies:
    """The strategies of one arrival; ``mates`` become handles when it arrives."""

    scheduling_strategy: Any = None
    affinity: tuple[Any, ...] = ()
    mates: tuple[Mates, ...] = ()


def read_strategies(fields: Fields) -> Strategies:
    policy = _read_policy(fields)
    over_labels = [key for key in ("actor_affinity", "task_affinity", "node_affinity") if fields.has(key)]
    found = tuple(_read_affinity(key, fields.raw(key), fields.at(key)) for key in over_labels)
    mates = tuple(_read_mates(fields, key) for key in ("affinity_to", "anti_affinity_to") if fields.has(key))
    return Strategies(policy, found, mates)


def _read_policy(fields: Fields) -> Any:
    key = "scheduling_strategy"
    if not fields.has(key):
        return None
    path, value = fields.at(key), fields.raw(key)
    with at_path(path):
        if isinstance(value, str):
            parse_strategies(value)
            return value
        pin = Fields(value, path, ("node_id", "soft"), "scheduling_strategy: SPREAD, or {node_id: n1, soft: true}")
        return NodeAffinitySchedulingStrategy(pin.text("node_id", example="n1"), soft=pin.flag("soft"))


def _read_affinity(key: str, value: Any, path: str) -> Any:
    any_of = symmetric = False
    if isinstance(value, Mapping) and "expressions" in value:
        known = (
            ("expressions", "is_or_semantics") if key == "node_affinity" else ("expressions", "is_or_semantics", "symmetric")
        )
        fields = Fields(value, path, known, f"{key}: {{expressions: [{_EXPRESSION}]}}")
        any_of, symmetric = fields.flag("is_or_semantics"), "symmetric" in known and fields.flag("symmetric")
        value, path = value["expressions"], fields.at("expressions")
    with at_path(path):
        expressions = value if isinstance(value, str) else _read_expressions(value, path)
        if key == "node_affinity":
            return node_affinity(expressions, any_of)
        make = actor_affinity if key == "actor_affinity" else task_affinity
        return make(expressions, any_of, symmetric=symmetric)


def _read_expressions(value: Any, path: str) -> list[LabelMatchExpression]:
    if isinstance(value, Mapping):
        return [_read_expression(value, path)]
    if not isinstance(value, list) or not value:
        raise InvalidScenarioError(f"{path}: {show(value)} is not a list of expressions; for example [{_EXPRESSION}]")
    return [_read_expression(entry, f"{path}[{index}]") for index, entry in enumerate(value)]


def _read_expression(value: Any, path: str) -> LabelMatchExpression:
    fields = Fields(value, path, ("key", "operator", "values", "soft"), _EXPRESSION)
    with at_path(path):
        return LabelMatchExpression(
            fields.text("key", example="type"),
            fields.text("operator", example="not_in"),
            fields.raw("values"),
            fields.flag("soft"),
        )


def _read_mates(fields: Fields, key: str) -> Mates:
    value, soft, path = fields.raw(key), False, fields.at(key)
    if isinstance(value, Mapping):
        inner = Fields(value, path, ("names", "soft"), f"{key}: {{names: [cat-0], soft: true}}")
        names, soft = inner.texts("names", "[cat-0]"), inner.flag("soft")
    else:
        names = fields.texts(key, "[cat-0]")
    if not names:
        raise InvalidScenarioError(f"{path}: {show(value)} names nobody; for example {key}: [cat-0]")
    return Mates(names, soft, key == "anti_affinity_to", path)
