"""The controller: what it wants is the token of every class in use on every node that it admits, every decided lease and share
in its place, and no other token anywhere.

It is a state machine. Reports (``report``), messages of the cluster's feeds (``tell``), calls of clients (``commands.begin``)
and what came of its own effects (``done``) change what it knows; ``round`` decides; ``plan`` returns the effects that may be
performed now. It knows no network, no thread and no clock but the one that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remora.controller.assumed import Assumed
from remora.controller.clusters.admission import Admission
from remora.controller.clusters.growing import Growing
from remora.controller.clusters.lending import Lending
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.share_writer import ShareWriter
from remora.controller.clusters.use import Use
from remora.controller.clusters.wanted_shares import WantedShares
from remora.controller.context import Context
from remora.controller.effects import (
    AskForMachines,
    Done,
    Effect,
    Find,
    FindAll,
    FindEnded,
    Hold,
    LetGo,
    LookAtMachines,
    Nudge,
    Put,
    ReadNodeTypes,
    RemoveGroup,
    Resize,
    Restart,
)
from remora.controller.groups.group_shares import GroupShares
from remora.controller.groups.placeholders import Placeholders
from remora.controller.journal import Journal
from remora.controller.lanes import Lanes
from remora.controller.leases.leases import Leases
from remora.controller.picture import Picture
from remora.controller.questions import Questions
from remora.controller.scaling.keeper import Keeper
from remora.controller.scaling.machines import Machines
from remora.controller.scaling.scale import Scaling
from remora.controller.scaling.waits import Waits
from remora.controller.scheduling import ContainedScheduler
from remora.controller.set_aside import Care
from remora.controller.store import Store
from remora.controller.token_writes import TokenWrites
from remora.controller.tokens.book import Book
from remora.controller.tokens.class_tokens import ClassTokens, classes_in
from remora.controller.tokens.holds import Holds
from remora.controller.tokens.node_fences import Fences
from remora.controller.tokens.roster import Roster
from remora.controller.unschedulable import Unschedulable
from remora.controller.withdrawal import Withdrawal
from remora.errors import InvariantError
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.validate import validate
from remora.kernel.state.workloads import Group, Workload
from remora.port.contract import ACTOR, ENDED, JOB, WORKER, Observation, Work
from remora.wire.keys import CLASSES, FENCES, JOURNAL

_LEAVING = "leaving"
_JOURNAL_SECONDS = 1.0


class Controller:
    """``found`` is what the store has; ``recovery.recover`` makes a controller of it and of what the cluster reports."""

    def __init__(
        self,
        clock: Callable[[], float],
        generation: int = 1,
        found: Mapping[str, bytes] | None = None,
        events: list[dict[str, Any]] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.now = clock
        self.generation = generation
        self.context = Context(clock, Journal(events or ()))
        self.scheduler = ContainedScheduler(self.context, seed)
        self.cluster = self.scheduler.cluster
        self.lanes = Lanes(clock)
        self.store = Store(self.lanes, found or {})
        self.book = Book(self.context, self.lanes)
        self.holds = Holds(self.context, self.lanes, self.store, self.book)
        self.fences = Fences(self.context, self.store)
        self.roster = Roster(self.context, self.store)
        self.class_tokens = ClassTokens(
            self.context, self.cluster, self.roster, self.book, self.holds, self.fences, self._is_kept
        )
        self.assumed = Assumed(self.context)
        self.lending = Lending(clock)
        self.registry = Registry(self.context, self.scheduler, self.store, self.book, generation, self._orphaned)
        wanted = WantedShares(self.cluster, self.registry, self.roster)
        self.use = Use(self.cluster, self.registry, wanted, self.lending, self.assumed, self.book)
        self.picture = Picture(self.context, self.scheduler, self.store, self.use, self.assumed, self.book)
        self.leases = Leases(
            self.context,
            self.scheduler,
            self.store,
            self.registry,
            self.assumed,
            self.book,
            self.class_tokens,
            generation,
            self.picture.recount,
        )
        self.admission = Admission(self.context, self.cluster, self.registry, self.use, self.lending, self.book, self.fences)
        self.growing = Growing(self.context, self.scheduler, self.registry, self.use, self.lending, self.assumed)
        self.shares = ShareWriter(
            self.context,
            self.registry,
            wanted,
            self.use,
            self.lending,
            self.admission,
            self.book,
            self.holds,
            self.lanes.is_free,
        )
        self.groups = GroupShares(self.context, self.cluster, self.registry, self.use, self.admission, self.book, self._owed)
        self.placeholders = Placeholders(
            self.context, self.cluster, self.registry, self.book, self.holds, self.groups.in_place, self.touch
        )
        self.scaling = Scaling(
            self.context,
            self.scheduler,
            Machines(self.context),
            Waits(self.context, self.scheduler, self.roster, self.registry),
            Keeper(self.context, self.class_tokens, self.holds, self.book),
        )
        self.unschedulable = Unschedulable(self.context, self.cluster, self.roster, self.leases)
        self.withdrawal = Withdrawal(self.context, self.lanes, self.store, self.holds, self.book)
        self.scheduler.on_change = self._changed
        self.writes = TokenWrites(
            self.context, self.lanes, self.book, self.roster, self.class_tokens, self.shares, self.groups, self.picture
        )
        self.questions = Questions(
            clock, self.leases, self.groups, self.registry, self.lending, self.shares, self._job_ended, self._worker_ended
        )
        self._journal_at = 0.0
        self._lent = self.lending.watch()
        self._steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("forgetting who waits no more", lambda: self.lending.forget(self.picture.views.__contains__)),
            ("counting", self._count),
            ("tending leases", lambda: self.leases.tend(self.picture.views)),
            ("counting again", self._count),
            ("placing", self.scheduler.settle),
            ("waking classes", self._wake_and_sweep),
            ("looking after groups", self.groups.look),
            ("placeholders", lambda: self.placeholders.look(self.picture.views)),
            ("growing clusters", lambda: self.growing.tend(self.picture.demands, self.roster.classes)),
            ("finding borrowers", self._find_borrowers),
            ("scaling", self._scale),
            ("giving up", lambda: self.unschedulable.look(self.picture.demands)),
            ("looking again", self.writes.look_again),
            ("saving the journal", self._save_journal),
        )

    # Events

    def report(self, observation: Observation) -> None:
        """Take in a report of all nodes and of what waits. What the feeds told before is known already."""
        if self.is_withdrawn:
            return
        left = self.picture.left(observation)
        for node_id in self.picture.see(observation):
            self.touch(node_id)
        with self._step("counting"):
            self._count()
        for node_id in left:  # last, because what ran there is placed again by what the others report now
            if self.context.aside.is_due("node", node_id, _LEAVING):
                with self.context.aside.care_of("node", node_id, _LEAVING):
                    self._node_left(node_id)
        if any(node_id in self.picture.views for node_id in left):
            self.picture.look_again()

    def tell(self, work: Work | None) -> bool:
        """Take in a message of a feed: an actor or a job that changed, a worker that ended, or None when everything has to be
        looked at. Return whether a round should follow soon."""
        if work is None or self.is_withdrawn:
            return work is None
        if work.kind == ACTOR:
            self.leases.see(work)
            return False
        if work.kind == WORKER:
            with self.context.aside.care_of("worker", work.work_id):
                return self._worker_ended(work.work_id)
        elif work.kind == JOB and work.state == ENDED:
            self._job_ended(work.job_id)
            return True
        return False

    def done(self, done: Done) -> None:
        """Take in what came of an effect."""
        self.lanes.finish(done)
        with self.context.aside.care_of("effect", type(done.effect).__name__):
            self._done(done)
        if done.error:
            self.context.aside.add("effect", done.effect.lane, done.error)
        else:
            self.context.aside.forget("effect", done.effect.lane)

    # Decisions

    def round(self) -> None:
        """Decide everything anew, by what is known now:

        1. what is free is counted, and what reports show is confirmed
        2. what waits is placed
        3. classes wake and sleep
        4. virtual clusters grow, shrink and end; their groups are looked after
        5. machines are planned for what waits; what waits for a node that is gone is given up
        6. what could not be written is looked at again
        """
        if self.is_withdrawn:
            return
        for what, step in self._steps:
            with self._step(what):
                step()

    def remember(self) -> list[Effect]:
        """Return of ``plan`` only what is remembered: all that many answers wait for."""
        effects: list[Effect] = list(self.store.plan())
        for effect in effects:
            self.lanes.start(effect)
        return effects

    def plan(self) -> list[Effect]:
        """Return the effects that may be performed now; each is in flight until ``done`` is told of it.

        1. what is remembered
        2. tokens on nodes: shares first, because others wait for them, then classes and leases
        3. holds made and let go
        4. questions to the cluster, and to whoever starts its machines
        """
        effects: list[Effect] = []
        with self._step("planning tokens"):
            effects += self.writes.plan() if not self.is_withdrawn else self.withdrawal.plan()
        with self._step("planning holds"):
            self._keep(effects, self.holds.plan())
        self._keep(effects, self.store.plan())
        if not self.is_withdrawn:
            with self._step("planning questions"):
                self._keep(effects, self.questions.plan())
            with self._step("planning to give up"):
                self._keep(effects, self.unschedulable.plan())
        with self._step("planning machines"):
            self._keep(effects, self.scaling.plan())
        for effect in effects:
            self.lanes.start(effect)
            if isinstance(effect, Find) and self.leases.actors.is_looked_up(effect.id_or_name):
                self.leases.actors.looking(effect.id_or_name)
        return effects

    @property
    def settled(self) -> bool:
        """Return whether nothing has to be looked at again soon."""
        return (
            not self.class_tokens.unsettled()
            and self.shares.settled
            and self.growing.settled
            and self.groups.settled
            and self.leases.settled
            and self.holds.settled
            and not self.lending.any_in_line
            and not self.fences.any_full
            and not self.lanes.any_closed
            and self.writes.settled
            and self.assumed.settled
            and self.scaling.settled
            and self.unschedulable.settled
        )

    @property
    def is_withdrawn(self) -> bool:
        return self.withdrawal.has_begun

    def withdraw(self) -> None:
        """Take every token from every node and forget everything: the cluster is stock again. ``withdrawal`` tells how far it
        is."""
        self.scaling.machines.end()
        self.withdrawal.begin(self.picture.views.values())

    def touch(self, node_id: str) -> None:
        """Look at the tokens of a node again."""
        self.writes.touch(node_id)

    def validate(self) -> None:
        """Raise InvariantError when what is known contradicts itself."""
        try:
            validate(self.cluster)
            self.leases.validate()
            self.lending.validate()
            self.book.validate()
            assert self.registry.records.keys() == self.cluster.tree.clusters.keys(), "records and the kernel's clusters differ"
            for workload in self.cluster.placed.values():
                known = self.leases.by_actor.get(workload.workload_id) or self.leases.by_slot.get(workload.workload_id)
                assert known is not None or workload.workload_id in self.leases.bystanders, workload
        except AssertionError as error:
            raise InvariantError(str(error)) from error

    # The rest

    def _step(self, what: str) -> Care:
        """Contain what goes wrong with a whole step: whatever each of them did not contain by itself stops no other step."""
        return self.context.aside.care_of("step", what)

    def _find_borrowers(self) -> None:
        if self.admission.find_borrowers(self.growing.reclaimed, self.shares.lacking_nodes()):
            self.shares.look = True

    def _scale(self) -> None:
        if self.scaling.is_on:
            self.scaling.tend(self.picture.views, self.picture.demands, self.picture.changes, self.picture.rare)

    def _count(self) -> None:
        """Count what is free. Where shares lie has to be known for that: the kernel may have moved some since."""
        self.shares.refresh()
        for _, node_id in self._lent:
            self.picture.recount(node_id)
        self._lent.clear()
        self.picture.settle()

    def _changed(self, item: Workload | Group | VCluster) -> None:
        """The scheduler has placed something, or put it back."""
        if isinstance(item, VCluster):
            self.registry.reserved(item)
        elif isinstance(item, Workload):
            with self.context.aside.care_of("lease", item.workload_id, "placing"):
                self.leases.placed_or_put_back(item)

    def _is_kept(self, slot: str) -> bool:
        return self.leases.predecessor.is_kept(slot)

    def _orphaned(self, cluster_id: str, workloads: list[Workload]) -> None:
        self.leases.orphaned(cluster_id, workloads)

    def _owed(self) -> set[str]:
        return self.growing.owed

    def _node_left(self, node_id: str) -> None:
        number = self.cluster.nodes.get(node_id).number
        groups = self.leases.node_left(node_id)
        self.use.forget(node_id, number)
        self.scheduler.remove_node(node_id)
        self.leases.failover.regroup(groups)
        self.context.note("node", node_id, "the node left")
        self.picture.forget(node_id)
        self.class_tokens.forget(node_id, number)
        self.placeholders.node_left(node_id)
        self.scaling.keeper.forget(node_id)
        self.holds.forget(node_id)
        self.shares.forget(node_id)
        self.book.forget(node_id)
        self.fences.forget(node_id)
        self.context.aside.forget("node", node_id)

    def _job_ended(self, job_id: str) -> None:
        with self.context.aside.care_of("job", job_id):
            self.leases.job_ended(job_id)
            self.registry.job_ended(job_id)

    def _worker_ended(self, worker_id: str) -> bool:
        """Return whether a round should follow soon."""
        self.questions.worker_ended(worker_id)
        self.leases.worker_ended(worker_id)
        closed = self.registry.worker_ended(worker_id)
        return self.lending.mark_dead(worker_id) or bool(closed)

    def _wake_and_sweep(self) -> None:
        """Offer classes that are waited for, and no longer those that nobody uses."""
        waited = {class_id for demand in self.picture.demands for shape in demand.shapes for class_id in classes_in(shape)}
        self.roster.tend(waited, self.picture.classes_in_use, self.registry.records)

    def _save_journal(self) -> None:
        journal = self.context.journal
        if journal.unsaved and self.now() - self._journal_at >= _JOURNAL_SECONDS:
            self._journal_at, journal.unsaved = self.now(), False
            self.store.set(JOURNAL.key(), JOURNAL.write(journal.entries()))

    # Effects

    def _keep(self, effects: list[Effect], more: list[Any]) -> None:
        """Add effects whose lanes are free, one in each."""
        taken = {effect.lane for effect in effects}
        for effect in more:
            if effect.lane not in taken and self.lanes.is_free(effect.lane):
                taken.add(effect.lane)
                effects.append(effect)

    def _done(self, done: Done) -> None:
        match done.effect:
            case Resize(node_id):
                self.questions.doubt_who_waits(node_id, self.writes.done(done))
                if self.is_withdrawn:
                    self.withdrawal.done(done)
            case Hold(_, node_id, amounts):
                if self.holds.held(done):
                    self.questions.doubt_who_waits(node_id, amounts)
                self.placeholders.made(node_id, amounts)
                self.picture.recount(node_id)
                self.touch(node_id)
            case LetGo(_, node_id):
                self.holds.let_go_done(done)
                self.picture.recount(node_id)
                self.touch(node_id)
            case Put(key, value):
                self.store.done(done)
                if not done.error and key.startswith(FENCES.prefix):
                    self.fences.confirm(key, value)
                    self.touch(FENCES.parts(key)[0])
                if not done.error and key.startswith(CLASSES.prefix):
                    self.class_tokens.remembered(CLASSES.parts(key)[0])
                self.shares.look = True
            case Find(id_or_name):
                self.questions.found(id_or_name, done)
            case FindAll():
                self.questions.found_all(done)
            case FindEnded(worker_ids):
                self.questions.found_ended(worker_ids, done)
            case Restart(actor_id):
                if not done.error:
                    self.leases.failover.restarted(actor_id)
            case RemoveGroup(group_id):
                if not done.error:
                    self.groups.removed(group_id)
            case ReadNodeTypes() | LookAtMachines() | AskForMachines():
                self.scaling.done(done)
            case Nudge(node_id):
                self.book.doubt(node_id)
