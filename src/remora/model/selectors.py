"""Selectors: expressions over labels that must all hold.

``LabelMatchExpression`` is the one internal form of a question; every spelling ends here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from remora.errors import InvalidLabelError, InvalidSelectorError
from remora.model.labels import validate_label_key
from remora.model.operators import LabelMatchOperator, check_values, parse_condition, parse_operator, show_condition
from remora.model.query import parse_query


@dataclass(frozen=True, init=False, order=True)
class LabelMatchExpression:
    """One question about the label under ``key``; a soft one is a wish, a hard one a rule.

    ``topology`` is a label of nodes, or empty: what is placed is asked about in the same domain (all nodes with the same
    value of that label) instead of on the same node.

    Examples:
        ``LabelMatchExpression("type", LabelMatchOperator.NOT_IN, ["cat"], False)``
    """

    key: str
    _operator: str
    values: tuple[str, ...]
    soft: bool
    topology: str

    def __init__(
        self,
        key: str,
        operator: LabelMatchOperator | str | None = None,
        values: Iterable[str] | None = None,
        soft: bool | None = None,
        topology: str | None = None,
        *,
        match_operator: LabelMatchOperator | str | None = None,
        is_soft: bool | None = None,
    ) -> None:
        op = parse_operator(_one_of(key, "operator", operator, match_operator))
        softness = _one_of(key, "softness", soft, is_soft)
        if softness is not None and not isinstance(softness, bool):
            raise InvalidSelectorError(
                f"soft={softness!r} under {key!r} is a {type(softness).__name__}: it is True or False; for example "
                "label_in('type', ['cat'], False)"
            )
        set_ = object.__setattr__
        set_(self, "key", validate_label_key(key))
        set_(self, "_operator", op.name)
        set_(self, "values", check_values(key, op, values))
        set_(self, "soft", bool(softness))
        set_(self, "topology", _parse_topology(topology))
        # Asked on every decision, so worked out once.
        set_(self, "positive", op in (LabelMatchOperator.IN, LabelMatchOperator.EXISTS))
        set_(self, "takes_values", op.takes_values)

    if TYPE_CHECKING:
        positive: ClassVar[bool]  # True when a match needs the label to be there
        takes_values: ClassVar[bool]

    @property
    def operator(self) -> LabelMatchOperator:
        return LabelMatchOperator[self._operator]

    @property
    def hard(self) -> bool:
        return not self.soft

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether one set of labels satisfies this; softness plays no part."""
        if self._operator == "IN":
            return labels.get(self.key) in self.values
        if self._operator == "NOT_IN":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self._operator == "EXISTS")

    def hardened(self) -> LabelMatchExpression:
        return LabelMatchExpression(self.key, self.operator, self.values, False, self.topology)

    def show(self) -> str:
        """As people say it: ``type in (cat, dog)``, ``zone=a``, ``no gpu``, ``type=cat within zone``."""
        return f"{self._show()} within {self.topology}" if self.topology else self._show()

    def _show(self) -> str:
        listed = ", ".join(self.values)
        if self._operator == "IN":
            return f"{self.key}={listed}" if len(self.values) == 1 else f"{self.key} in ({listed})"
        if self._operator == "NOT_IN":
            return f"{self.key}!={listed}" if len(self.values) == 1 else f"{self.key} not in ({listed})"
        return f"any {self.key}" if self._operator == "EXISTS" else f"no {self.key}"

    def __repr__(self) -> str:
        within = f", topology={self.topology!r}" if self.topology else ""
        return f"LabelMatchExpression({self.key!r}, {self._operator}, {list(self.values)!r}, soft={self.soft}{within})"


def _parse_topology(topology: str | None) -> str:
    """Return the label that makes the domains; empty where each node is one by itself."""
    if topology is None or topology == "":
        return ""
    try:
        return validate_label_key(topology)
    except InvalidLabelError as error:
        raise InvalidSelectorError(f"topology={topology!r} is not a label of nodes: {error}") from None


def _one_of(key: str, what: str, first: Any, second: Any) -> Any:
    """Two spellings of one argument: either, or both if they agree."""
    if first is not None and second is not None and first != second:
        raise InvalidSelectorError(f"the {what} under {key!r} is given twice, as {first!r} and {second!r}: give it once")
    return second if first is None else first


