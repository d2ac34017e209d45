"""A plan in the making: the copy of the cluster that it is tried on, which machines there are new, and who is on them."""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.placing.enlarging import Enlarger
from remora.kernel.provisioning.company import has_rules
from remora.kernel.provisioning.demands import Waiting
from remora.kernel.provisioning.plans import TYPE, Answer, Party, Plan, Start
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.twin import twin_of
from remora.kernel.state.type_table import TypeTable, openings_beside

Tenants = list[tuple[Party, int]]


class Draft:
    """``cluster`` is a copy, or the cluster itself where only numbers are asked of it (``copied``). ``late`` are nodes of the
    copy that are on their way; where nothing was copied they are ``expected``, by type. ``doubtful`` are those that are coming
    and nobody counts on."""

    def __init__(
        self,
        cluster: Cluster,
        waiting: Waiting,
        table: TypeTable,
        coming: Mapping[str, int],
        preset: Mapping[str, int],
        doubtful: Mapping[str, int],
    ) -> None:
        self.table = table
        self.openings = openings_beside(table, cluster.nodes.by_id.values(), coming)
        self.minima = self._below_minimum()
        self.expected = {
            each.name: max(coming.get(each.name, 0) - doubtful.get(each.name, 0), 0) + self.minima.get(each.name, 0)
            for each in table.types
        }
        self.late: NodeSet = 0
        inside = any(demand.request.cluster is not None for demand in waiting.work)
        inside = inside or bool(waiting.clusters or waiting.degraded)
        inside = inside or any(group.request.cluster is not None for group in waiting.groups)
        ruled = any(has_rules(demand) for demand in waiting.work) or (bool(cluster.refusals) and bool(waiting.work))
        # Machines of a type that cannot be had now are nodes of the copy: as a type it holds nothing.
        tardy = any(self.expected.get(name) for name in table.resting)
        self.copied = inside or ruled or bool(waiting.groups) or tardy
        self.cluster = twin_of(cluster, shares=inside) if self.copied else cluster
        self.enlarger = Enlarger(self.cluster, self.openings, table.at_hand)
        if self.copied:
            self.cluster.types = table
            self._add_expected()
            for name, count in preset.items():
                for _ in range(count):
                    self.enlarger.add(name)
        self._tenants: dict[int, Tenants] = {}
        self._filled: list[tuple[str, int, Tenants]] = []
        self._awaited: dict[str, int] = {}
        self._answers: list[Answer] = []
        self._held: dict[str, str] = {}

    @property
    def new(self) -> NodeSet:
        """Return the machines of the copy that are to be started."""
        return self.enlarger.made

    @property
    def spare(self) -> NodeSet:
        """Return those of them that nobody is on yet."""
        spare = self.new
        for number in self._tenants:
            spare &= ~(1 << number)
        return spare

    def add_tenant(self, number: int, party: Party, count: int) -> None:
        """Write down that a node of the copy takes so many of a party."""
        self._tenants.setdefault(number, []).append((party, count))

    def fill(self, name: str, times: int, tenants: Tenants) -> None:
        """Write down that so many machines of a type are started, each for these."""
        self._filled.append((name, times, tenants))

    def await_(self, name: str, times: int) -> None:
        """Write down that so many machines that are on their way are needed; they are no nodes of a copy."""
        self._awaited[name] = self._awaited.get(name, 0) + times

    def answer(self, answer: Answer) -> None:
        self._answers.append(answer)

    def by_type(self, nodes: NodeSet) -> dict[str, int]:
        """Return how many of these nodes are of each type."""
        counts: dict[str, int] = {}
        for number in members(nodes):
            name = self.cluster.nodes.at(number).node_type
            counts[name] = counts.get(name, 0) + 1
        return counts

    def hold(self, nodes: NodeSet, party: Party) -> None:
        """Write down that nodes that are there are kept for a whole that waits for others."""
        for number in members(nodes):
            self._held.setdefault(self.cluster.nodes.at(number).node_id, party.name)

    def finish(self) -> Plan:
        """Return the plan. Machines that nobody is on are not started."""
        counts: dict[tuple[str, tuple[tuple[Party, int], ...]], int] = {}
        for name, count in self.minima.items():
            counts[name, ((Party(TYPE, name, f"the minimum of type {name}"), 1),)] = count
        for number in members(self.new):
            tenants = self._tenants.get(number)
            if tenants:
                key = (self.cluster.nodes.at(number).node_type, tuple(_summed(tenants)))
                counts[key] = counts.get(key, 0) + 1
        for name, times, tenants in self._filled:
            key = (name, tuple(_summed(tenants)))
            counts[key] = counts.get(key, 0) + times
        used = 0
        for number in self._tenants:
            used |= 1 << number
        awaited = self.by_type(used & self.late)
        for name, times in self._awaited.items():
            awaited[name] = awaited.get(name, 0) + times
        # Machines below a type's minimum come anyway, so they are the first to be counted on.
        awaited = {name: count - self.minima.get(name, 0) for name, count in awaited.items()}
        return Plan(
            starts=tuple(Start(name, count, parties) for (name, parties), count in counts.items()),
            answers=tuple(self._answers),
            awaited={name: count for name, count in sorted(awaited.items()) if count > 0},
            held=self._held,
        )

    def _below_minimum(self) -> dict[str, int]:
        """Return how many machines types lack to their minima, as far as more may be, and count them as there."""
        lacking: dict[str, int] = {}
        for each in self.table.types:
            lack = each.least - self.openings.counts[each.name]
            if self.openings.all is not None:
                lack = min(lack, self.openings.all)
            if lack > 0 and each.name not in self.table.resting:
                lacking[each.name] = lack
                self.openings.take(each.name, lack)
        return lacking

    def _add_expected(self) -> None:
        for each in self.table.types:
            for index in range(self.expected[each.name]):
                name = f"~{each.name}/{index + 1}"
                node = self.cluster.add_node(name, each.resources, each.labels, each.taints, each.name)
                self.late |= 1 << node.number


def _summed(tenants: Tenants) -> Tenants:
    counts: dict[Party, int] = {}
    for party, count in tenants:
        counts[party] = counts.get(party, 0) + count
    return list(counts.items())
