"""How virtual clusters grow for what waits, give back what is idle, and end.

The kernel decides how shares are divided. What a share is used for is observed, never told: nothing is asked on the way of a
task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.controller.assumed import Assumed
from remora.controller.clusters.coming import Coming, Wants
from remora.controller.clusters.lending import Lending
from remora.controller.clusters.records import CLOSED, Record
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.use import Use
from remora.controller.context import Context
from remora.controller.tokens.book import Units
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.reserving import vacate
from remora.kernel.sharing.growth import Want, grow_for, grow_in_proportion
from remora.kernel.sharing.lowering import give_back_idle, use_less
from remora.kernel.sharing.reclaim import Place, reclaim
from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import READY
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY, MEMORY, UNIT, Resources
from remora.model.selectors import LabelSelector
from remora.port.contract import Demand
from remora.wire.classes import ClassSpec
from remora.wire.tokens import class_of_token, cluster_of_class, is_real

_KEPT_SECONDS = 600.0
"""So long a closed cluster serves late work, which waited for something else; unless its job has ended."""

_LINGER_SECONDS = 0.5
QUIET_SECONDS = 3.0
"""What waits is reported once a second: when none was seen for this long, nothing is queued."""

_REQUEST_SECONDS = 30.0
_CLUSTER = "virtual cluster"


class Growing:
    def __init__(
        self, context: Context, scheduler: Scheduler, registry: Registry, use: Use, lending: Lending, assumed: Assumed
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._registry = registry
        self._use = use
        self._lending = lending
        self._assumed = assumed
        self._began = 0.0  # the last round
        self._reclaimed: dict[Place, Units] = {}
        self._lowered: dict[Place, Units] = {}
        self._waited_in: set[str | None] = set()  # clusters in which work with a lease waits
        self._coming = Coming(context)
        self._requests: dict[str, tuple[list[Wants], float]] = {}  # room that was asked for, until when

    @property
    def reclaimed(self) -> Mapping[Place, Units]:
        """What has to come back for the minimum of the first that would be helped by it, and of those that come down to a lower
        maximum."""
        if not self._lowered:
            return self._reclaimed
        both = {place: dict(units) for place, units in self._reclaimed.items()}
        for place, units in self._lowered.items():
            known = both.setdefault(place, {})
            known |= {name: max(known.get(name, 0), amount) for name, amount in units.items()}
        return both

    @property
    def owed(self) -> set[str]:
        """The resources that are owed to somebody's minimum: nobody takes more of them before."""
        return {name for owed in self._reclaimed.values() for name in owed}

    @property
    def settled(self) -> bool:
        closing = (record for record in self._registry.records.values() if record.state == CLOSED)
        return not self._reclaimed and not self._lowered and not any(any(record.vcluster.vnodes()) for record in closing)

    # What owners and workers say

    def offer(self, cluster_id: str | None, demand: Resources = EMPTY) -> None:
        """Something of a cluster is about to be offered to work: from now on tasks may be queued at raylets for its share, so
        its tokens must be held rather than removed."""
        record = self._registry.records.get(cluster_id or "")
        if record is not None:
            record.offered = True
            record.saw(demand)

    def hear(self, asked: list[Wants]) -> None:
        """All of this is on its way. What was so a moment ago finds room beside it: no report shows yet that it has taken what
        looks idle."""
        for cluster_id in dict.fromkeys(spec.cluster for spec, _, _ in asked):
            mine = [each for each in asked if each[0].cluster == cluster_id]
            self.want(cluster_id, [*mine, *self._coming.of(cluster_id)])
        self._coming.add(asked)

    def want(self, cluster_id: str | None, wants: list[Wants]) -> bool:
        """All of this, which is in one cluster, is waiting or on its way. Return whether the cluster grew for it."""
        record = self._registry.records.get(cluster_id or "")
        if record is None or record.vcluster.state != READY:
            return False
        for _, demand, _ in wants:
            record.saw(demand)
        record.busy_at = self._context.now()
        owed = self.owed
        return self._grow(record, [(spec.choices, demand, count) for spec, demand, count in wants if owed.isdisjoint(demand)])

    def request(self, cluster_id: str, asked: list[Wants]) -> bool:
        """There should be room for all of this together, with what runs already. Return whether the cluster grew. What cannot
        be had now is tried for a while: whoever asks for room asks rarely."""
        self._registry.get(cluster_id)
        self._requests[cluster_id] = asked, self._context.now() + _REQUEST_SECONDS
        return self._fulfil(cluster_id, asked)

    # In a round

    def tend(self, demands: Iterable[Demand], classes: Mapping[str, ClassSpec]) -> None:
        """Grow for what waits, return what is idle, let go of what is done."""
        self._began = self._context.now()
        self._coming.forget()
        self._reclaim()
        self._lower()
        for spec, demand, count in _waiting_in_clusters(demands, classes):
            with self._context.aside.care_of(_CLUSTER, spec.cluster or "", "growing"):
                self.want(spec.cluster, [(spec, demand, count)])
        for cluster_id, (asked, until) in list(self._requests.items()):
            record = self._registry.records.get(cluster_id)
            if record is None or record.state == CLOSED or until < self._context.now():
                del self._requests[cluster_id]
            else:
                with self._context.aside.care_of(_CLUSTER, cluster_id, "making room"):
                    self._fulfil(cluster_id, asked)
        self._grow_for_the_line()
        self._grow_for_starting()
        self._waited_in = {entry.cluster for entry in self._scheduler.waiting if isinstance(entry, Request)}
        for record in list(self._registry.records.values()):
            if record.group is None and record.cluster_id in self._registry.records:
                with self._context.aside.care_of(_CLUSTER, record.cluster_id):
                    self._tend(record)
        if self._reclaimed:
            self._scheduler.settle()

    def close(self, record: Record, *, unused: bool) -> None:
        """Give back at once what a closed cluster never used."""
        used = self._use.nodes_of(record.cluster_id) or self._assumed.is_in(record.cluster_id)
        if unused and not record.vcluster.children and not used and not self._registry.has_actors(record.cluster_id):
            self._registry.remove(record, "closed")

    # The rest

    def _tend(self, record: Record) -> None:
        now, is_used = self._context.now(), bool(self._use.nodes_of(record.cluster_id))
        if is_used:
            record.used_at = now
        is_starting = self._assumed.is_in(record.cluster_id)
        if is_starting or record.cluster_id in self._waited_in:
            record.busy_at = now
        idle_for = now - record.busy_at
        if record.state == CLOSED:
            patience = 0.0 if not record.job_id else QUIET_SECONDS if is_used else _LINGER_SECONDS
            if idle_for >= patience and not is_starting:  # what it needs to start may lie idle until then
                self._finish(record, now - max(record.busy_at, record.used_at))
        elif record.state == READY and record.vcluster.idle:
            is_idle = idle_for > record.idle_seconds and record.busy_at < self._began  # or it has just grown for what waits
            if is_idle or self._reclaimed:  # what a minimum is owed of is kept for nobody that waits
                shares.trim_one(self._cluster, record.vcluster)  # those above it have their own patience

    def _finish(self, record: Record, idle_for: float) -> None:
        """Give back what a closed cluster does not use: what is idle of each node, and fixed-size ones on which nothing of it
        runs any more."""
        vcluster = record.vcluster
        if vcluster.spec.flexible_resource_min:
            vcluster.spec = vcluster.spec.without_minimum()
            self._registry.changed(record)
        shares.trim_one(self._cluster, vcluster)
        inside = {vnode.node for child in vcluster.children.values() for vnode in child.vnodes()}
        for number in {vnode.node for vnode in vcluster.vnodes()} - inside:
            node_id = self._cluster.nodes.at(number).node_id
            if node_id not in self._use.nodes_of(record.cluster_id):
                vacate(self._cluster, vcluster, number)
        if any(vcluster.vnodes()):
            return
        if vcluster.fixed:
            # Work that was waiting for something else may still come: it gets what it needs, and nothing is kept for it.
            vcluster.spec, vcluster.fixed = vcluster.spec.relaxed(), []
            self._registry.changed(record)
        late = record.job_id and idle_for <= _KEPT_SECONDS
        if not vcluster.children and not late and not self._registry.has_actors(record.cluster_id):
            self._registry.remove(record, "gone")

    def _reclaim(self) -> None:
        """Find out who has to use less for the first that would be helped by it: of those that lost a node, or of the queue."""
        owed = (*self._scheduler.degraded, *self._scheduler.queue)
        beyond = self._use.beyond_shares() if owed else {}
        found: dict[Place, Units] = {}
        for vcluster in owed:
            with self._context.aside.care_of(_CLUSTER, vcluster.cluster_id, "reclaiming"):
                found = reclaim(self._cluster, vcluster, beyond) or {}
            if found:
                break
        for cluster_id, number in found.keys() - self._reclaimed.keys():
            what = f"{cluster_id or 'work in no virtual cluster'} on {self._cluster.nodes.at(number).node_id[:12]}"
            self._context.note("cluster", cluster_id or "", f"{what} starts nothing new: a minimum is owed to somebody else")
        self._reclaimed = found

    def _lower(self) -> None:
        """Bring those down that have more than their new maximum: what is idle at once, the rest as their work ends."""
        self._lowered = {}
        for record in list(self._registry.records.values()):
            if record.goal:
                with self._context.aside.care_of(_CLUSTER, record.cluster_id, "lowering"):
                    over = give_back_idle(self._cluster, record.vcluster, record.goal)
                    self._registry.lower(record)
                    self._lowered |= use_less(record.vcluster, over)
                    if not record.goal:
                        self._context.note("cluster", record.cluster_id, "has come down to its maximum")

    def _fulfil(self, cluster_id: str, asked: list[Wants]) -> bool:
        used: Units = {}
        for account in [cluster_id, *(record.cluster_id for record in self._registry.groups_in(cluster_id))]:
            for node_id in self._use.nodes_of(account):
                for name, units in self._use.running(account, node_id).items():
                    shares.bump(used, name, units)
        grew = False
        for spec, demand, count in asked:
            there = min([count, *(used.get(name, 0) // units for name, units in demand.pairs if units)])
            for name, units in demand.pairs:
                used[name] = used.get(name, 0) - there * units
            grew |= count > there and self.want(spec.cluster, [(spec, demand, count - there)])
        return grew

    def _grow_for_the_line(self) -> None:
        """Who waits for admission has its place already, and needs the share there."""
        if self._reclaimed or not self._lending:
            return
        for waiter in self._lending.line():
            record = self._registry.records.get(waiter.cluster_id)
            if record is not None and waiter.amounts.pairs and waiter.node_id in self._cluster.nodes.by_id:
                record.busy_at = self._context.now()  # or what is made for them would be taken back as idle
                here = NodeClass(LabelSelector(), record.vcluster.tolerations, (), waiter.node_id)
                with self._context.aside.care_of(_CLUSTER, record.cluster_id, "growing for who waits"):
                    self._grow(record, [((here,), waiter.amounts, 1)])

    def _grow_for_starting(self) -> None:
        """What was decided, and needs more to be placed than it holds while it lives, finds that much of its share: Ray's
        default actors need a CPU to be placed."""
        if self._reclaimed:
            return
        for entry in self._assumed.entries():
            record = self._registry.records.get(entry.cluster_id or "")
            request = entry.request
            if record is not None and request.demand != request.resources and entry.live_since is None:
                here = NodeClass(LabelSelector(), request.tolerations, (), entry.node_id)
                with self._context.aside.care_of(_CLUSTER, record.cluster_id, "growing for what starts"):
                    self._grow(record, [((here,), request.demand, 1)])

    def _grow(self, record: Record, wants: list[Want]) -> bool:
        before = record.vcluster.flex_total.copy()
        grow_for(self._cluster, record.vcluster, wants)
        if any(MEMORY in demand for _, demand, _ in wants) and not record.vcluster.spec.names(MEMORY):
            grow_in_proportion(self._cluster, record.vcluster, MEMORY)
        grew = record.vcluster.flex_total != before
        if grew:
            self._context.note("cluster", record.cluster_id, f"grew to {Resources(record.vcluster.flex_total)!r}")
        return grew


def _waiting_in_clusters(demands: Iterable[Demand], classes: Mapping[str, ClassSpec]) -> list[Wants]:
    """Return what waits for a share, of everything that waits. Placement groups have shares of their own."""
    found = []
    for demand in demands:
        class_id = next((each for name in demand.shape if (each := class_of_token(name)) is not None), "")
        if not demand.bundles and class_id in classes and cluster_of_class(class_id) is not None:
            real = Resources({name: round(amount * UNIT) for name, amount in demand.shape.items() if is_real(name)})
            found.append((classes[class_id], real, demand.count))
    return found
