"""Spread: how evenly work lies over the domains of a label, zones or racks.

A domain is a value of a node label; a node without the label is in none. Of everything with the same labels no domain has more
than ``max_skew`` above the least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from remora.errors import InvalidLabelError, InvalidStrategyError
from remora.model.labels import Labels, validate_label_key
from remora.model.operators import LabelMatchOperator
from remora.model.selectors import LabelMatchExpression, LabelSelector

_EXAMPLE = "for example spread(over='zone', max_skew=1)"


@dataclass(frozen=True, order=True)
class Spread:
    """One rule about evenness in canonical form. ``counted``: the labels of what counts; None stands for the newcomer's own.
    ``own`` says whether the newcomer counts itself, None until its labels are known. ``min_domains`` is 0 where every domain
    counts."""

    over: str
    max_skew: int = 1
    min_domains: int = 0
    soft: bool = False
    counted: tuple[LabelMatchExpression, ...] | None = None
    own: bool | None = None

    @property
    def hard(self) -> bool:
        return not self.soft

    def of(self, labels: Labels) -> Spread:
        """The same for a newcomer with these labels: its own count where no others were named."""
        if self.own is not None:
            return self
        if self.counted is None:
            return replace(self, counted=as_terms(labels), own=True)
        return replace(self, own=all(term.matches(dict(labels)) for term in self.counted))

    def show_counted(self) -> str:
        """Return what counts, as people say it: ``app=web``."""
        return " and ".join(term.show() for term in self.counted or ()) or "everything"


class SpreadSchedulingStrategy:
    """Lie evenly over the domains of a node label. Make one with ``spread(...)``."""

    def __init__(
        self, over: str, max_skew: int = 1, min_domains: int | None = None, soft: bool = False, labels: Any = None
    ) -> None:
        try:
            self.over = validate_label_key(over)
        except InvalidLabelError as error:
            raise InvalidStrategyError(f"over={over!r} is not a label of nodes: {error}") from None
        self.max_skew = _positive("max_skew", max_skew)
        self.min_domains = None if min_domains is None else _positive("min_domains", min_domains)
        if not isinstance(soft, bool):
            raise InvalidStrategyError(f"soft={soft!r} is not True or False; {_EXAMPLE}")
        self.soft = soft
        self.labels = None if labels is None else LabelSelector(labels)

    def canonical(self) -> Spread:
        counted = None if self.labels is None else self.labels.terms
        return Spread(self.over, self.max_skew, self.min_domains or 0, self.soft, counted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpreadSchedulingStrategy) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __repr__(self) -> str:
        floor = f", min_domains={self.min_domains}" if self.min_domains is not None else ""
        labels = f", labels={str(self.labels)!r}" if self.labels is not None else ""
        return f"spread(over={self.over!r}, max_skew={self.max_skew}{floor}, soft={self.soft}{labels})"


def spread(
    over: str, max_skew: int = 1, min_domains: int | None = None, soft: bool = False, labels: Any = None
) -> SpreadSchedulingStrategy:
    """Of everything with these labels (its own, when not given) no domain has more than ``max_skew`` above the least.

    ``min_domains``: on at least so many domains first, then packed: the least is that of the fullest so many.
    """
    return SpreadSchedulingStrategy(over, max_skew, min_domains, soft, labels)


def parse_spreads(spreads: Any) -> tuple[SpreadSchedulingStrategy, ...]:
    """One spread, the label to spread over, or a list of these."""
    if spreads is None:
        return ()
    listed = spreads if isinstance(spreads, (list, tuple)) else (spreads,)
    return tuple(_parse_spread(each) for each in listed)


def _parse_spread(each: Any) -> SpreadSchedulingStrategy:
    if isinstance(each, str):
        return SpreadSchedulingStrategy(each)
    if isinstance(each, SpreadSchedulingStrategy):
        return each
    raise InvalidStrategyError(f"spread={each!r} is neither a spread nor a label of nodes; {_EXAMPLE}, or spread='zone'")


def as_terms(labels: Labels) -> tuple[LabelMatchExpression, ...]:
    """Return the expressions that whatever has all these labels matches."""
    return tuple(sorted(LabelMatchExpression(key, LabelMatchOperator.IN, [value]) for key, value in labels))


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidStrategyError(f"{name}={value!r} is not a whole number from 1 on; {_EXAMPLE}")
    return value
