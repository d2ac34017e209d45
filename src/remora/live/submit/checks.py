"""What ``.options()`` and ``@ray.remote`` check of our options: by parsing them, which raises with the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remora.model.labels import parse_workload_labels
from remora.model.requests import parse_fallbacks
from remora.model.selectors import LabelSelector
from remora.model.strategies import parse_strategies
from remora.model.taints import Tolerations
from remora.wire.rewrite import is_ours


def check(name: str, value: Any) -> None:
    _PARSERS[name](value)


def _strategy(value: Any) -> None:
    if is_ours(value):
        parse_strategies(value)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "label_selector": LabelSelector,
    "node_labels": LabelSelector,
    "fallback_strategy": parse_fallbacks,
    "tolerations": Tolerations,
    "labels": parse_workload_labels,
    "affinity": lambda value: parse_strategies(None, value),
    "scheduling_strategy": _strategy,
}
