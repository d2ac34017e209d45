"""Virtual clusters: who owns them, what they want, and what of it is remembered.

The kernel decides how shares are divided; here they are created for jobs, grow for what waits, shrink when idle and end with
their owner. What a share is used for is observed, never told: nothing is asked on the way of a task.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable
from math import inf

from remora.controller.cluster_memory import CLOSED, Berth, Record, encode, restore, stamp, stored
from remora.controller.returned import Returned
from remora.errors import UnknownNameError
from remora.kernel import shares
from remora.kernel.calling_back import Place, call_back
from remora.kernel.cycle import Scheduler
from remora.kernel.observing import bring_along, grow_for, observe_use, own_total
from remora.kernel.reserving import leave
from remora.kernel.tree import QUEUED, READY, VCluster
from remora.model.groups import GroupRequest
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, MEMORY, UNIT, Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import VirtualCluster
from remora.seam.port import NodeView, Port
from remora.wire.classes import ClassSpec, cluster_key
from remora.wire.tokens import (
    berth_id,
    counts_for,
    is_part,
    share_of_token,
)

Note = Callable[[str, str, str], None]
Units = dict[str, int]

_COOL_SECONDS = 30.0
_KEPT_SECONDS = 600.0
_LINGER_SECONDS = 0.5
_ASKED_SECONDS = 30.0
_QUIET_SECONDS = 3.0  # what waits is reported once a second


class Clusters:
    def __init__(self, port: Port, scheduler: Scheduler, returned: Returned, note: Note, now: Callable[[], float]) -> None:
        self._port = port
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._returned = returned
        self._note = note
        self._now = now
        self.records: dict[str, Record] = {}
        self._cooling: dict[str, float] = {}
        self._seen: set[str] = set()  # the names that stand on any node
        self.called_back: dict[Place, Units] = {}
        self._asked: dict[str, tuple[list[tuple[ClassSpec, Resources, int]], float]] = {}  # room that was asked for, until when
        self._used: dict[tuple[str, str], Units] = {}  # by cluster and node: what its work holds, in the last report
        self.overdrawn: Collection[str] = ()  # clusters of which nothing may start

    # What owners ask

    def create(
        self, spec: VirtualCluster, parent_id: str | None, job_id: str, priority: int, tolerations: Tolerations, idle: float
    ) -> Record:
        """Reserved, or queued; raises when it can never be."""
        parent = self.get(parent_id).vcluster if parent_id is not None else None
        vcluster = self._scheduler.create_cluster(spec, parent, priority, tolerations, self._free_id())
        record = self.records[vcluster.cluster_id] = Record(vcluster, job_id, idle, self._now())
        self._note("cluster", vcluster.cluster_id, "ready" if vcluster.state == READY else f"queued: {self.why(record)}")
        return record

    def enclose(self, request: GroupRequest, job_id: str, ask: str) -> Record | None:
        """A placement group in one of them, as one of its own: reserved, or not at all. ``request`` has one option."""
        parent = self.get(request.cluster or "")
        if parent.vcluster.state != READY:
            return None
        name = functools.partial(berth_id, parent.vcluster.cluster_id)
        vcluster = self._scheduler.enclose(request, parent.vcluster, self._free_id(name))
        if vcluster is None:
            return None
        parent.busy_at = now = self._now()
        record = self.records[vcluster.cluster_id] = Record(vcluster, job_id, 0.0, now, Berth(ask, now))
        return record

    def berths(self) -> list[tuple[Record, Berth]]:
        return [(record, record.berth) for record in self.records.values() if record.berth is not None]

    def get(self, cluster_id: str) -> Record:
        record = self.records.get(cluster_id)
        if record is None:
            some = ", ".join(sorted(self.records)[:3]) or "none"
            raise UnknownNameError(f"there is no virtual cluster {cluster_id!r}: the live ones are {some}")
        return record

    def close(self, cluster_id: str, *, unused: bool) -> None:
        """Its owner needs it no more. What it still does goes on; once that is done everything is returned."""
        record = self.records.get(cluster_id)
        if record is None:
            return
        if record.berth is not None:
            return  # it ends with its group
        for child in list(record.vcluster.children.values()):
            self.close(child.cluster_id, unused=unused)
        if record.vcluster.state == QUEUED:
            self.remove(record, "left the queue")
            return
        record.vcluster.closing = True
        record.busy_at = self._now()
        if (
            unused
            and not record.vcluster.children
            and not any(self._used_on(cluster_id, each) for each in self._numbers(record))
        ):
            self.remove(record, "closed")

    def job_ended(self, job_id: str) -> None:
        for record in [record for record in self.records.values() if record.job_id == job_id]:
            if record.vcluster.cluster_id in self.records:
                if record.berth is not None:
                    record.berth.since = -inf  # whoever was about to create its group will not
                    continue
                record.job_id = ""
                self.close(record.vcluster.cluster_id, unused=False)

    def offer(self, cluster_id: str | None) -> None:
        """Something of it is about to be offered to work, which may be queued from then on."""
        record = self.records.get(cluster_id or "")
        if record is not None:
            record.offered = True

    def want(self, spec: ClassSpec, demand: Resources, count: int) -> bool:
        """So many of this are waiting, or on their way; whether anything grew."""
        record = self.records.get(spec.cluster or "")
        if record is None or record.vcluster.state != READY:
            return False
        record.busy_at = self._now()
        if any(name in owed for owed in self.called_back.values() for name in demand):
            return False  # somebody waits for its minimum: nobody takes more before
        return self._grow(record, spec.choices, demand, count)

    def request(self, cluster_id: str, asked: list[tuple[ClassSpec, Resources, int]]) -> bool:
        """There should be room for all of this together, with what runs already; whether anything grew. What cannot be had now
        is tried for a while: whoever asks for room asks rarely."""
        self._asked[cluster_id] = asked, self._now() + _ASKED_SECONDS
        return self._fulfil(cluster_id, asked)

    def _fulfil(self, cluster_id: str, asked: list[tuple[ClassSpec, Resources, int]]) -> bool:
        used: Units = {}
        groups = [record.vcluster for record, _ in self.berths() if record.vcluster.parent is self.records[cluster_id].vcluster]
        mine = {cluster_id, *(each.cluster_id for each in groups)}
        for owner, node_id in self._used:
            if owner in mine:
                for name, units in self.running(owner, node_id).items():
                    shares.bump(used, name, units)
        grew = False
        for spec, demand, count in asked:
            there = min([count, *(used.get(name, 0) // units for name, units in demand.pairs if units)])
            for name, units in demand.pairs:
                used[name] = used.get(name, 0) - there * units
            grew |= count > there and self.want(spec, demand, count - there)
        return grew

    # What the cluster tells

    def observe(self, views: Collection[NodeView], held: Callable[[str, str], float]) -> None:
        """How much of every share is in use."""
        self._used.clear()
        self._seen.clear()
        for view in views:
            for name, total in view.total.items():
                found = share_of_token(name)
                if found is None:
                    continue
                owner, resource = found
                self._seen.add(counts_for(owner))
                if counts_for(owner) in self.records and not is_part(owner):
                    units = round((total - view.available.get(name, 0.0) - held(view.node_id, name)) * UNIT)
                    if units > 0:
                        shares.bump(self._used.setdefault((counts_for(owner), view.node_id), {}), resource, units)
        self._returned.forget(view.node_id for view in views)
        for record in self.records.values():
            cluster_id = record.vcluster.cluster_id
            if record.state == CLOSED and any(self._used_on(cluster_id, number) for number in self._numbers(record)):
                record.busy_at = self._now()
            for number in self._numbers(record):
                observe_use(record.vcluster, number, self.running(cluster_id, self.node_id(number)))

    def may_have_work(self, cluster_id: str) -> bool:
        """Whether anything may be queued that wants its share: not once it is closed and has given everything back, and nothing
        was seen to wait for a while."""
        record = self.records.get(cluster_id)
        if record is None:
            return False
        is_quiet = not record.job_id or self._now() - record.busy_at > _QUIET_SECONDS
        return self.has_something(record) or not is_quiet

    def has_something(self, record: Record) -> bool:
        """Not once it is closed and has given everything back."""
        return record.state != CLOSED or any(record.vcluster.vnodes())

    def running(self, cluster_id: str, node_id: str) -> Units:
        """What its work uses of a node, without what waits in ``ray.get``."""
        used = self._used.get((cluster_id, node_id))
        if not used:
            return {}
        back = self._returned.on(cluster_id, node_id)
        return {name: max(units - back.get(name, 0), 0) for name, units in used.items()}

    def taken(self, node_id: str) -> tuple[Resources, Resources]:
        """What virtual clusters have of a node, used or not; and what of it their work uses."""
        number = self._cluster.nodes.by_id[node_id].number if node_id in self._cluster.nodes.by_id else -1
        taken, used = EMPTY, EMPTY
        for record in self.records.values():
            if record.vcluster.parent is None:
                share, running = self._subtree(record.vcluster, number, node_id)
                taken += Resources({name: max(share.get(name, 0), running.get(name, 0)) for name in {*share, *running}})
                used += running
        return taken, used

    def tend(self, waiting: Iterable[tuple[ClassSpec, Resources, int]], loose: dict[int, Units]) -> None:
        """Grow for what waits, return what is idle, let go of what is done. ``loose`` is what work in no virtual cluster uses,
        by node."""
        self._call_back(loose)
        for spec, demand, count in waiting:
            self.want(spec, demand, count)
        for cluster_id, (asked, until) in list(self._asked.items()):
            record = self.records.get(cluster_id)
            if record is None or record.state == CLOSED or until < self._now():
                del self._asked[cluster_id]
            else:
                self._fulfil(cluster_id, asked)
        self._grow_for_the_line()
        for record in [record for record in self.records.values() if record.berth is None]:
            idle_for = self._now() - record.busy_at
            if record.state == CLOSED:
                if idle_for > (_LINGER_SECONDS if record.job_id else 0.0):
                    self._finish(record, idle_for)
            elif record.state == READY and idle_for > (0.0 if self.called_back else record.idle_seconds):
                shares.trim(self._cluster, record.vcluster)
        if self.called_back:
            self._scheduler.settle()

    def allowed(self, cluster_id: str, node_id: str) -> Units:
        """What a cluster's own work may use of a node, once what is called back is gone."""
        number = self._cluster.nodes.by_id[node_id].number
        less = self.called_back.get((cluster_id, number), {})
        return {name: units - less.get(name, 0) for name, units in self.share(cluster_id, node_id).items()}

    # What steering needs

    def cap(self, cluster_id: str, name: str) -> int | None:
        """The most that a cluster and all below it may have of a resource, over all nodes."""
        vcluster = self.records[cluster_id].vcluster
        limit = vcluster.spec.limit(name)
        if limit is None:
            return None
        fixed = sum(vnode.total.get(name, 0) for vnode in vcluster.fixed if vnode is not None)
        # A minimum was reserved, and a cluster that closes keeps what it uses.
        return fixed + max(limit, vcluster.flex_total.get(name, 0))

    def share(self, cluster_id: str, node_id: str) -> Units:
        """What a cluster's own work may use of a node."""
        number = self._cluster.nodes.by_id[node_id].number
        own: Units = {}
        for vnode in self.records[cluster_id].vcluster.vnodes():
            if vnode.node == number:
                for name in vnode.total:
                    shares.bump(own, name, own_total(vnode, name))
        return own

    # Memory

    def save(self) -> None:
        """Before any token is raised: what was promised is known to whoever comes after us."""
        for cluster_id, record in self.records.items():
            saved_as = stamp(record)
            if saved_as is not None and saved_as == record.saved_as:
                continue
            data = encode(record, self.node_id)
            if data != record.saved:
                self._port.put(cluster_key(cluster_id), data)
                record.saved = data
            record.saved_as = saved_as

    def remember(self) -> None:
        """What a controller before us had given."""
        for cluster_id, data in stored(self._port):
            self.records[cluster_id] = restore(self._scheduler, self.records, cluster_id, data, self._now())
        self._scheduler.mend()

    def why(self, record: Record) -> str:
        return self._scheduler.explain(record.vcluster).reason if record.state == QUEUED else ""

    def position(self, record: Record) -> int:
        """Its place in the queue of those with the same parent; 0 when it does not wait."""
        rivals = [queued for queued in self._scheduler.queue if queued.parent is record.vcluster.parent]
        return rivals.index(record.vcluster) + 1 if record.vcluster in rivals else 0

    # The rest

    def _call_back(self, loose: dict[int, Units]) -> None:
        """For the first in the queue that would be helped by it."""
        asked = (call_back(self._cluster, vcluster, loose) for vcluster in self._scheduler.queue)
        found = next((each for each in asked if each is not None), {})
        for cluster_id, number in found.keys() - self.called_back.keys():
            what = f"{cluster_id or 'work in no virtual cluster'} on {self.node_id(number)[:12]}"
            self._note("cluster", cluster_id or "", f"{what} starts nothing new: a minimum is owed to somebody else")
        self.called_back = found

    def _grow_for_the_line(self) -> None:
        """Who stands in line has its place already, and needs the share there."""
        if self.called_back:
            return
        for each in self._returned.line():
            record = self.records.get(each.cluster_id)
            if record is not None and each.amounts.pairs and each.node_id in self._cluster.nodes.by_id:
                record.busy_at = self._now()  # or what is made for them would be taken back as idle
                here = NodeClass(LabelSelector(), record.vcluster.tolerations, (), each.node_id)
                self._grow(record, (here,), each.amounts, 1)

    def _grow(self, record: Record, choices: tuple[NodeClass, ...], demand: Resources, count: int) -> bool:
        before = record.vcluster.flex_total.copy()
        grow_for(self._cluster, record.vcluster, choices, demand, count)
        if MEMORY in demand and not record.vcluster.spec.names(MEMORY):
            bring_along(self._cluster, record.vcluster, MEMORY)
        grew = record.vcluster.flex_total != before
        if grew:
            self._note("cluster", record.vcluster.cluster_id, f"grew to {Resources(record.vcluster.flex_total)!r}")
        return grew

    def _finish(self, record: Record, idle_for: float) -> None:
        """A closed one gives back each node on which nothing of it runs any more."""
        vcluster = record.vcluster
        done = not record.job_id
        vcluster.spec = vcluster.spec.without_minimum()
        shares.trim(self._cluster, vcluster)
        inside = {vnode.node for child in vcluster.children.values() for vnode in child.vnodes()}
        for number in self._numbers(record) - inside:
            if not self._used_on(vcluster.cluster_id, number):
                leave(self._cluster, vcluster, number)
        if not any(vcluster.vnodes()):
            # Work that was waiting for something else may still come: it gets what it needs, and nothing is kept for it.
            vcluster.spec, vcluster.fixed = vcluster.spec.relaxed(), []
        if not any(vcluster.vnodes()) and not vcluster.children and (done or idle_for > _KEPT_SECONDS):
            self.remove(record, "gone")

    def remove(self, record: Record, what: str = "") -> None:
        cluster_id = record.vcluster.cluster_id
        self._scheduler.destroy_cluster(record.vcluster)
        del self.records[cluster_id]
        self._port.put(cluster_key(cluster_id), None)
        if record.berth is None:  # what is called after a berth ended before it
            self._cooling[cluster_id] = self._now() + _COOL_SECONDS
        if what:
            self._note("cluster", cluster_id, what)

    def _free_id(self, name: Callable[[int], str] = "vc{}".format) -> str:
        """Names are used again, after a while: Ray never forgets a kind of task, and each name makes new kinds."""
        now = self._now()
        for cluster_id in [each for each, until in self._cooling.items() if until < now]:
            del self._cooling[cluster_id]
        taken = {*self.records, *self._cooling, *self._seen}
        return next(free for number in itertools.count(1) if (free := name(number)) not in taken)

    def reserved(self, vcluster: VCluster) -> None:
        """One that waited, or had lost nodes, has its minimum."""
        if vcluster.cluster_id in self.records:
            self._note("cluster", vcluster.cluster_id, "its minimum is reserved")

    def _subtree(self, vcluster: VCluster, number: int, node_id: str) -> tuple[Units, Resources]:
        """The share of a cluster on a node, and what it and all below it use there."""
        share: Units = {}
        for vnode in vcluster.vnodes():
            if vnode.node == number:
                for name, units in vnode.total.items():
                    shares.bump(share, name, units)
        running = Resources(self.running(vcluster.cluster_id, node_id))
        for child in vcluster.children.values():
            running += self._subtree(child, number, node_id)[1]
        return share, running

    def _used_on(self, cluster_id: str, number: int) -> bool:
        return bool(self._used.get((cluster_id, self.node_id(number))))

    def _numbers(self, record: Record) -> set[int]:
        return {vnode.node for vnode in record.vcluster.vnodes()}

    def node_id(self, number: int) -> str:
        return self._cluster.nodes.at(number).node_id
