"""Which virtual clusters there are and whose: made, queued, closed, named, remembered, removed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from remora.controller.clusters.records import GroupShare, Record, revive, stamp, to_body
from remora.controller.context import Context
from remora.controller.store import Store
from remora.controller.tokens.book import Book
from remora.errors import ConflictError, UnknownNameError
from remora.kernel.cycle import Scheduler
from remora.kernel.state.cluster_tree import QUEUED, READY, VCluster
from remora.kernel.state.workloads import Workload
from remora.model.groups import GroupRequest
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.fences import ROOT
from remora.wire.keys import CLUSTERS
from remora.wire.timing import CLAIM_SECONDS, COOL_SECONDS, GROUP_CREATED_SECONDS
from remora.wire.tokens import OF_GROUP

_NAMED = "vc"
"""What the names of virtual clusters begin with, before a number."""

_CONTROLLERS = 4
"""So many controllers, one after the other, give different names."""


class Registry:
    """``orphaned`` is told of clusters that are gone, and of workloads that were ended with them. ``generation`` tells the
    names that we give to the shares of placement groups from those of controllers just before us, which somebody may still be
    about to use."""

    def __init__(
        self,
        context: Context,
        scheduler: Scheduler,
        store: Store,
        book: Book,
        generation: int,
        orphaned: Callable[[str, list[Workload]], None],
    ) -> None:
        self._generation = generation
        self._context = context
        self._scheduler = scheduler
        self._store = store
        self._book = book
        self._orphaned = orphaned
        self._records: dict[str, Record] = {}
        self._by_ask: dict[str, str] = {}
        self._past: dict[str, tuple[str, float]] = {}  # questions about clusters that are gone: which, and since when
        self._ended: dict[str, tuple[str, float]] = {}  # clusters that somebody else has ended: what their owners are told
        self._end_asks: dict[str, float] = {}
        self._groups: dict[str, dict[str, Record]] = {}  # by cluster: what placement groups have of it
        self._made = 0
        self._cooling: list[tuple[float, int]] = []  # numbers of clusters that are gone, and until when nobody gets them
        self._cooling_until: dict[int, float] = {}
        self._cooled: list[int] = []
        self._resting: dict[str, float] = {}  # names of shares of groups that are gone, and until when nobody gets them
        self._unsaved: set[str] = set()
        self._left_alone: set[str] = set()  # whose entries we cannot read
        self._actors: dict[str, set[str]] = {}  # by cluster: living actors that were made in it
        self._cluster_of_actor: dict[str, str] = {}

    # What is known

    @property
    def records(self) -> Mapping[str, Record]:
        return self._records

    def get(self, cluster_id: str) -> Record:
        record = self._records.get(cluster_id)
        if record is None and cluster_id in self._ended and self._context.now() - self._ended[cluster_id][1] < COOL_SECONDS:
            raise ConflictError(f"the virtual cluster {cluster_id!r} {self._ended[cluster_id][0]}")
        if record is None:
            some = ", ".join(sorted(self._records)[:3]) or "none"
            raise UnknownNameError(f"there is no virtual cluster {cluster_id!r}: the live ones are {some}")
        return record

    def by_ask(self, ask: str) -> Record | None:
        """Return what was made for a question: a cluster; or the share of a placement group, whose id is the question."""
        return self._records.get(self._by_ask.get(ask, "")) if ask else None

    def refuse(self, ask: str) -> None:
        """What would be made for a question is not wanted any more, though nothing was."""
        self._past.setdefault(ask, (ask, self._context.now()))

    def past(self, ask: str) -> str | None:
        """Return the id of what was made for a question and is gone since a moment: only a call that was sent twice asks that
        again."""
        while self._past and next(iter(self._past.values()))[1] < self._context.now() - CLAIM_SECONDS:
            del self._past[next(iter(self._past))]
        return self._past[ask][0] if ask in self._past else None

    def group_shares(self) -> Iterator[tuple[Record, GroupShare]]:
        """Return what placement groups have of virtual clusters."""
        for groups in list(self._groups.values()):
            for record in list(groups.values()):
                if record.group is not None:
                    yield record, record.group

    def groups_in(self, cluster_id: str) -> Collection[Record]:
        return self._groups.get(cluster_id, {}).values()

    def has_actors(self, cluster_id: str) -> bool:
        """Return whether an actor lives that was made in a cluster: it may restart, and needs the cluster for that."""
        return bool(self._actors.get(cluster_id))

    def why(self, record: Record) -> str:
        """Return the reason why it waits in the queue; empty when it does not."""
        return self._scheduler.explain(record.vcluster).reason if record.state == QUEUED else ""

    def position(self, record: Record) -> int:
        """Return its place in the queue of those with the same parent; 0 when it does not wait."""
        rivals = [queued for queued in self._scheduler.queue if queued.parent is record.vcluster.parent]
        return rivals.index(record.vcluster) + 1 if record.vcluster in rivals else 0

    # What owners ask

    def create(
        self,
        spec: VirtualCluster,
        parent_id: str | None,
        job_id: str,
        priority: int,
        tolerations: Tolerations,
        idle_seconds: float,
        ask: str,
        worker_id: str = "",
    ) -> Record:
        """Reserve a cluster or queue it. Return its record; raise when it can never be."""
        parent = self.get(parent_id).vcluster if parent_id is not None else None
        vcluster = self._scheduler.create_cluster(spec, parent, priority, tolerations, self._free_cluster_id())
        record = self._add(Record(vcluster, job_id, idle_seconds, self._context.now(), ask=ask, worker_id=worker_id))
        what = "ready" if vcluster.state == READY else f"queued: {self.why(record)}"
        self._context.note("cluster", vcluster.cluster_id, what)
        return record

    def enclose(self, request: GroupRequest, job_id: str, ask: str) -> Record | None:
        """Reserve a share for a placement group in a cluster, or in none. Return it, or None where there is no room for it now.
        ``request`` has one option."""
        parent = self.get(request.cluster) if request.cluster is not None else None
        if parent is not None and parent.vcluster.state != READY:
            return None
        share_id = self._free_group_id(parent.cluster_id if parent is not None else ROOT)
        vcluster = self._scheduler.enclose(request, parent.vcluster if parent is not None else None, share_id)
        if vcluster is None:
            return None
        now = self._context.now()
        if parent is not None:
            parent.busy_at = now
        return self._add(Record(vcluster, job_id, 0.0, now, GroupShare(ask, now), ask))

    def resize(self, record: Record, limits: Mapping[str, int | None]) -> None:
        """Give a cluster other maxima, in units; None takes one away. Of what it has more than that it comes down
        (``Growing``). Raise when one is below its minimum; then nothing has changed."""
        vcluster = record.vcluster
        wanted = vcluster.spec.with_maximum({**record.goal, **limits})
        goal = {
            name: limit
            for name in wanted.flexible_resource_max or ()
            if (limit := wanted.limit(name)) is not None and vcluster.flex_total.get(name, 0) > limit
        }
        has = {name: vcluster.flex_total[name] for name in goal}
        record.goal = goal
        self._scheduler.resize_cluster(vcluster, wanted.with_maximum(has))
        self._unsaved.add(record.cluster_id)

    def lower(self, record: Record) -> None:
        """Follow a cluster down that has given back some of what it has above its new maximum."""
        vcluster = record.vcluster
        has = {name: max(limit, vcluster.flex_total.get(name, 0)) for name, limit in record.goal.items()}
        goal = {name: limit for name, limit in record.goal.items() if has[name] > limit}
        if goal != record.goal or any(vcluster.spec.limit(name) != most for name, most in has.items()):
            record.goal = goal
            self._scheduler.resize_cluster(vcluster, vcluster.spec.with_maximum(has))
            self._unsaved.add(record.cluster_id)

    def prioritize(self, record: Record, priority: int) -> None:
        """Give a cluster another place in the queue."""
        self._scheduler.prioritize(record.vcluster, priority)
        self._unsaved.add(record.cluster_id)

    def close(self, cluster_id: str) -> list[Record]:
        """Close a cluster and those in it: nobody may count on them any more. Return those that were closed and are not gone
        yet; what they still do goes on, and once that is done everything is returned."""
        record = self._records.get(cluster_id)
        if record is None or record.group is not None:  # that ends with its group
            return []
        closed = [each for child in list(record.vcluster.children.values()) for each in self.close(child.cluster_id)]
        if record.vcluster.state == QUEUED:
            self.remove(record, "left the queue")
            return closed
        if not record.vcluster.closing:
            record.vcluster.closing = True
            record.busy_at = self._context.now()
            self._unsaved.add(cluster_id)
        return [*closed, record]

    def end(self, cluster_id: str, ask: str, told: str) -> None:
        """Somebody else than its owner is about to close a cluster: ``told`` is what the owner hears who asks for it."""
        now = self._context.now()
        self._ended = {known: each for known, each in self._ended.items() if now - each[1] < COOL_SECONDS}
        self._end_asks = {known: at for known, at in self._end_asks.items() if now - at < COOL_SECONDS}
        self._ended[cluster_id] = told, now
        if ask:
            self._end_asks[ask] = now

    def was_ended(self, ask: str) -> bool:
        """Return whether this question has ended a cluster a moment ago: only a call that was sent twice asks it again."""
        return ask in self._end_asks

    def job_ended(self, job_id: str) -> list[Record]:
        """Close what belongs to a job. Return what was closed and is not gone yet."""
        closed = []
        for record in [record for record in self._records.values() if record.job_id == job_id]:
            if record.cluster_id not in self._records:
                continue
            if record.group is not None:
                record.group.since = float("-inf")  # whoever was about to create its group will not
                continue
            record.job_id = ""
            self._unsaved.add(record.cluster_id)
            closed += self.close(record.cluster_id)
        return closed

    def worker_ended(self, worker_id: str) -> list[Record]:
        """Close what a process opened that has ended. Return what was closed and is not gone yet."""
        owned = [record.cluster_id for record in self._records.values() if record.worker_id == worker_id and worker_id]
        return [each for cluster_id in owned for each in self.close(cluster_id)]

    def workers(self) -> set[str]:
        """Return the processes that have opened clusters and not closed them."""
        return {each.worker_id for each in self._records.values() if each.worker_id and not each.vcluster.closing}

    def remove(self, record: Record, what: str = "") -> None:
        """Forget a cluster and all in it, and give everything back."""
        for child in list(record.vcluster.children.values()):
            if child.cluster_id in self._records:
                self.remove(self._records[child.cluster_id])
        cluster_id = record.cluster_id
        if record.ask and record.group is None:
            self._past[record.ask] = cluster_id, self._context.now()
        ended = self._scheduler.destroy_cluster(record.vcluster)
        del self._records[cluster_id]
        for name in _names(record):
            if self._by_ask.get(name) == cluster_id:  # the same may have been asked again meanwhile
                del self._by_ask[name]
        if record.group is not None:
            self._groups.get(cluster_id.split(OF_GROUP)[0], {}).pop(cluster_id, None)
            self._resting.pop(cluster_id, None)
            self._resting[cluster_id] = self._context.now() + GROUP_CREATED_SECONDS
        else:
            self._groups.pop(cluster_id, None)
            number = _number(cluster_id)
            if number is not None:
                self._cool(number)
        self._unsaved.discard(cluster_id)
        self._set(cluster_id, None)
        self._context.aside.forget("virtual cluster", cluster_id)
        if what:
            self._context.note("cluster", cluster_id, what)
        self._orphaned(cluster_id, [each for each in ended if isinstance(each, Workload)])

    # What the cluster tells

    def see_actor(self, actor_id: str, cluster_id: str) -> None:
        """An actor that was made in a cluster lives."""
        self._actors.setdefault(cluster_id, set()).add(actor_id)
        self._cluster_of_actor[actor_id] = cluster_id

    def actor_ended(self, actor_id: str) -> None:
        cluster_id = self._cluster_of_actor.pop(actor_id, None)
        if cluster_id is not None:
            self._actors[cluster_id].discard(actor_id)
            if not self._actors[cluster_id]:
                del self._actors[cluster_id]

    def reserved(self, vcluster: VCluster) -> None:
        """One that waited, or had lost nodes, has its minimum."""
        if vcluster.cluster_id in self._records:
            self._context.note("cluster", vcluster.cluster_id, "its minimum is reserved")

    # Memory

    def name(self, record: Record) -> None:
        """Find a record from now on by its question, and by the id of its placement group."""
        for name in _names(record):
            self._by_ask[name] = record.cluster_id

    def changed(self, record: Record) -> None:
        """Something of a record changed that is remembered."""
        self._unsaved.add(record.cluster_id)

    def save(self, changed: Collection[str]) -> None:
        """Set what is remembered of clusters that changed: what was promised is known to whoever comes after us."""
        for cluster_id in {*changed, *self._unsaved}:
            record = self._records.get(cluster_id)
            if record is None:
                continue
            now = stamp(record)
            if now != record.saved_as:
                body = to_body(record, self._node_id)
                self._set(cluster_id, CLUSTERS.write(body))
                record.saved_as = now
        self._unsaved.clear()

    def is_saved(self, cluster_id: str) -> bool:
        """Return whether the store is known to have a cluster as it is."""
        return cluster_id not in self._unsaved and self._store.is_confirmed(CLUSTERS.key(cluster_id))

    def adopt(self, record: Record) -> None:
        """One that is remembered from before."""
        self._add(record)
        record.saved_as = None

    def leave_alone(self, cluster_id: str) -> None:
        """What is remembered of a cluster cannot be read: it stays for whoever can, and its name is given to no other."""
        self._left_alone.add(cluster_id)

    def cool(self, cluster_ids: Iterable[str]) -> None:
        """After a restart: give no name to anybody for a while that a controller before us may have given, and taken back just
        now. ``cluster_ids`` are those that are known of."""
        numbers = [_number(cluster_id) or 0 for cluster_id in (*cluster_ids, *self._records)]
        self._made = max(numbers, default=0)
        for number in range(1, self._made + 1):
            self._cool(number)

    def revive(self, cluster_id: str) -> Record:
        """Return a cluster that nobody remembers though work of it is there."""
        record = self._add(revive(self._scheduler, cluster_id, self._context.now()))
        self._context.note("cluster", cluster_id, "is gone, and something of it is still there: it gets what that needs")
        return record

    # The rest

    def _add(self, record: Record) -> Record:
        self._records[record.cluster_id] = record
        self._unsaved.add(record.cluster_id)
        self.name(record)
        if record.group is not None:
            self._groups.setdefault(record.cluster_id.split(OF_GROUP)[0], {})[record.cluster_id] = record
        return record

    def _cool(self, number: int) -> None:
        """Give the name of a cluster that is gone to nobody for a while: processes trust what they know of it."""
        until = self._context.now() + COOL_SECONDS
        self._cooling_until[number] = until
        heapq.heappush(self._cooling, (until, number))

    def _free_cluster_id(self) -> str:
        """Return a name that nobody has, the lowest that there is. Names are used again, after a while: Ray never forgets a
        kind of task, and each name makes new kinds."""
        now = self._context.now()
        while self._cooling and self._cooling[0][0] < now:
            until, number = heapq.heappop(self._cooling)
            if self._cooling_until.get(number) == until:
                del self._cooling_until[number]
                heapq.heappush(self._cooled, number)
        passed_over = []
        while self._cooled and not self._is_free_number(self._cooled[0]):
            passed_over.append(heapq.heappop(self._cooled))
        found = heapq.heappop(self._cooled) if self._cooled else None
        for number in passed_over:
            heapq.heappush(self._cooled, number)
        while found is None:
            self._made += 1
            if self._is_free_number(self._made):
                found = self._made
            else:
                heapq.heappush(self._cooled, self._made)  # it is looked at again when that is over
        return f"{_NAMED}{found}"

    def _is_free_number(self, number: int) -> bool:
        return number not in self._cooling_until and self._is_free(f"{_NAMED}{number}")

    def _free_group_id(self, cluster_id: str) -> str:
        """Return a name for the share of a placement group in a cluster."""
        while self._resting and next(iter(self._resting.values())) < self._context.now():
            del self._resting[next(iter(self._resting))]
        numbers = itertools.count(self._generation % _CONTROLLERS + 1, _CONTROLLERS)
        names = (f"{cluster_id}{OF_GROUP}{number}" for number in numbers)
        return next(name for name in names if name not in self._resting and self._is_free(name))

    def _is_free(self, cluster_id: str) -> bool:
        taken = cluster_id in self._records or cluster_id in self._left_alone
        return not (taken or self._book.is_left(cluster_id) or self.has_actors(cluster_id))

    def _set(self, cluster_id: str, data: bytes | None) -> None:
        if cluster_id not in self._left_alone:
            self._store.set(CLUSTERS.key(cluster_id), data)

    def _node_id(self, number: int) -> str:
        return self._scheduler.cluster.nodes.at(number).node_id


def _names(record: Record) -> set[str]:
    return {record.ask, record.group.group_id if record.group is not None else ""} - {""}


def _number(cluster_id: str) -> int | None:
    """Return the number in the name of a virtual cluster."""
    number = cluster_id.removeprefix(_NAMED)
    return int(number) if number.isdecimal() else None
