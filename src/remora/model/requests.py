"""Requests: everything that decides where one piece of work may run, in one canonical form.

Equal requests compare equal, hash equal and have the same ``fingerprint``, whatever the spelling, the process or the
Python version. The labels that the work itself carries are not part of it: they decide where *others* may run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from remora.errors import InvalidStrategyError
from remora.model.labels import NODE_ID, Labels
from remora.model.memo import Memo
from remora.model.operators import LabelMatchOperator
from remora.model.resources import EMPTY, Resources, to_units
from remora.model.selectors import LabelMatchExpression, LabelSelector
from remora.model.spreading import Spread
from remora.model.strategies import ACTOR, DEFAULT, STAY, TASK, Affinity, parse_strategies
from remora.model.taints import Tolerations

ONE_CPU = Resources({"CPU": to_units("CPU", 1)})


@dataclass(frozen=True)
class NodeClass:
    """What decides a node by its labels, taints and id alone: the part of a request that a class token stands for."""

    selector: LabelSelector
    tolerations: Tolerations
    any_of: tuple[tuple[LabelMatchExpression, ...], ...] = ()
    node_id: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return _without_hash(self)

    @cached_property
    def _hash(self) -> int:
        return hash((self.selector, self.tolerations, self.any_of, self.node_id))

    def __hash__(self) -> int:
        return self._hash

    @property
    def named_nodes(self) -> frozenset[str] | None:
        """The ids of the nodes that it allows, where it names them; None where it names none."""
        named = [] if self.node_id is None else [frozenset((self.node_id,))]
        named += [
            frozenset(term.values)
            for term in self.selector.terms
            if term.key == NODE_ID and term.operator is LabelMatchOperator.IN and term.hard
        ]
        return frozenset.intersection(*named) if named else None

    def canonical(self) -> list[Any]:
        return [
            [plain_term(term) for term in self.selector.terms],
            [plain_term(term) for term in self.tolerations.terms],
            [[plain_term(term) for term in terms] for terms in self.any_of],
            self.node_id,
        ]


@dataclass(frozen=True)
class Request:
    """One piece of work as the kernel sees it. Build it with ``parse_request``.

    ``choices`` are the node classes in the order in which they are tried: the selector, then the fallbacks. ``demand``
    must be free where it starts, ``resources`` it holds while it lives: they differ only for Ray's default actors.
    """

    kind: str
    resources: Resources
    demand: Resources
    choices: tuple[NodeClass, ...]
    wishes: tuple[LabelMatchExpression, ...] = ()
    wished_node: str | None = None
    affinities: tuple[Affinity, ...] = ()
    policy: str = DEFAULT
    namespace: str = "default"
    cluster: str | None = None
    spreads: tuple[Spread, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return _without_hash(self)

    @cached_property
    def _hash(self) -> int:
        placing = (self.choices, self.affinities, self.spreads, self.policy)
        return hash((self.kind, self.resources, self.demand, placing, self.namespace, self.cluster))

    def of(self, labels: Labels) -> Request:
        """The same request for work with these labels: what it is spread among is known then."""
        if all(each.own is not None for each in self.spreads):
            return self
        return replace(self, spreads=tuple(each.of(labels) for each in self.spreads))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def fingerprint(self) -> str:
        """Names this request in every process and Python version."""
        return _digest(
            [
                self.kind,
                self.resources.pairs,
                self.demand.pairs,
                [choice.canonical() for choice in self.choices],
                [plain_term(term) for term in self.wishes],
                self.wished_node,
                [
                    [item.owner, [plain_term(term) for term in item.expressions], item.any_of, item.symmetric, *_declared(item)]
                    for item in self.affinities
                ],
                self.policy,
                self.namespace,
                self.cluster,
                *[plain_spread(each) for each in self.spreads],
            ]
        )

    @cached_property
    def class_id(self) -> str:
        """Names the class token of this request."""
        return class_id_of(self.choices, self.demand)

    @property
    def tolerations(self) -> Tolerations:
        return self.choices[0].tolerations

    @cached_property
    def follows(self) -> bool:
        """Whether a newcomer elsewhere can make this placeable: it has a hard rule that wants something to be there, or others
        to be as many."""
        return self.joins or any(each.hard for each in self.spreads)

    @cached_property
    def joins(self) -> bool:
        """Whether a hard rule wants something to be there."""
        return any(term.positive for item in self.affinities for term in item.hard)

    @cached_property
    def ruled(self) -> bool:
        """Whether a hard rule asks about what else is placed."""
        return any(item.hard for item in self.affinities) or any(each.hard for each in self.spreads)

    @cached_property
    def topologies(self) -> frozenset[str]:
        """The labels whose domains a hard rule asks about."""
        within = {term.topology for item in self.affinities for term in item.hard if term.topology}
        return frozenset(within | {each.over for each in self.spreads if each.hard})


def class_id_of(choices: tuple[NodeClass, ...], demand: Resources) -> str:
    """Names a class: only what decides by labels, taints and id; with fallbacks also the size asked for, because a
    fallback is taken when no node of the earlier choice could ever hold that much."""
    return _digest([[choice.canonical() for choice in choices], demand.pairs if len(choices) > 1 else ()])


def parse_request(
    kind: str = TASK,
    *,
    resources: Any = None,
    label_selector: Any = None,
    fallback_strategy: Any = None,
    tolerations: Any = None,
    scheduling_strategy: Any = None,
    affinity: Any = None,
    namespace: str = "default",
    virtual_cluster: str | None = None,
) -> Request:
    """Return options as users write them as one canonical request, the same one for equal options; raise an
    InvalidInputError that names what is wrong."""
    return _parse_or_recall(
        kind,
        resources,
        label_selector,
        fallback_strategy,
        tolerations,
        scheduling_strategy,
        affinity,
        namespace,
        virtual_cluster,
    )


def _parse_request(
    kind: str,
    resources: Any,
    label_selector: Any,
    fallback_strategy: Any,
    tolerations: Any,
    scheduling_strategy: Any,
    affinity: Any,
    namespace: str,
    virtual_cluster: str | None,
) -> Request:
    if kind not in (ACTOR, TASK):
        raise InvalidStrategyError(f"the kind {kind!r} is not known: use 'actor' or 'task'")
    if not isinstance(namespace, str) or not namespace:
        raise InvalidStrategyError(f"the namespace {namespace!r} is not a non-empty string; for example 'default'")
    placement = parse_strategies(scheduling_strategy, affinity)
    tolerated = Tolerations(tolerations)
    pin = placement.pin
    selectors = (LabelSelector(label_selector), *parse_fallbacks(fallback_strategy))
    held = Resources.parse(resources)
    demand = held
    if resources is None:
        # Ray's default actor needs one CPU to be placed and none to live; its default task holds one.
        demand, held = ONE_CPU, (EMPTY if kind == ACTOR else ONE_CPU)
    return Request(
        kind=kind,
        resources=held,
        demand=demand,
        choices=tuple(
            NodeClass(
                selector.also(placement.node_terms),
                tolerated,
                placement.node_any,
                pin.node_id if pin and not pin.soft else None,
            )
            for selector in _distinct(selectors)
        ),
        wishes=placement.node_wishes,
        wished_node=pin.node_id if pin and pin.soft else None,
        affinities=placement.affinities,
        policy=placement.policy,
        namespace=namespace,
        cluster=virtual_cluster,
        spreads=placement.spreads,
    )


_parse_or_recall = Memo(_parse_request)


def parse_fallbacks(fallback_strategy: Any) -> tuple[LabelSelector, ...]:
    """``[{"label_selector": {...}}, ...]`` as selectors, in order."""
    if fallback_strategy is None:
        return ()
    example = "for example [{'label_selector': {'zone': 'b'}}, {'label_selector': {}}]"
    if isinstance(fallback_strategy, (str, Mapping)) or not isinstance(fallback_strategy, Sequence):
        raise InvalidStrategyError(f"fallback_strategy must be a list, not {fallback_strategy!r}; {example}")
    selectors = []
    for entry in fallback_strategy:
        if not isinstance(entry, Mapping) or set(entry) != {"label_selector"}:
            raise InvalidStrategyError(f"the fallback {entry!r} must be a mapping with the one key 'label_selector'; {example}")
        selectors.append(LabelSelector(entry["label_selector"]))
    return tuple(selectors)


def _without_hash(value: Any) -> dict[str, Any]:
    """What to pickle: a hash of strings means nothing in another process."""
    return {name: part for name, part in value.__dict__.items() if name != "_hash"}


def _distinct(selectors: tuple[LabelSelector, ...]) -> list[LabelSelector]:
    """A choice that stands twice is tried once."""
    return list(dict.fromkeys(selectors))


def _declared(item: Affinity) -> list[str]:
    """Only what differs from the default, so that older names stay."""
    return [] if item.on_failover == STAY else [item.on_failover]


def plain_term(term: LabelMatchExpression) -> list[Any]:
    """An expression as JSON can carry it; ``LabelMatchExpression(*parts)`` makes it again. A topology only where it has one, so
    that older names stay."""
    return [term.key, term.operator.name, list(term.values), term.soft, *([term.topology] if term.topology else [])]


def plain_spread(each: Spread) -> list[Any]:
    """A spread as JSON can carry it; ``spread_from`` makes it again."""
    counted = None if each.counted is None else [plain_term(term) for term in each.counted]
    return [each.over, each.max_skew, each.min_domains, each.soft, counted, each.own]


def spread_from(over: str, max_skew: int, min_domains: int, soft: bool, counted: list[Any] | None, own: bool | None) -> Spread:
    terms = None if counted is None else tuple(LabelMatchExpression(*term) for term in counted)
    return Spread(over, max_skew, min_domains, soft, terms, own)


def _digest(canonical: Any) -> str:
    text = json.dumps(canonical, separators=(",", ":"), ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
