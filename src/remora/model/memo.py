"""Options by value: the same options written again need not be parsed again.

A key is made of what the options *say* at this moment, never of which objects say it, so a list or an operator that is changed
afterwards is another key. Whatever is not plainly a value has no key, and is parsed every time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from remora.model.operators import DoesNotExist, Exists, In, LabelMatchOperator, NotIn
from remora.model.resources import Resources
from remora.model.selectors import LabelMatchExpression, LabelSelector
from remora.model.spreading import SpreadSchedulingStrategy
from remora.model.strategies import (
    ActorAffinitySchedulingStrategy,
    NodeLabelAffinityStrategy,
    NodePin,
    ObjectAffinitySchedulingStrategy,
    TaskAffinitySchedulingStrategy,
)
from remora.model.taints import Tolerations

_MOST = 4_096

Parsed = TypeVar("Parsed")


class Memo(Generic[Parsed]):
    """A parser that remembers what it made of equal options. Errors are not remembered."""

    def __init__(self, parse: Callable[..., Parsed]) -> None:
        self._parse = parse
        self._known: dict[Hashable, Parsed] = {}

    def __call__(self, *options: Any) -> Parsed:
        try:
            key = tuple([value if value is None or type(value) is str else key_of(value) for value in options])
            known = self._known.get(key)
        except TypeError:  # something among them is not a value
            return self._parse(*options)
        if known is None:
            known = self._parse(*options)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = known
        return known


def key_of(value: Any) -> Hashable:
    """Return what a value says, equal only for values that say the same in the same types; raise TypeError if it is none.

    The type belongs to it: ``1`` and ``True`` are equal, and only one of them is an amount.
    """
    kind = type(value)
    if value is None or kind is str:
        return value  # type: ignore[no-any-return]
    if kind is dict:
        return (dict, *[(key_of(name), key_of(part)) for name, part in value.items()])
    if kind is list or kind is tuple:
        return (kind, *[key_of(part) for part in value])
    says = _SAYS.get(kind)
    if says is None:
        raise TypeError(kind)
    return kind, says(value)


def _itself(value: Any) -> Any:
    return value


def _affinity(value: Any) -> Hashable:
    return value.match_expressions, value.is_or_semantics, value.symmetric, value.on_failover


_SAYS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((bool, int, float), _itself),
    **dict.fromkeys((In, NotIn), lambda operator: operator.values),
    **dict.fromkeys((Exists, DoesNotExist), lambda _: ()),
    SpreadSchedulingStrategy: SpreadSchedulingStrategy.canonical,
    **dict.fromkeys((LabelMatchOperator, LabelMatchExpression, LabelSelector, Tolerations, Resources, NodePin), _itself),
    **dict.fromkeys(
        (
            ActorAffinitySchedulingStrategy,
            TaskAffinitySchedulingStrategy,
            ObjectAffinitySchedulingStrategy,
            NodeLabelAffinityStrategy,
        ),
        _affinity,
    ),
}
