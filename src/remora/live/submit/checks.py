"""What ``.options()`` and ``@ray.remote`` check of our options: by parsing them, which raises with the value and the rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from remora.model.labels import parse_workload_labels
from remora.model.requests import parse_fallbacks
from remora.model.selectors import LabelMatchExpression, LabelSelector
from remora.model.strategies import parse_strategies
from remora.model.taints import Tolerations
from remora.wire.rewrite import is_ours


def check(name: str, value: Any) -> None:
    """Raise what Ray raises where it is of no type that has a meaning, and of what has none by its value an InvalidInputError
    that names the rule."""
    types = _TYPES.get(name)
    is_strategy = name == "scheduling_strategy" and is_ours(value)
    if types is not None and not is_strategy and (not isinstance(value, types) or value == ""):
        known = ", ".join(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.") for kind in types)
        raise TypeError(f"The type of keyword '{name}' must be one of {known} or None, but received type {type(value)}")
    _PARSERS[name](value)


def _strategy(value: Any) -> None:
    if is_ours(value):
        parse_strategies(value)


_TYPES: dict[str, tuple[type, ...]] = {
    "label_selector": (Mapping, LabelSelector, LabelMatchExpression, list, tuple, str),
    "node_labels": (Mapping, LabelSelector, LabelMatchExpression, list, tuple, str),
    "fallback_strategy": (list, tuple),
    "scheduling_strategy": (
        str,
        PlacementGroupSchedulingStrategy,
        NodeAffinitySchedulingStrategy,
        NodeLabelSchedulingStrategy,
    ),
}
"""Of the options that Ray knows. Those that are only ours say themselves what is wrong."""

_PARSERS: dict[str, Callable[[Any], Any]] = {
    "label_selector": LabelSelector,
    "node_labels": LabelSelector,
    "fallback_strategy": parse_fallbacks,
    "tolerations": Tolerations,
    "labels": parse_workload_labels,
    "affinity": lambda value: parse_strategies(None, value),
    "scheduling_strategy": _strategy,
}
