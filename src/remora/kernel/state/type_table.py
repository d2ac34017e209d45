"""Node types for the rules: each is an empty node of a small cluster, so that whoever asks about nodes can ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Node
from remora.model.node_types import NodeType, NodeTypes


class TypeTable:
    """The types that may be started, and which of them ``rest`` because they could not be had: by name, why.

    ``templates`` has one node a type, with the type's name as its id; ``on_offer`` are those that may be started, ``at_hand``
    those of them that do not rest. ``costs`` is empty where nothing is known of what machines cost.
    """

    def __init__(self, types: NodeTypes, resting: Mapping[str, str] | None = None) -> None:
        self.types = types
        self.resting = {name: why for name, why in (resting or {}).items() if name in types}
        self.templates = Cluster()
        self.on_offer: NodeSet = 0
        self.at_hand: NodeSet = 0
        for each in types:
            bit = 1 << self.templates.add_node(each.name, each.resources, each.labels, each.taints).number
            if each.most is None or each.most > 0:
                self.on_offer |= bit
                self.at_hand |= 0 if each.name in self.resting else bit

        self.costs = _costs(types)

    def at(self, number: int) -> NodeType:
        """Return the type of a template."""
        return self.types.types[number]


class Openings:
    """How many machines of each type may still be started: their own maxima, and that of all together."""

    def __init__(self, table: TypeTable, counts: Mapping[str, int], others: int = 0) -> None:
        """``counts`` are the machines by type that are there or on their way, ``others`` those of types that are not known."""
        self.table = table
        self.counts = {each.name: counts.get(each.name, 0) for each in table.types}
        self.others = others

    @property
    def all(self) -> int | None:
        """Return how many machines of any type may still be started; None when there is no limit."""
        most = self.table.types.most
        return None if most is None else max(most - self.others - sum(self.counts.values()), 0)

    def of(self, each: NodeType) -> int | None:
        """Return how many more there may be of a type by its own maximum; None when it has none."""
        return None if each.most is None else max(each.most - self.counts[each.name], 0)

    def take(self, name: str, count: int = 1) -> None:
        """Count so many more machines of a type, or with a negative number fewer."""
        self.counts[name] += count

    def copy(self) -> Openings:
        return Openings(self.table, self.counts, self.others)


def counted(nodes: Iterable[Node]) -> dict[str, int]:
    """Return how many of these nodes were started as each type."""
    counts: dict[str, int] = {}
    for node in nodes:
        if node.node_type:
            counts[node.node_type] = counts.get(node.node_type, 0) + 1
    return counts


def openings_beside(table: TypeTable, nodes: Iterable[Node], coming: Mapping[str, int] | None = None) -> Openings:
    """Return what may be started beside these nodes and what is on its way."""
    counts = counted(nodes)
    for name, count in (coming or {}).items():
        counts[name] = counts.get(name, 0) + count
    others = sum(count for name, count in counts.items() if name not in table.types)
    return Openings(table, counts, others)


def _costs(types: NodeTypes) -> dict[str, float]:
    """Return what a machine of each type costs; one that does not say costs as much as others of its size do on average."""
    largest = {name: max(each.resources.get(name, 0) for each in types) for each in types for name in each.resources}
    sizes = {each.name: sum(units / largest[name] for name, units in each.resources.items()) for each in types}
    known = {each.name: each.cost for each in types if each.cost is not None}
    if not known:
        return {}
    rate = sum(known.values()) / (sum(sizes[name] for name in known) or 1.0)
    return {name: known.get(name, size * rate) for name, size in sizes.items()}
