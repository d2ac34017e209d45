"""Leases: each has a *slot*, whose token the work needs to be placed.

The token stands on the chosen node from the decision until the actor lives there (it does not hold it), or the task has ended.
So when an actor dies and Ray starts it again, it waits for its token, and the kernel decides anew under the rules of that
moment. Where something runs is what the cluster reports, whatever was decided.

What a killed controller forgets it reads back: an actor's slot and request are labels of the actor in GCS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from remora.controller.assumed import Assumed
from remora.controller.clusters.registry import Registry
from remora.controller.context import Context
from remora.controller.leases.bystanders import Bystanders
from remora.controller.leases.failover import Failover
from remora.controller.leases.known_actors import KnownActors
from remora.controller.leases.lease_table import Lease, LeaseTable
from remora.controller.leases.lease_tokens import LeaseTokens
from remora.controller.leases.predecessor import Predecessor
from remora.controller.leases.slots import Slots
from remora.controller.leases.undecided import Undecided
from remora.controller.leases.unstarted import Unstarted
from remora.controller.store import Store
from remora.controller.tokens.book import Book
from remora.controller.tokens.class_tokens import ClassTokens
from remora.kernel.cycle import Scheduler
from remora.kernel.state.workloads import Workload
from remora.port.contract import ENDED, RUNNING, NodeView, Work
from remora.wire.asks import LEASE_LABEL, REQUEST_LABEL, Ask, decode_ask, encode_ask
from remora.wire.keys import TASK_LEASES, TaskLease
from remora.wire.timing import CLAIM_SECONDS
from remora.wire.tokens import lease_token

_WRITTEN_SECONDS = 0.3  # until the token of an actor that has ended is surely taken away
_MOST_LOOKS = 3


class Leases:
    """``recount`` is told of nodes where what is free has to be counted anew."""

    def __init__(
        self,
        context: Context,
        scheduler: Scheduler,
        store: Store,
        registry: Registry,
        assumed: Assumed,
        book: Book,
        tokens: ClassTokens,
        generation: int,
        recount: Callable[[str], None],
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._store = store
        self._registry = registry
        self._assumed = assumed
        self._recount = recount
        self._table = LeaseTable(self._cluster)
        self.actors = KnownActors(context, registry)
        self._lease_tokens = LeaseTokens(context, self._cluster, self._table, assumed, tokens)
        self.slots = Slots(context, tokens, generation, book.stands)
        self.failover = Failover(context, scheduler, self._table, self._lease_tokens.follow)
        self.bystanders = Bystanders(context, scheduler, store)
        self.predecessor = Predecessor(context, self._table, self.slots, book, tokens)
        self.unstarted = Unstarted(context, scheduler, assumed, self._lease_tokens.follow)
        self._undecided = Undecided(scheduler, self._table, self.actors, self.bystanders, self._lease_tokens.follow)

    # What is known

    @property
    def by_slot(self) -> Mapping[str, Lease]:
        return self._table.by_slot

    @property
    def by_actor(self) -> Mapping[str, Lease]:
        return self._table.by_actor

    def node_of(self, lease: Lease) -> str | None:
        return self._table.node_of(lease)

    def on_node(self, number: int) -> list[Lease]:
        return self._table.on_node(number)

    # What clients ask

    def place(self, question: str, ask: Ask, job_id: str, worker_id: str) -> tuple[str, str | None]:
        """Return a slot for this work, and its node if there is one for it now. A question that is asked twice has one
        answer."""
        known = self._table.answer_to(question)
        if known is not None:
            return known.slot, self._table.node_of(known)
        slot_before = self._table.answered(question)
        if slot_before is not None:
            return slot_before, None
        workload, unplaced = self._decide(f"asked {question}", ask)
        node_id = self._table.node_at(workload)
        slot = self.slots.take(node_id)
        self._cluster.rename(workload, slot)
        self._context.aside.rename("lease", f"asked {question}", slot)
        try:
            lease = self._enter(slot, ask, workload, job_id, unplaced)
        except Exception:  # whoever asked is told, and nothing half-done stays
            self._undo(slot, workload)
            raise
        self._table.asked(lease, question, worker_id)
        if not lease.is_actor:  # GCS keeps an actor's labels, and of a task nothing that we could read back
            entry = TaskLease(job_id, encode_ask(ask), question, worker_id)
            self._store.set(TASK_LEASES.key(slot), TASK_LEASES.write(entry))
        return slot, node_id

    def claim(self, slot: str, actor_id: str, question: str) -> None:
        """The actor that a slot was given for has been created. The slot may be somebody else's by now."""
        lease = self.by_slot.get(slot)
        if lease is not None and question and lease.question not in ("", question):
            return
        if lease is None:
            if actor_id not in self.actors and not self.actors.has_ended(actor_id):
                self.actors.look_up(actor_id)  # given by a controller that is no more
        elif not lease.actor_id and self.actors.has_ended(actor_id):
            self._end(lease)
        elif not lease.actor_id:
            self._bind(lease, actor_id)
            heard = self.actors.get(actor_id)
            if heard is not None:
                self.see(heard)

    def give_up(self, slot: str, question: str) -> None:
        """Take a lease back: its work was never started, or has ended. The slot may be somebody else's by now."""
        lease = self.by_slot.get(slot)
        if lease is None:
            self.slots.give_up(slot, question)
        elif lease.question == question:
            self._end(lease)

    # What the cluster tells

    def see(self, work: Work) -> None:
        """An actor has come, changed or gone. It ends once: messages may be late, or come twice."""
        if self.actors.has_ended(work.work_id) and (work.state != ENDED or work.work_id not in self.by_actor):
            return
        if self.actors.is_old(work):
            return
        with self._context.aside.care_of("actor", work.work_id):
            work = self.actors.note(work)
            lease = self._table.by_actor.get(work.work_id) or self._claimed_by(work)
            if lease is None:
                self._undecided.see_bystander(work)
            elif work.state == ENDED:
                self._end(lease)
            elif work.state == RUNNING:
                self._runs(lease, work)
            elif work.detail == "RESTARTING" and lease.live_since is not None:
                before = self._table.node_of(lease)
                self.failover.restarts(lease)
                if before is not None:
                    self._recount(before)

    def see_all(self, works: Iterable[Work], asked_at: float) -> None:
        """Take in every actor that there is: what was missed is made good, and what nobody claimed is taken back."""
        living = set()
        for work in works:
            self.see(work)
            if work.state != ENDED:
                living.add(work.work_id)
        for lease in list(self.by_slot.values()):
            if lease.actor_id and lease.actor_id not in living and lease.made_at < asked_at:
                self.actors.look_up(lease.actor_id)  # while a table is read, one that changes may be missed
            elif not lease.actor_id and lease.is_actor and self._context.now() - lease.made_at > CLAIM_SECONDS:
                self._end(lease, comes_yet=bool(lease.worker_id))
        for actor_id in self.actors.missing_in(living):
            self.actors.look_up(actor_id)

    def found(self, actor_id: str, works: list[Work]) -> None:
        """Take in what was looked up about one actor."""
        looks, known = self.actors.looked(actor_id), self.actors.get(actor_id)
        actors = [work for work in works if work.work_id == actor_id]
        if not actors and actor_id in self._undecided and looks < _MOST_LOOKS:
            self.actors.look_again(actor_id, looks)  # it may just be being created
            return
        if not actors and known is not None:
            self.see(_ended(known))
        elif not actors and actor_id in self.by_actor:
            lease = self.by_actor[actor_id]
            if self._context.now() - lease.made_at > CLAIM_SECONDS:  # until then GCS may not know of it yet
                self._end(lease)
        for work in actors:
            self.see(work)
        known_lease = self.by_actor.get(actor_id)
        assumed = self._assumed.get(known_lease.slot) if known_lease is not None else None
        if assumed is not None and assumed.deadline <= self._context.now():
            assumed.asked = True
        self._undecided.decide_beside(actor_id)

    def worker_ended(self, worker_id: str) -> None:
        """A worker has ended: the tasks that it asked for end with it, and it will create no actor any more."""
        self.slots.worker_ended(worker_id)
        for lease in self._table.of_worker(worker_id):
            self._end(lease)

    def workers(self) -> list[str]:
        """Return the workers that have asked for tasks with leases, or may still create an actor with one."""
        return [*{*self._table.workers(), *self.slots.kept_for()}]

    def job_ended(self, job_id: str) -> None:
        for lease in [lease for lease in self.by_slot.values() if not lease.is_actor and lease.owner_job == job_id]:
            self._end(lease)
        self.bystanders.job_ended(job_id)

    def jobs(self, before: float) -> set[str]:
        """Return the jobs of which tasks have leases, or objects labels, since before a time."""
        of_tasks = {each.owner_job for each in self.by_slot.values() if not each.is_actor and each.made_at < before}
        return of_tasks | self.bystanders.jobs()

    def node_left(self, node_id: str) -> list[list[Lease]]:
        """Before the scheduler places again what was on a node; the groups are for ``failover.regroup`` afterwards."""
        number = self._cluster.nodes.get(node_id).number
        self.bystanders.node_left(number)
        self.slots.forget(node_id)
        for lease in self._table.on_node(number):
            self._assumed.drop(lease.slot)
            before = self._cluster.nodes.by_id.get(lease.leaving or "")
            if before is not None and before.number != number and lease.live_since is None:
                # Its old token stands yet, and it is queued there: Ray would fail it if no node had one.
                self._cluster.release(lease.workload)
                self._cluster.restore(lease.workload, before.number)
                self._lease_tokens.go_back(lease)
        return self.failover.node_left(number)

    def placed_or_put_back(self, workload: Workload) -> None:
        """The scheduler has decided something about a workload."""
        lease = self._table.of(workload)
        if lease is not None:
            self._lease_tokens.follow(lease)

    def orphaned(self, cluster_id: str, workloads: Iterable[Workload]) -> None:
        """Their virtual cluster is gone, and they are not, nor are those of which nothing is decided yet: they go on in what is
        left of it, and end with that."""
        ended = [lease for workload in workloads if (lease := self._table.of(workload)) is not None]
        for lease in [*ended, *self._undecided.in_cluster(cluster_id)]:
            node_id = self.actors.node_of(lease.actor_id) if lease.live_since is not None else None
            lease.workload = self._restore(lease.slot, lease.actor_id or lease.slot, lease.ask, node_id)
            self._undecided.drop(lease)
            self._undecided.add(lease, self._unknown_to(lease.workload))
            self._lease_tokens.follow(lease)

    # Recovery

    def restore_task(self, slot: str, entry: TaskLease, node_id: str | None) -> None:
        """A task that a controller before us gave a lease to. ``node_id`` is where its token stands."""
        lease = self._adopt(slot, decode_ask(entry.request), entry.job_id, node_id)
        self._table.asked(lease, entry.ask, entry.worker_id)

    # In a round

    def tend(self, views: Mapping[str, NodeView]) -> None:
        """Confirm what reports show, decide again what has not started in time, and move tokens on."""
        for entry in self._assumed.confirmed(views):
            lease = self.by_slot.get(entry.slot)
            with self._context.aside.care_of("lease", entry.slot, "confirming"):
                if lease is not None and lease.workload.placed:
                    self._cluster.confirm(lease.workload)
                self._assumed.drop(entry.slot)
        for entry in self._assumed.overdue():
            lease, view = self.by_slot.get(entry.slot), views.get(entry.node_id)
            has_room = lease is not None and view is not None and not self.unstarted.lacks(lease, view)
            if lease is not None and lease.actor_id and not entry.asked and not has_room:
                self.actors.look_up(lease.actor_id)  # it may run, and the message that it does was lost
                continue
            self._assumed.postpone(entry.slot)
            with self._context.aside.care_of("lease", entry.slot, "moving"):
                if lease is not None:
                    self.unstarted.try_elsewhere(lease, view)
        self._lease_tokens.move_on(views)
        self.actors.forget_ended()
        self.predecessor.look()
        self.failover.follow()
        self.slots.fill_reserves(self._cluster.nodes.by_id)

    @property
    def settled(self) -> bool:
        return self.actors.settled and self._lease_tokens.settled

    def validate(self) -> None:
        """Raise AssertionError when leases contradict the kernel or each other."""
        self._table.validate()
        for slot, lease in self.by_slot.items():
            workload = lease.workload
            line = self._scheduler.waiting.get(workload.request, ())
            assert workload.placed or workload in line or lease.unplaced, f"the lease {slot} is neither placed nor waits"
            cluster_id = workload.request.cluster
            assert cluster_id is None or cluster_id in self._cluster.tree.clusters, (
                f"the lease {slot} is in {cluster_id}, which is gone"
            )
            assert (slot in self._assumed) <= workload.placed, slot

    # Deciding

    def _decide(self, known_as: str, ask: Ask) -> tuple[Workload, set[str]]:
        """Return the workload, placed or waiting; and the actors that have to be known before anything can be decided."""
        unplaced = self._undecided.unknown(ask.request)
        if unplaced:
            if ask.request.cluster is not None:
                self._cluster.tree.get(ask.request.cluster)
            return Workload(known_as, ask.request, ask.labels, self._scheduler.next_order()), unplaced
        return self._scheduler.submit(known_as, ask.request, ask.labels), unplaced

    # Entering and ending

    def _enter(self, slot: str, ask: Ask, workload: Workload, job_id: str, unplaced: set[str]) -> Lease:
        lease = Lease(slot, ask, workload, self._context.now(), job_id)
        self._undecided.add(lease, unplaced)
        self._table.add(lease)
        self._lease_tokens.follow(lease)
        return lease

    def _adopt(self, slot: str, ask: Ask, job_id: str, node_id: str | None) -> Lease:
        """Return a lease that was given by a controller that is no more: it is where it runs, or where its token stands."""
        self.slots.adopt(slot)
        workload = self._restore(slot, slot, ask, node_id)
        lease = self._enter(slot, ask, workload, job_id, self._unknown_to(workload))
        lease.told = node_id  # by that controller
        return lease

    def _unknown_to(self, workload: Workload) -> set[str]:
        """Return the actors that have to be known before anything can be decided about a restored workload."""
        decided = workload.placed or self._is_waiting(workload)
        return set() if decided else self._undecided.unknown(workload.request)

    def _restore(self, slot: str, known_as: str, ask: Ask, node_id: str | None) -> Workload:
        """Return the workload of a lease from before, on the node where it is, or decided anew."""
        if ask.request.cluster is not None and ask.request.cluster not in self._registry.records:
            self._registry.revive(ask.request.cluster)
        node = self._cluster.nodes.by_id.get(node_id or self.predecessor.token_on(slot) or "")
        if node is None:
            return self._decide(known_as, ask)[0]
        self._undecided.unknown(ask.request)
        workload = Workload(known_as, ask.request, ask.labels, self._scheduler.next_order())
        if node_id is not None:
            self._cluster.move(workload, node.number)
        else:
            self._cluster.restore(workload, node.number)
        return workload

    def _end(self, lease: Lease, *, comes_yet: bool = False) -> None:
        """Forget a lease: its slot may be taken again when its token is surely gone, and whoever asked for it cannot come any
        more. What may fail comes first: then the lease is as it was, and is ended again when it is looked up."""
        node_id = self._table.node_of(lease)
        self._scheduler.finish(lease.workload)
        if node_id is not None:
            self._recount(node_id)
        self._table.remove(lease, self._context.now())
        self._lease_tokens.drop(lease)
        if comes_yet:
            self.slots.keep(lease.slot, lease.worker_id, lease.question)
        elif lease.is_actor:  # its worker is gone with it
            self.slots.give_back(lease.slot, after=_WRITTEN_SECONDS)
        else:
            self.slots.give_back(lease.slot)
            self._store.set(TASK_LEASES.key(lease.slot), None)
        self._undecided.drop(lease)
        for known_as in (lease.slot, lease.actor_id):
            self._context.aside.forget("lease", known_as)

    def _undo(self, slot: str, workload: Workload) -> None:
        """Forget what was being entered."""
        entered = self.by_slot.get(slot)
        if entered is not None and entered.workload is workload:
            self._end(entered)
        else:
            self._scheduler.finish(workload)

    # What follows from an observation

    def _runs(self, lease: Lease, work: Work) -> None:
        """An actor runs: it is where it is observed to be, whatever was decided."""
        node_id = next(iter(work.node_ids), None)
        if node_id is None or node_id not in self._cluster.nodes.by_id:
            return
        decided = self._table.node_of(lease)
        self._undecided.drop(lease)
        if decided != node_id:
            if decided is not None:
                self._context.note("lease", lease.actor_id, f"runs on {node_id[:12]}, where {decided[:12]} was decided")
                self._recount(decided)
            self._assumed.drop(lease.slot)
            self._scheduler.move(lease.workload, node_id)
            self._assumed.add(lease.slot, lease_token(lease.slot), node_id, lease.workload.request)
            self._recount(node_id)
        if lease.live_since is None:
            lease.live_since = self._context.now()
            self._context.note("lease", lease.actor_id, f"runs on {node_id[:12]}")
        self._assumed.lives(lease.slot)
        self._lease_tokens.follow(lease)

    # Actors

    def _claimed_by(self, work: Work) -> Lease | None:
        """Return the lease of an actor that is seen for the first time."""
        slot = work.labels.get(LEASE_LABEL)
        if slot is None or work.state == ENDED:
            return None
        lease = self.by_slot.get(slot)
        if lease is None:
            lease = self._adopt(slot, decode_ask(work.labels[REQUEST_LABEL]), work.job_id, next(iter(work.node_ids), None))
        elif lease.actor_id:
            return None
        self._bind(lease, work.work_id)
        return lease

    def _bind(self, lease: Lease, actor_id: str) -> None:
        self.bystanders.drop(actor_id)
        self._table.bind(lease, actor_id)
        self._context.aside.rename("lease", lease.slot, actor_id)
        self._lease_tokens.tell(lease)
        if lease.told is None:
            self._context.note("lease", actor_id, "waits: no node for it now")
        if self._table.is_named(actor_id):
            self._undecided.decide_beside(actor_id)
            self._scheduler.settle()  # what waits for this very actor can find it now

    # The rest

    def _is_waiting(self, workload: Workload) -> bool:
        return workload in self._scheduler.waiting.get(workload.request, ())


def _ended(work: Work) -> Work:
    return Work(work.kind, work.work_id, work.name, work.job_id, ENDED, "DEAD", (), labels=work.labels)
