"""Scheduling strategies as users write them, and the one form that the kernel reads.

An ``Affinity`` asks about what is already placed on a node, or in its domain (zone, rack): each expression is judged by itself
over the union of the labels there, AND joins the hard ones (OR on request), soft ones are wishes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remora.errors import InvalidStrategyError
from remora.model.labels import ACTOR_ID
from remora.model.operators import LabelMatchOperator
from remora.model.selectors import LabelMatchExpression, LabelSelector, parse_expressions
from remora.model.spreading import Spread, SpreadSchedulingStrategy

ACTOR = "actor"
TASK = "task"
NODE = "node"
OBJECT = "object"

STAY, FOLLOW, TOGETHER = "stay", "follow", "together"
"""What a placed actor does when one that it joined restarts elsewhere: nothing, join it there, or move with it to one node
that fits them all."""

DEFAULT = "DEFAULT"
SPREAD = "SPREAD"


@dataclass(frozen=True)
class Affinity:
    """One strategy over labels of actors, tasks or nodes, in canonical form."""

    owner: str
    expressions: tuple[LabelMatchExpression, ...]
    any_of: bool = False
    symmetric: bool = False
    on_failover: str = STAY

    @functools.cached_property
    def hard(self) -> tuple[LabelMatchExpression, ...]:
        return tuple(expression for expression in self.expressions if expression.hard)

    @functools.cached_property
    def soft(self) -> tuple[LabelMatchExpression, ...]:
        return tuple(expression for expression in self.expressions if expression.soft)


class _AffinityStrategy:
    """Shared by the three strategies over labels; ``owner`` says whose labels are asked."""

    owner = ACTOR

    def __init__(
        self, match_expressions: Any, is_or_semantics: bool = False, *, symmetric: bool = False, on_failover: str = STAY
    ) -> None:
        expressions, any_of = parse_expressions(match_expressions)
        if not expressions:
            raise InvalidStrategyError(
                f"{type(self).__name__} has no expression: name at least one; for example label_in('type', ['cat'], False)"
            )
        within = next((expression for expression in expressions if expression.topology), None)
        if within is not None and self.owner == NODE:
            raise InvalidStrategyError(
                f"{within!r} names a topology, but affinity to nodes asks about their own labels: it is for actors, tasks and "
                "objects; for example actor_affinity(label_in('svc', ['web'], topology='zone'))"
            )
        if symmetric and self.owner == NODE:
            raise InvalidStrategyError(
                "symmetric=True is for affinity between actors or tasks: nodes have no rules of their own"
            )
        if symmetric and (is_or_semantics or any_of):
            raise InvalidStrategyError(
                "symmetric=True joins its expressions by AND: give is_or_semantics=True or symmetric=True, not both"
            )
        if on_failover not in (STAY, FOLLOW, TOGETHER):
            raise InvalidStrategyError(
                f"on_failover={on_failover!r} is not known: use 'stay', 'follow' or 'together', for example "
                "actor_affinity(label_in('type', ['cat'], False), on_failover='follow')"
            )
        if on_failover != STAY and self.owner != ACTOR:
            raise InvalidStrategyError(f"on_failover={on_failover!r} is for affinity to actors: only they restart elsewhere")
        self.on_failover = on_failover
        self.match_expressions = expressions
        self.is_or_semantics = bool(is_or_semantics) or any_of
        self.symmetric = bool(symmetric)

    def canonical(self) -> Affinity:
        hard = [expression for expression in self.match_expressions if expression.hard]
        return Affinity(
            self.owner,
            tuple(sorted(set(self.match_expressions))),
            self.is_or_semantics and len(set(hard)) > 1,
            self.symmetric,
            self.on_failover,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AffinityStrategy) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __repr__(self) -> str:
        declared = f"is_or_semantics={self.is_or_semantics}, symmetric={self.symmetric}, on_failover={self.on_failover!r}"
        return f"{type(self).__name__}({list(self.match_expressions)!r}, {declared})"


class ActorAffinitySchedulingStrategy(_AffinityStrategy):
    """Go to (or keep away from) nodes by the labels of the actors there.

    Examples:
        ``ActorAffinitySchedulingStrategy([LabelMatchExpression("type", LabelMatchOperator.NOT_IN, ["cat"], False)])``
    """


class TaskAffinitySchedulingStrategy(_AffinityStrategy):
    """Go to (or keep away from) nodes by the labels of the tasks there."""

    owner = TASK


class ObjectAffinitySchedulingStrategy(_AffinityStrategy):
    """Go to (or keep away from) nodes by the labels of the objects there, put with ``remora.put(value, labels=...)``."""

    owner = OBJECT


class NodeLabelAffinityStrategy(_AffinityStrategy):
    """Go to nodes by the nodes' own labels."""

    owner = NODE