def label_in(
    key: str, values: Iterable[str], is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Something with ``key`` among ``values`` is there: on the node, or in the same domain of the label ``topology``."""
    return LabelMatchExpression(key, LabelMatchOperator.IN, values, soft, topology, is_soft=is_soft)


def label_not_in(
    key: str, values: Iterable[str], is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Nothing with ``key`` among ``values`` is there: on the node, or in the same domain of the label ``topology``."""
    return LabelMatchExpression(key, LabelMatchOperator.NOT_IN, values, soft, topology, is_soft=is_soft)


def label_exists(
    key: str, is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Something with ``key`` is there: on the node, or in the same domain of the label ``topology``."""
    return LabelMatchExpression(key, LabelMatchOperator.EXISTS, None, soft, topology, is_soft=is_soft)


def label_does_not_exist(
    key: str, is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Nothing with ``key`` is there: on the node, or in the same domain of the label ``topology``."""
    return LabelMatchExpression(key, LabelMatchOperator.DOES_NOT_EXIST, None, soft, topology, is_soft=is_soft)


label_exist = label_exists  # the spelling in Ray's node affinity proposal, option 1


@dataclass(frozen=True, init=False)
class LabelSelector:
    """Expressions that must all hold; the empty selector matches everything.

    Accepts every spelling: ``{"zone": "in(a, b)"}``, ``{"zone": In("a")}``, expressions, tuples, a query string.

    Examples:
        >>> LabelSelector({"zone": "in(a, b)", "tier": "!spot"}).matches({"zone": "a"})
        True
    """

    terms: tuple[LabelMatchExpression, ...]

    def __init__(self, selector: Any = None) -> None:
        terms = selector.terms if isinstance(selector, LabelSelector) else _parse_hard(selector)
        object.__setattr__(self, "terms", tuple(sorted(set(terms))))

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.terms)

    def also(self, terms: Iterable[LabelMatchExpression]) -> LabelSelector:
        """This selector and further hard terms."""
        return LabelSelector((*self.terms, *terms))

    def without(self, term: LabelMatchExpression) -> LabelSelector:
        return LabelSelector(tuple(other for other in self.terms if other != term))

    def given(self, labels: Mapping[str, str]) -> LabelSelector | None:
        """What is left to ask when these labels are certain; None when they already say no."""
        known = [term for term in self.terms if term.key in labels]
        if not all(term.matches(labels) for term in known):
            return None
        return LabelSelector(tuple(term for term in self.terms if term.key not in labels)) if known else self

    def to_dict(self) -> dict[str, str]:
        """The string form; only for selectors with one term a key, which is all that strings can say."""
        return {term.key: show_condition(term.operator, term.values) for term in self.terms}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return " and ".join(term.show() for term in self.terms) or "everything"

    def __repr__(self) -> str:
        return f"LabelSelector({self})"


def parse_expressions(spec: Any) -> tuple[tuple[LabelMatchExpression, ...], bool]:
    """Expressions in any spelling, and whether they are joined by OR (only a query string can say so)."""
    if spec is None:
        return (), False
    if isinstance(spec, LabelMatchExpression):
        return (spec,), False
    if isinstance(spec, str):
        clauses, any_of = parse_query(spec)
        return tuple(LabelMatchExpression(*clause[:3], topology=clause[3]) for clause in clauses), any_of
    if isinstance(spec, Mapping):
        return tuple(LabelMatchExpression(key, *parse_condition(key, value)) for key, value in spec.items()), False
    if isinstance(spec, tuple) and spec and isinstance(spec[0], str):
        return (_from_tuple(spec),), False
    if isinstance(spec, Iterable):
        return tuple(_from_item(item) for item in spec), False
    raise InvalidSelectorError(
        f"{spec!r} is not a label selector: give a mapping or expressions; for example {{'zone': 'in(a, b)'}} or "
        "[label_in('zone', ['a', 'b'])]"
    )


def _parse_hard(spec: Any) -> tuple[LabelMatchExpression, ...]:
    terms, any_of = parse_expressions(spec)
    soft = next((term for term in terms if term.soft), None)
    if soft is not None:
        raise InvalidSelectorError(
            f"a label selector has hard expressions only, but {soft!r} is soft: use fallback_strategy, or "
            "scheduling_strategy=node_affinity(label_in('zone', ['a'], True))"
        )
    within = next((term for term in terms if term.topology), None)
    if within is not None:
        raise InvalidSelectorError(
            f"a label selector asks about the labels of nodes, but {within!r} names a topology: that is for what is placed "
            "there; for example actor_affinity(label_in('svc', ['web'], topology='zone'))"
        )
    if any_of:
        raise InvalidSelectorError(
            f"a label selector joins its expressions by AND, but {spec!r} says OR: use "
            "node_affinity([...], is_or_semantics=True)"
        )
    return terms


def _from_item(item: Any) -> LabelMatchExpression:
    if isinstance(item, LabelMatchExpression):
        return item
    if isinstance(item, (tuple, list)):
        return _from_tuple(item)
    # By name, as everywhere: what Ray's own NodeLabelSchedulingStrategy makes of the mapping that it is given.
    if type(item).__name__ == "_LabelMatchExpression":
        return LabelMatchExpression(item.key, *parse_condition(item.key, item.operator))
    raise InvalidSelectorError(
        f"{item!r} is not a label expression: give label_in('type', ['cat'], False) or the tuple "
        "('type', LabelMatchOperator.IN, ['cat'], False)"
    )


def _from_tuple(item: tuple[Any, ...] | list[Any]) -> LabelMatchExpression:
    if not 2 <= len(item) <= 5:
        raise InvalidSelectorError(
            f"the expression {item!r} has {len(item)} parts: it is key, operator, values, soft and topology, the last three "
            "only where needed; for example ('type', LabelMatchOperator.IN, ['cat'], False)"
        )
    return LabelMatchExpression(*item)
