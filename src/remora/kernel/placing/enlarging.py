"""The machines that a whole needs: a placement group or a virtual cluster's minimum, for which all or none are added.

How many of which type is estimated by the numbers, and then the ordinary functions are asked whether it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from remora.kernel.packing.bins import TO_ADD
from remora.kernel.placing.eligibility import eligible
from remora.kernel.placing.stock import Stock, Wanted
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members
from remora.kernel.state.node_table import Node
from remora.kernel.state.type_table import Openings, TypeTable
from remora.model.groups import Bundle
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, Resources
from remora.model.selectors import LabelSelector
from remora.model.topology import Levels

_MOST_TO_SPARE = 32


@dataclass(frozen=True, slots=True)
class Part:
    """Equal parts of a whole. All of ``classes`` have to admit a node; parts of one ``team`` lie on different nodes."""

    need: Resources
    classes: tuple[NodeClass, ...]
    count: int = 1
    team: int | None = None


def parts_of_cluster(vcluster: VCluster) -> list[Part]:
    """Return what the minimum still lacks. The flexible part lies anywhere in any pieces, so it is parts of one unit."""
    nodes = (NodeClass(LabelSelector(), vcluster.tolerations),)
    parts, slot = [], 0
    for team, group in enumerate(vcluster.spec.fixed_size_nodes):
        apart = team if group.scheduling_policy.value == "STRICT_SPREAD" else None
        for node in group.nodes:
            if vcluster.fixed[slot] is None:
                parts.append(Part(node.resources, nodes, 1, apart))
            slot += 1
    parts += [Part(Resources({name: 1}), nodes, units) for name, units in vcluster.flex_shortfall().pairs]
    return _joined(parts)


def parts_of_bundles(bundles: Iterable[Bundle], strategy: str) -> list[Part]:
    """Return the bundles of a placement group that are to be placed; on one node they are one part."""
    listed = list(bundles)
    if strategy == "STRICT_PACK":
        total = sum((bundle.resources for bundle in listed), EMPTY)
        return [Part(total, tuple(dict.fromkeys(bundle.nodes for bundle in listed)))]
    apart = 0 if strategy == "STRICT_SPREAD" else None
    return _joined([Part(bundle.resources, (bundle.nodes,), 1, apart) for bundle in listed])


def _joined(parts: list[Part]) -> list[Part]:
    counts: dict[Part, int] = {}
    for part in parts:
        alike = replace(part, count=1)
        counts[alike] = counts.get(alike, 0) + part.count
    return [replace(part, count=count) for part, count in counts.items()]


def wanted_of(
    cluster: Cluster, table: TypeTable, parts: list[Part], types: NodeSet, offset: int = 0, *, outside: bool = True
) -> list[Wanted]:
    """Return the parts as demands, numbered from ``offset``; ``types`` are the templates that may be used. Unless it is
    ``outside`` all virtual clusters, what is free on nodes is not for it to take."""
    teams: dict[int, int] = {}
    for number, part in enumerate(parts, offset):
        if part.team is not None:
            teams[part.team] = teams.get(part.team, 0) | 1 << number
    found = []
    for part in parts:
        nodes, templates = cluster.nodes.alive if outside else 0, types
        for choice in part.classes:
            nodes &= eligible(cluster, choice) if outside else 0
            templates &= eligible(table.templates, choice)
        labelled = max(len(choice.selector.terms) for choice in part.classes)
        apart = teams[part.team] if part.team is not None else 0
        found.append(Wanted(part.need, part.count, nodes, templates, apart, labelled=labelled))
    return found


class Enlarger:
    """Adds machines to a cluster that is only a copy, within what may be started."""

    def __init__(self, cluster: Cluster, openings: Openings, types: NodeSet) -> None:
        self.cluster = cluster
        self.openings = openings
        self.types = types
        self.made: NodeSet = 0  # the machines that were added, as numbers of the cluster's nodes
        self._names = 0

    def enlarge(self, parts: list[Part], fits: Callable[[], bool], *, outside: bool) -> list[Node] | None:
        """Add the machines that a whole needs to fit, and return them; None and no machine when it does not whatever is added.

        ``outside``: it lies in no virtual cluster, so that what is free on the nodes is for it to take.
        """
        if fits():
            return []
        wanted = wanted_of(self.cluster, self.openings.table, parts, self.types, outside=outside)
        if not all(want.types or want.nodes for want in wanted) and outside:
            return None
        stock = Stock(self.cluster, self.openings, wanted)
        packing = stock.pack()
        names = [stock.bins[b].name for b, times, _ in packing.filled if stock.bins[b].tier == TO_ADD for _ in range(times)]
        if not outside:
            return self._first_that_fit(names, fits)
        added = [self.add(name) for name in names]
        most = sum(min(part.count, len(self.cluster.nodes.by_id) + 1) for part in parts)
        while not fits():
            more = self._one_more(wanted) if len(added) < most else None
            if more is None:
                self.drop(added)
                return None
            added.append(more)
        return self._spared(added, fits) if 1 < len(added) <= _MOST_TO_SPARE else added

    def enlarge_within(
        self, parts: list[Part], fits: Callable[[], bool], *, outside: bool, levels: Levels
    ) -> list[Node] | None:
        """The same for a whole that lies over domains by these levels. Where it lies in one, the types of one domain are tried
        at a time; else machines of every type are, one for each part."""
        if not levels or fits():
            return self.enlarge(parts, fits, outside=outside)
        label, strategy = levels[0]
        all_types, table = self.types, self.openings.table
        domains = sorted({dict(table.at(number).labels).get(label, "") for number in members(all_types)} - {""})
        found: list[Node] | None = None
        best: str | None = None
        if strategy in ("STRICT_PACK", "PACK"):
            sizes = {}
            for domain in domains:
                self.types = self._types_in(all_types, label, domain)
                found = self.enlarge(parts, fits, outside=outside)
                if found is not None:
                    sizes[domain] = sum(self._burden(node.node_type)[0] for node in found), len(found)
                    self.drop(found)
            best = min(sizes, key=lambda domain: sizes[domain], default=None)
            self.types = self._types_in(all_types, label, best) if best is not None else all_types
            found = self.enlarge(parts, fits, outside=outside) if best is not None else None
            self.types = all_types
        if found is None and strategy != "STRICT_PACK":
            found = self._one_in_each(parts, fits, label, domains) or self.enlarge(parts, fits, outside=outside)
        return found

    def _types_in(self, types: NodeSet, label: str, domain: str) -> NodeSet:
        table = self.openings.table
        return collect(number for number in members(types) if dict(table.at(number).labels).get(label) == domain)

    def _one_in_each(self, parts: list[Part], fits: Callable[[], bool], label: str, domains: list[str]) -> list[Node] | None:
        """Add machines domain by domain, in turn, until it fits; then leave out those that it does not need."""
        added: list[Node] = []
        table, most = self.openings.table, sum(min(part.count, _MOST_TO_SPARE) for part in parts)
        while len(added) < most:
            before = len(added)
            for domain in domains:
                types = [table.at(number) for number in members(self._types_in(self.types, label, domain))]
                useful = [
                    each.name
                    for each in types
                    if self.openings.of(each) != 0 and any(part.need.fits_in(each.resources) for part in parts)
                ]
                if useful and self.openings.all != 0 and len(added) < most:
                    added.append(self.add(min(useful, key=self._burden)))
                    if fits():
                        return self._without_spare(added, fits)
            if len(added) == before:
                break
        self.drop(added)
        return None

    def _without_spare(self, added: list[Node], fits: Callable[[], bool]) -> list[Node]:
        kept = list(added)
        for node in list(added):
            self.drop([node])
            if fits():
                kept.remove(node)
            else:
                kept[kept.index(node)] = self.add(node.node_type)
        return kept

    def add(self, name: str) -> Node:
        """Add a machine of a type."""
        each = self.openings.table.types.get(name)
        assert each is not None, name
        self._names += 1
        while f"+{name}/{self._names}" in self.cluster.nodes.by_id:  # it is a copy of a copy with machines of its own
            self._names += 1
        self.openings.take(name)
        node = self.cluster.add_node(f"+{name}/{self._names}", each.resources, each.labels, each.taints, name)
        self.made |= 1 << node.number
        return node

    def drop(self, nodes: Iterable[Node]) -> None:
        """Take machines away that were added and hold nothing."""
        for node in nodes:
            self.openings.take(node.node_type, -1)
            self.made ^= 1 << node.number
            self.cluster.remove_node(node)

    def _first_that_fit(self, names: list[str], fits: Callable[[], bool]) -> list[Node] | None:
        """Add as few of these as do, the first ones."""
        added = [self.add(name) for name in names]
        if not added or not fits():
            self.drop(added)
            return None
        low, high = 1, len(names)
        while low < high:
            middle = (low + high) // 2
            self.drop(added[middle:])
            del added[middle:]
            added += [self.add(name) for name in names[len(added) : middle]]
            low, high = (low, middle) if fits() else (middle + 1, high)
        return [*added, *(self.add(name) for name in names[len(added) : high])]

    def _one_more(self, wanted: list[Wanted]) -> Node | None:
        """Add a machine that takes one of the demands, the least costly; None when no more may be."""
        if self.openings.all == 0:
            return None
        useful = 0
        for want in wanted:
            useful |= want.types & self.openings.table.templates.totals.at_least(want.need)
        types = [self.openings.table.at(number) for number in members(useful)]
        types = [each for each in types if self.openings.of(each) != 0]
        return self.add(min((each.name for each in types), key=self._burden)) if types else None

    def _spared(self, added: list[Node], fits: Callable[[], bool]) -> list[Node]:
        """Take away what turns out not to be needed, and return the rest."""
        kinds = sorted({node.node_type for node in added}, key=self._burden, reverse=True)
        for name in kinds:
            while len(added) > 1:
                last = next((node for node in reversed(added) if node.node_type == name), None)
                if last is None:
                    break
                self.drop([last])
                if not fits():
                    added[added.index(last)] = self.add(name)
                    break
                added.remove(last)
        return added

    def _burden(self, name: str) -> tuple[float, bool, int, int]:
        """Return what a machine of a type costs, or else how much of a pity it would be."""
        table = self.openings.table
        each = table.types.get(name)
        assert each is not None, name
        return table.costs.get(name, 0.0), "GPU" in each.resources, -each.priority, sum(each.resources.values())