ActorAffinity = ActorAffinitySchedulingStrategy  # the spelling in Ray's node affinity proposal, options 2 and 4


@dataclass(frozen=True)
class NodePin:
    """One node by its id; a soft pin is a wish."""

    node_id: str
    soft: bool = False


class NodeAffinitySchedulingStrategy:
    """Either Ray's own form, a node id, or expressions over node labels as in the node affinity proposal.

    Examples:
        ``NodeAffinitySchedulingStrategy("n1", soft=True)``,
        ``NodeAffinitySchedulingStrategy([label_in("zone", ["a"], False)])``
    """

    def __new__(cls, node_id: Any = None, soft: bool = False, *, match_expressions: Any = None) -> Any:
        if match_expressions is not None or not isinstance(node_id, str):
            return NodeLabelAffinityStrategy(match_expressions if match_expressions is not None else node_id)
        if not isinstance(soft, bool):
            raise InvalidStrategyError(
                f"soft={soft!r} is not True or False; for example NodeAffinitySchedulingStrategy('n1', soft=True)"
            )
        return NodePin(node_id, soft)


class NodeLabelSchedulingStrategy:
    """Ray's own strategy over node labels: hard conditions, and soft ones that are wishes."""

    def __init__(self, hard: Any = None, soft: Any = None) -> None:
        self.hard = LabelSelector(hard)
        self.soft = LabelSelector(soft)


def actor_affinity(
    expressions: Any, is_or_semantics: bool = False, *, symmetric: bool = False, on_failover: str = STAY
) -> ActorAffinitySchedulingStrategy:
    """Affinity to actors: ``actor_affinity(label_not_in("type", ["cat"], False))``."""
    return ActorAffinitySchedulingStrategy(expressions, is_or_semantics, symmetric=symmetric, on_failover=on_failover)


def task_affinity(
    expressions: Any, is_or_semantics: bool = False, *, symmetric: bool = False
) -> TaskAffinitySchedulingStrategy:
    """Affinity to tasks: ``task_affinity(label_in("stage", ["load"], False))``."""
    return TaskAffinitySchedulingStrategy(expressions, is_or_semantics, symmetric=symmetric)


def object_affinity(expressions: Any, is_or_semantics: bool = False) -> ObjectAffinitySchedulingStrategy:
    """Affinity to objects: ``object_affinity(label_in("dataset", ["imagenet"], False))``."""
    return ObjectAffinitySchedulingStrategy(expressions, is_or_semantics)


def node_affinity(expressions: Any, is_or_semantics: bool = False) -> NodeLabelAffinityStrategy:
    """Affinity to nodes by their labels: ``node_affinity(label_exists("gpu", False))``."""
    return NodeLabelAffinityStrategy(expressions, is_or_semantics)


def handle_id(handle: Any) -> str:
    """The id behind a handle: what the handle says of itself. The live part teaches it to Ray's own."""
    for found in (handle, getattr(handle, "remora_id", None), getattr(handle, "workload_id", None)):
        if isinstance(found, str):
            return found
    raise InvalidStrategyError(f"{handle!r} is not an actor handle or an actor id; for example affinity(actor_0, False)")


