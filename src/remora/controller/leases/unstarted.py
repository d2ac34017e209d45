"""Leases that were decided and have not started: what they lack on their node, and whether another would take them."""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.assumed import Assumed
from remora.controller.context import Context
from remora.controller.leases.lease_table import Lease
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.placement import decide
from remora.kernel.state.workloads import Host
from remora.model.resources import UNIT
from remora.port.contract import NodeView
from remora.wire.owners import owner_of


class Unstarted:
    """``changed`` is told of every lease that goes to another node."""

    def __init__(self, context: Context, scheduler: Scheduler, assumed: Assumed, changed: Callable[[Lease], None]) -> None:
        self._context = context
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._assumed = assumed
        self._changed = changed

    def lacks(self, lease: Lease, view: NodeView | None) -> dict[str, int]:
        """Return what others have taken, by its report, of a node that a lease was decided on, so that it cannot start there
        yet; nothing when it can, or has begun to."""
        entry = self._assumed.get(lease.slot)
        if view is None or (entry is not None and entry.is_starting):
            return {}
        lacking: dict[str, int] = {}
        for name, units in lease.workload.request.demand.pairs:
            free = round(view.available.get(name, 0.0) * UNIT)
            if lease.cluster_id is not None:
                free = min(free, round(view.available.get(owner_of(lease.cluster_id).token(name), 0.0) * UNIT))
            if free < units:
                lacking[name] = units - max(free, 0)
        return lacking

    def try_elsewhere(self, lease: Lease, view: NodeView | None) -> bool:
        """Decide again about something that has not begun to start, where its node has no room for it. Return whether it goes
        to another node."""
        workload = lease.workload
        if (lease.is_actor and not lease.actor_id) or not workload.placed or (view and not self.lacks(lease, view)):
            return False
        old, confirmed = workload.node, workload.confirmed
        at = workload.host or Host(None, old, None)
        self._cluster.release(workload)
        chosen = decide(self._cluster, workload.request, lease.ask.labels, workload.workload_id)
        if chosen is None:
            if confirmed:
                self._cluster.move(workload, old)
            else:
                self._cluster.put_back(workload, at)
            return False
        self._cluster.place(workload, chosen)
        if chosen.node == old:
            return False  # it stays, and its cluster grows there, if a controller before us died over that
        where = self._cluster.nodes.at(chosen.node).node_id
        self._context.note("lease", lease.actor_id or lease.slot, f"had no room in time, and goes to {where[:12]}")
        self._changed(lease)
        self._scheduler.settle()
        return True
