"""The plan: everything that waits is tried out on a copy of the cluster, to which machines are added as they are needed.

    1. machines on their way are there already, and so are those below a type's minimum
    2. virtual clusters that lost something, then those in the queue, in its order; each as a whole
    3. placement groups, each as a whole, in the order in which they came
    4. everything else, by kinds: first where there is room, then on new machines

Where wholes and work are asked for together they are also packed together, and that plan is taken if it needs less. In the end
all is tried once more with the new machines there from the start, as it will be when they have come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from remora.kernel.placing.enlarging import wanted_of
from remora.kernel.placing.stock import Stock
from remora.kernel.provisioning.demands import Waiting
from remora.kernel.provisioning.drafts import Draft
from remora.kernel.provisioning.plans import TYPE, Plan
from remora.kernel.provisioning.whole_planning import WholePlanner
from remora.kernel.provisioning.work_planning import WorkPlanner
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.type_table import TypeTable

_MOST_ROUNDS = 3


def plan(
    cluster: Cluster,
    waiting: Waiting,
    table: TypeTable,
    coming: Mapping[str, int] | None = None,
    doubtful: Mapping[str, int] | None = None,
) -> Plan:
    """Return which machines to start for what waits. ``coming`` are machines that were asked for and have not come, by type;
    of those the ``doubtful`` may never come: they count against the maxima, and nobody is to wait for them.

    The cluster is left as it is. Equal questions get equal answers.
    """
    on_the_way = _OnTheWay(coming or {}, doubtful or {})
    first = _Attempt(cluster, waiting, table, on_the_way)
    found = first.plan()
    if not first.draft.copied:
        return found
    together = first.packed_together()
    if together is not None and _weigh(table, together) < _weigh(table, _for_demand(found)):
        again = _Attempt(cluster, waiting, table, on_the_way, together)
        found = min(found, again.plan(), key=lambda each: _burden(table, each))
    return _settled(cluster, waiting, table, on_the_way, found)


class _OnTheWay(NamedTuple):
    coming: Mapping[str, int]
    doubtful: Mapping[str, int]


def _settled(cluster: Cluster, waiting: Waiting, table: TypeTable, on_the_way: _OnTheWay, found: Plan) -> Plan:
    """Return a plan that holds when all its machines are there from the start: whoever comes first may then lie elsewhere, and
    whoever comes later may need another machine for it."""
    for _ in range(_MOST_ROUNDS):
        there = _for_demand(found)
        found = _Attempt(cluster, waiting, table, on_the_way, there).plan()
        if _for_demand(found) == there:
            break
    return found


class _Attempt:
    """One way to plan: ``preset`` machines are started anyway, and left out again where nothing needs them."""

    def __init__(
        self,
        cluster: Cluster,
        waiting: Waiting,
        table: TypeTable,
        on_the_way: _OnTheWay,
        preset: Mapping[str, int] | None = None,
    ) -> None:
        self.waiting = waiting
        self.cluster = cluster
        self.table = table
        self.on_the_way = on_the_way
        self.draft = self._draft(preset or {})
        self.wholes = WholePlanner(self.draft)
        self.work = WorkPlanner(self.draft)

    def plan(self) -> Plan:
        self.wholes.plan_clusters(self.waiting)
        for group in self.waiting.groups:
            self.wholes.plan_group(group)
        self.work.plan(self.waiting.work)
        return self.draft.finish()

    def _draft(self, preset: Mapping[str, int]) -> Draft:
        return Draft(self.cluster, self.waiting, self.table, self.on_the_way.coming, preset, self.on_the_way.doubtful)

    def packed_together(self) -> dict[str, int] | None:
        """Return the machines that all would need if they were packed at once; None where there is nothing to be gained."""
        if not self.draft.new or len(self.wholes.served) + bool(self.work.asked) < 2:
            return None
        fresh = self._draft({})
        wanted = list(self.work.unplaced(fresh))
        for parts in self.wholes.served:
            wanted += wanted_of(fresh.cluster, self.table, parts, self.table.at_hand, len(wanted))
        stock = Stock(fresh.cluster, fresh.openings, wanted, fresh.late)
        packing = stock.pack()
        return packing.added(stock.bins)


def _for_demand(found: Plan) -> dict[str, int]:
    """Return the machines that a plan starts for what waits; those below a type's minimum are started anyway."""
    counts: dict[str, int] = {}
    for start in found.starts:
        if all(party.kind != TYPE for party, _ in start.parties):
            counts[start.node_type] = counts.get(start.node_type, 0) + start.count
    return counts


def _burden(table: TypeTable, each: Plan) -> tuple[Any, ...]:
    unserved = sum(answer.count - answer.served for answer in each.answers)
    return unserved, *_weigh(table, each.add)


def _weigh(table: TypeTable, counts: Mapping[str, int]) -> tuple[float, int, int]:
    """Return what machines cost, how many they are, and how large."""
    cost, size = 0.0, 0
    for name, count in counts.items():
        each = table.types.get(name)
        assert each is not None, name
        cost += (table.costs.get(name) or 0.0) * count
        size += sum(each.resources.values()) * count
    return cost, sum(counts.values()), size
