"""Nodes that are there and types that may be started, as bins: what is asked for is packed into them by the numbers.

Nodes that are alike in everything that matters here are one bin that is there many times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remora.kernel.packing.bins import COMING, NO_LIMIT, THERE, Bin, Kind, Packing
from remora.kernel.packing.portfolio import pack
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet, members, without
from remora.kernel.state.type_table import Openings
from remora.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Wanted:
    """``count`` equal demands: ``nodes`` are those that the rules admit it to, however full they are, ``types`` the same of the
    templates, however small these are. ``apart`` and ``beside`` are as in ``Kind``."""

    need: Resources
    count: int
    nodes: NodeSet
    types: NodeSet
    apart: int = 0
    beside: tuple[int, ...] = ()
    labelled: int = 0


class Stock:
    """The bins for a list of demands. ``members`` are the node numbers behind each bin that is there or on its way."""

    def __init__(
        self,
        cluster: Cluster,
        openings: Openings,
        wanted: Sequence[Wanted],
        coming: NodeSet = 0,
        expected: Mapping[str, int] | None = None,
    ) -> None:
        """``coming`` are nodes of the cluster that were asked for and have not come yet; ``expected`` are more of them that are
        not in it, by type."""
        self.cluster = cluster
        self.wanted = wanted
        self.bins: list[Bin] = []
        self.members: list[list[int]] = []
        self._admitted: list[int] = []  # by bin, the demands that the rules admit to it
        self._most = NO_LIMIT if openings.all is None else openings.all
        self._add_nodes(coming)
        self._add_types(openings, expected or {})

    def pack(self) -> Packing:
        """Return the best packing of all that is wanted."""
        kinds = []
        for number, want in enumerate(self.wanted):
            bins = 0
            for bin_, admitted in enumerate(self._admitted):
                bins |= (admitted >> number & 1) << bin_
            kinds.append(Kind(want.need.pairs, want.count, bins, want.apart, want.beside, want.labelled))
        return pack(self.bins, kinds, self._most)

    def _add_nodes(self, coming: NodeSet) -> None:
        useful = 0
        for want in self.wanted:
            if want.nodes and want.count:
                useful |= want.nodes & self.cluster.available.at_least(want.need)
        names = sorted({name for want in self.wanted for name in want.need})
        for part, admitted in self._parts(useful):
            alike: dict[tuple[int, ...], list[int]] = {}
            for number in members(part):
                held = self.cluster.available.amounts(number)
                free = [max(held.get(name, 0), 0) for name in names]
                alike.setdefault((coming >> number & 1, *free), []).append(number)
            for (late, *amounts), numbers in alike.items():
                node = self.cluster.nodes.at(numbers[0])
                free_ = dict(zip(names, amounts, strict=True))
                self._add(Bin(node.node_type, free_, len(numbers), COMING if late else THERE), admitted, numbers)

    def _parts(self, nodes: NodeSet) -> list[tuple[NodeSet, int]]:
        """Return the nodes split by who is admitted to them, each part with that as a bit set of demands."""
        by_nodes: dict[NodeSet, int] = {}
        for number, want in enumerate(self.wanted):
            by_nodes[want.nodes & nodes] = by_nodes.get(want.nodes & nodes, 0) | 1 << number
        parts = [(nodes, 0)]
        for some, who in by_nodes.items():
            split = []
            for part, admitted in parts:
                inside = part & some
                if inside:
                    split.append((inside, admitted | who))
                if inside != part:
                    split.append((without(part, inside), admitted))
            parts = split
        return [(part, admitted) for part, admitted in parts if part and admitted]

    def _add_types(self, openings: Openings, expected: Mapping[str, int]) -> None:
        table = openings.table
        for number, each in enumerate(table.types):
            admitted = 0
            for index, want in enumerate(self.wanted):
                admitted |= (want.types >> number & 1) << index
            if expected.get(each.name):
                self._add(Bin(each.name, each.resources, expected[each.name], COMING), admitted, [])
            room = openings.of(each)
            left = NO_LIMIT if room is None else room
            if left and self._most:
                self._add(
                    Bin(each.name, each.resources, left, cost=table.costs.get(each.name), priority=each.priority), admitted, []
                )

    def _add(self, bin_: Bin, admitted: int, numbers: list[int]) -> None:
        self.bins.append(bin_)
        self._admitted.append(admitted)
        self.members.append(numbers)
