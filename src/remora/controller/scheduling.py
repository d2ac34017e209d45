"""The kernel's scheduler, where a lease or a virtual cluster that cannot be decided about is set aside and stops no other."""

from __future__ import annotations

from collections import deque

from remora.controller.context import Context
from remora.kernel.cycle import Scheduler
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Workload

LEASE, DECIDING = "lease", "deciding"
CLUSTER, RESERVING = "virtual cluster", "reserving"


class ContainedScheduler(Scheduler):
    """What failed is tried again after a moment; until then it stands in nobody's way, also not in the line of its equals."""

    def __init__(self, context: Context, seed: int) -> None:
        super().__init__(seed, trims=False)
        self._aside = context.aside

    def _first_placeable(self, line: deque[Workload]) -> Workload | None:
        if not self._aside:
            return super()._first_placeable(line)
        due = deque(each for each in line if self._aside.is_due(LEASE, each.workload_id, DECIDING))
        found = super()._first_placeable(due) if due else None
        if found is not None:
            line.remove(found)
        return found

    def _reserve(self, vcluster: VCluster) -> bool:
        cluster_id = vcluster.cluster_id
        if self._aside and not self._aside.is_due(CLUSTER, cluster_id, RESERVING):
            return False
        try:
            reserved = super()._reserve(vcluster)
        except Exception as error:  # noqa: BLE001 - one cluster that cannot be reserved stops no other
            self._aside.add(CLUSTER, cluster_id, error, RESERVING)
            return False
        if self._aside:
            self._aside.well(CLUSTER, cluster_id, RESERVING)
        return reserved

    def _holds_up(self, earlier: VCluster, later: VCluster) -> bool:
        if self._aside and not self._aside.is_due(CLUSTER, earlier.cluster_id, RESERVING):
            return False
        return super()._holds_up(earlier, later)

    def _try(self, workload: Workload) -> bool:
        try:
            placed = super()._try(workload)
        except Exception as error:  # noqa: BLE001 - one lease that cannot be decided about stops no other
            self._aside.add(LEASE, workload.workload_id, error, DECIDING)
            return False
        if self._aside:
            self._aside.well(LEASE, workload.workload_id, DECIDING)
        return placed