def affinity(
    actor_handles: Any, is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Where this actor is, or where one of these actors is: on the same node, or in its domain of the label ``topology``."""
    return LabelMatchExpression(ACTOR_ID, LabelMatchOperator.IN, _ids(actor_handles), soft, topology, is_soft=is_soft)


def anti_affinity(
    actor_handles: Any, is_soft: bool | None = None, *, soft: bool | None = None, topology: str | None = None
) -> LabelMatchExpression:
    """Where none of these actors is: not on the same node, or not in the same domain of the label ``topology``."""
    return LabelMatchExpression(ACTOR_ID, LabelMatchOperator.NOT_IN, _ids(actor_handles), soft, topology, is_soft=is_soft)


def _ids(handles: Any) -> list[str]:
    listed = list(handles) if isinstance(handles, (list, tuple, set, frozenset)) else [handles]
    if not listed:
        raise InvalidStrategyError(
            "affinity to an empty list of actors: name at least one; for example affinity([actor_0], False)"
        )
    return [handle_id(handle) for handle in listed]


@dataclass(frozen=True)
class Placement:
    """What a ``scheduling_strategy`` and an ``affinity`` come to: the parts of a request."""

    policy: str = DEFAULT
    pin: NodePin | None = None
    affinities: tuple[Affinity, ...] = ()
    node_terms: tuple[LabelMatchExpression, ...] = ()
    node_any: tuple[tuple[LabelMatchExpression, ...], ...] = ()
    node_wishes: tuple[LabelMatchExpression, ...] = ()
    spreads: tuple[Spread, ...] = ()

    @property
    def is_leased(self) -> bool:
        """Whether where it goes depends on what else is placed."""
        return bool(self.affinities or self.spreads)


def parse_strategies(scheduling_strategy: Any, affinity: Any = None) -> Placement:
    """Both dimensions, in every spelling, as one Placement."""
    policy: str = DEFAULT
    pin: NodePin | None = None
    affinities: list[Affinity] = []
    spreads: list[Spread] = []
    if isinstance(scheduling_strategy, str):
        policy, scheduling_strategy = _parse_policy(scheduling_strategy), None
    for strategy in (scheduling_strategy, *(affinity if isinstance(affinity, (list, tuple)) else (affinity,))):
        if strategy is None:
            continue
        if isinstance(strategy, _AffinityStrategy):
            affinities.append(strategy.canonical())
        elif isinstance(strategy, SpreadSchedulingStrategy):
            spreads.append(strategy.canonical())
        elif (found := _parse_pin(strategy)) is not None:
            if pin is not None and pin != found:
                raise InvalidStrategyError(
                    f"two node affinities, to {pin.node_id!r} and {found.node_id!r}: use only one of them"
                )
            pin = found
        elif _looks_like(strategy, "NodeLabelSchedulingStrategy"):
            affinities.extend(_parse_node_labels(strategy))
        else:
            raise InvalidStrategyError(
                f"{strategy!r} is not a scheduling strategy: use 'DEFAULT', 'SPREAD', a node affinity, or for example "
                "actor_affinity(label_not_in('type', ['cat'], False)) or spread(over='zone')"
            )
    node = [item for item in affinities if item.owner == NODE]
    return Placement(
        policy=policy,
        pin=pin,
        affinities=tuple(sorted((item for item in affinities if item.owner != NODE), key=repr)),
        node_terms=tuple(term for item in node if not item.any_of for term in item.hard),
        node_any=tuple(sorted(item.hard for item in node if item.any_of)),
        node_wishes=tuple(sorted(term for item in node for term in item.soft)),
        spreads=tuple(dict.fromkeys(sorted(spreads, key=repr))),
    )


def _parse_policy(name: str) -> str:
    if name.upper() not in (DEFAULT, SPREAD):
        raise InvalidStrategyError(f"the scheduling strategy {name!r} is not known: use 'DEFAULT' or 'SPREAD'")
    return name.upper()


def _parse_pin(strategy: Any) -> NodePin | None:
    if isinstance(strategy, NodePin):
        return strategy
    if _looks_like(strategy, "NodeAffinitySchedulingStrategy"):
        return NodePin(str(strategy.node_id), bool(strategy.soft))
    return None


def _parse_node_labels(strategy: Any) -> Iterable[Affinity]:
    for wanted, soft in ((strategy.hard, False), (strategy.soft, True)):
        terms = wanted.terms if isinstance(wanted, LabelSelector) else parse_expressions(wanted)[0]
        if terms:
            yield Affinity(NODE, tuple(LabelMatchExpression(term.key, term.operator, term.values, soft) for term in terms))


def _looks_like(strategy: Any, name: str) -> bool:
    """By name, so that Ray's own classes are understood without importing Ray."""
    return type(strategy).__name__ == name
