"""Who may be with whom on a machine that is not there yet: asked of the rules, on nodes with nothing else on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remora.kernel.placing.placement import screened
from remora.kernel.provisioning.demands import Demand
from remora.kernel.rules import Query
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.workloads import Host, Workload
from remora.model.resources import EMPTY


def has_rules(demand: Demand) -> bool:
    """Return whether what is placed on a node decides whether it may go there."""
    return demand.request.ruled


class Company:
    """For each of some demands: ``apart``, those (perhaps itself) that may not be on one node with it; ``beside``, None when it
    may be alone on a node, else those of which one has to be there first. Both are bit sets of demands."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.apart: list[int] = [0] * len(demands)
        self.beside: list[int | None] = [None] * len(demands)
        if not any(has_rules(demand) for demand in demands):
            return
        # One node for each of them, on which it is alone, and the last one empty.
        self._demands = demands
        self._cluster = Cluster()
        for number, demand in enumerate(demands):
            self._cluster.add_node(str(number), EMPTY)
            self._put(demand, number)
        self._empty = 1 << self._cluster.add_node("empty", EMPTY).number
        for number, demand in enumerate(demands):
            if has_rules(demand):
                self._ask(number, demand)

    @property
    def concerned(self) -> int:
        """Return the demands that have rules about others here, or that others have rules about, as a bit set."""
        found = 0
        for number, apart in enumerate(self.apart):
            beside = self.beside[number]
            found |= 1 << number if apart or beside is not None else 0
            found |= beside or 0
        return found

    def _ask(self, number: int, demand: Demand) -> None:
        admitted = self._admitted(demand)
        alike = 0
        if not admitted & self._empty:
            self.beside[number] = admitted
            if not admitted:
                return
            # Whom it does not bear shows only where somebody is whom it needs.
            partner = self._demands[next(members(admitted))]
            added = [self._put(partner, each) for each in range(len(self._demands))]
            admitted = self._admitted(demand)
            for workload in added:
                self._cluster.release(workload)
            alike = 1 << next(members(self.beside[number] or 0))
        for other in range(len(self._demands)):
            if not admitted >> other & 1 and not alike >> other & 1:
                self.apart[number] |= 1 << other
                self.apart[other] |= 1 << number

    def _admitted(self, demand: Demand) -> NodeSet:
        request = replace(demand.request, cluster=None)  # there are no virtual clusters here
        return screened(self._cluster, Query(request, request.choices[0], demand.labels, demand.workload_id))

    def _put(self, demand: Demand, number: int) -> Workload:
        """Place one of them on a node, as far as the rules look at it."""
        request = replace(demand.request, resources=EMPTY, demand=EMPTY, cluster=None)
        known_as = demand.workload_id or f"demand {id(demand)}"
        workload = Workload(
            known_as if known_as not in self._cluster.placed else f"{known_as}@{number}", request, demand.labels
        )
        self._cluster.place(workload, Host(None, number, None))
        return workload
