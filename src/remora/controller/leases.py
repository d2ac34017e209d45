"""Leases: one actor or task each, on the one node that the kernel chose for it.

A lease has a *slot*, whose token the work needs to be placed. The token stands on the chosen node from the decision until
the actor lives there (it does not hold it), or the task has ended. So when an actor dies and Ray starts it again, it waits
for its token, and the kernel decides anew under the rules of that moment.

What a killed controller forgets it reads back: an actor's slot and request are labels of the actor in GCS.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from remora.controller.failover import Failover, Note
from remora.controller.ghosts import Ghosts
from remora.controller.lease_table import Lease, LeaseTable, handles, wants
from remora.controller.slots import Slots
from remora.controller.standing import Standing
from remora.kernel.cycle import Scheduler
from remora.kernel.tree import VCluster
from remora.kernel.workloads import Group, Host, Workload
from remora.model.labels import ACTOR_ID
from remora.model.requests import Request
from remora.seam.port import ENDED, JOB, RUNNING, WAITING, Port, Work
from remora.wire.leases import LEASE_LABEL, REQUEST_LABEL, Ask, decode_ask, encode_ask
from remora.wire.tokens import lease_token

CLAIM_SECONDS = 10.0
"""A lease that nothing has claimed by then is taken back: the caller died, or the actor was there already."""

_WRITTEN_SECONDS = 0.3  # until the token of an actor that has ended is surely taken away
_STRANGE_SECONDS = 15.0
_KEY = "lease/"
_ASKED = "asked"  # what the kernel calls a request for the moment until it has a slot
_MOST_HEARD = 2_000


class Leases:
    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        note: Note,
        now: Callable[[], float],
        token_on: Callable[[str], str | None],
    ) -> None:
        self._port = port
        self._token_on = token_on
        self._began = now()
        self._scheduler = scheduler
        self._note = note
        self._now = now
        self._table = LeaseTable(scheduler.cluster)
        self.standing = Standing(self._table, now)
        self.slots = Slots(port, self.standing, now)
        self.failover = Failover(port, scheduler, self._table, note, self._changed)
        self.ghosts = Ghosts(port, scheduler)
        self._heard: dict[str, Work] = {}
        self._undecided: defaultdict[str, list[Lease]] = defaultdict(list)

    @property
    def by_slot(self) -> dict[str, Lease]:
        return self._table.by_slot

    def node_of(self, lease: Lease) -> str | None:
        return self._table.node_of(lease)

    # What clients ask

    def place(self, ask: Ask, job_id: str) -> tuple[str, str | None]:
        """A slot for this work, and its node if there is one for it now."""
        workload, unplaced = self._decide(_ASKED, ask)
        node_id = self._table.node_at(workload)
        slot = self.slots.take(node_id)
        self._scheduler.cluster.rename(workload, slot)
        lease = self._enter(slot, ask, workload, job_id, unplaced)
        if not lease.is_actor:  # GCS keeps an actor's labels, and of a task nothing that we could read back
            self._port.put(_KEY + slot, json.dumps([job_id, encode_ask(ask)]).encode())
        return slot, node_id

    def claim(self, slot: str, actor_id: str) -> None:
        """The actor that a slot was given for has been created."""
        lease = self.by_slot.get(slot)
        if lease is None:  # given by a controller that is no more
            for work in self._port.find(actor_id):
                self.see(work)
        elif not lease.actor_id:
            self._bind(lease, actor_id)
            heard = self._heard.pop(actor_id, None)
            if heard is not None:
                self.see(heard)

    def give_up(self, slot: str) -> None:
        """The work was never started, or has ended."""
        lease = self.by_slot.get(slot)
        if lease is not None:
            self._end(lease)

    # What the cluster tells

    def see(self, work: Work) -> None:
        """An actor has come, changed or gone; or a job has ended."""
        if work.kind == JOB:
            self._job_ended(work.job_id)
            return
        lease = self._table.by_actor.get(work.work_id) or self._claimed_by(work)
        if lease is None:
            self._hear(work)
            self.ghosts.see_actor(work, named=self._table.is_named(work.work_id))
            if work.state != WAITING:
                self._decide_beside(work.work_id)
        elif work.state == ENDED:
            self._end(lease)
        elif work.state == RUNNING and lease.alive_at is None:
            lease.alive_at = self._now()
            self.standing.changed(lease)
            self._note("lease", lease.actor_id, f"runs on {work.node_ids[0][:12] if work.node_ids else 'its node'}")
        elif work.state == WAITING and work.detail == "RESTARTING" and lease.alive_at is not None:
            self.failover.restarts(lease)

    def see_all(self, works: Iterable[Work]) -> None:
        """Every actor that there is: what was missed is made good, and what nobody claimed is taken back."""
        living = set()
        for work in works:
            self.see(work)
            if work.state != ENDED:
                living.add(work.work_id)
        for lease in list(self.by_slot.values()):
            gone = lease.actor_id and lease.actor_id not in living and not self._lives(lease.actor_id)
            if gone or (not lease.actor_id and lease.is_actor and self._now() - lease.made_at > CLAIM_SECONDS):
                self._end(lease)
        for actor_id in self.ghosts.actors:
            if actor_id not in living and not self._lives(actor_id):
                self.ghosts.lay(actor_id)

    def remember(self) -> None:
        """Tasks that a controller before us gave leases to, and objects that it was told of."""
        for key in self._port.keys(_KEY):
            job_id, text = json.loads(self._port.get(key) or b"[]")
            self._adopt(key.removeprefix(_KEY), text, job_id, None)
        self.ghosts.remember()

    def node_left(self, node_id: str) -> list[list[Lease]]:
        """Before the scheduler places again what was there; the groups are for ``regroup`` afterwards."""
        self.ghosts.node_left(node_id)
        self.standing.forget(node_id)
        return self.failover.node_left(self._scheduler.cluster.nodes.get(node_id).number)

    def is_strange(self, slot: str) -> bool:
        """A slot that a controller before us gave, and whose work may still be on its way."""
        young = self._now() - self._began < _STRANGE_SECONDS
        return young and slot not in self.by_slot and not self.slots.is_free(slot)

    # The rest

    def _decide(self, known_as: str, ask: Ask) -> tuple[Workload, set[str]]:
        """Placed, or waiting; and the actors that have to be placed before anything can be decided."""
        unplaced = self._look_up(ask.request)
        if unplaced:
            return Workload(known_as, ask.request, ask.labels, self._scheduler.next_order()), unplaced
        return self._scheduler.submit(known_as, ask.request, ask.labels), unplaced

    def _enter(self, slot: str, ask: Ask, workload: Workload, job_id: str, unplaced: set[str]) -> Lease:
        lease = Lease(slot, ask, workload, self._now(), job_id)
        lease.unplaced = unplaced
        for actor_id in unplaced:
            self._undecided[actor_id].append(lease)
        self._table.add(lease)
        self.standing.changed(lease)
        return lease

    def _adopt(self, slot: str, text: str, job_id: str, node_id: str | None) -> Lease:
        """It was given by a controller that is no more: it is where it runs, or where its token stands."""
        ask = decode_ask(text)
        node = self._scheduler.cluster.nodes.by_id.get(node_id or self._token_on(lease_token(slot)) or "")
        if node is None:
            workload, unplaced = self._decide(slot, ask)
            return self._enter(slot, ask, workload, job_id, unplaced)
        self._look_up(ask.request)
        workload = Workload(slot, ask.request, ask.labels, self._scheduler.next_order())
        self._scheduler.cluster.place(workload, Host(None, node.number, None))
        lease = self._enter(slot, ask, workload, job_id, set())
        lease.told = node.node_id  # by that controller
        return lease

    def _end(self, lease: Lease) -> None:
        self._table.remove(lease)
        self.standing.ended(lease)
        if lease.is_actor:  # its worker is gone with it
            self.slots.give_back(lease.slot, after=_WRITTEN_SECONDS)
        else:
            self.slots.give_back(lease.slot)
            self._port.put(_KEY + lease.slot, None)
        for actor_id in lease.unplaced:
            self._undecided[actor_id].remove(lease)
        if not lease.unplaced:
            self._scheduler.finish(lease.workload)

    def placed_or_put_back(self, item: Workload | Group | VCluster) -> None:
        lease = self._table.of(item) if isinstance(item, Workload) else None
        if lease is not None:
            self._changed(lease)

    def _changed(self, lease: Lease) -> None:
        self.standing.changed(lease)
        self._tell(lease)

    def _tell(self, lease: Lease) -> None:
        """Into the time line of its actor: what was decided, and for which reason."""
        node_id = self._table.node_of(lease)
        if lease.actor_id and node_id is not None and node_id != lease.told:
            lease.told = node_id
            asked = wants(lease.ask.request)
            because = f"it asks for {asked}" if asked else "any node would do"
            self._note("lease", lease.actor_id, f"decided {node_id[:12]} because {because}")

    def _claimed_by(self, work: Work) -> Lease | None:
        """The lease of an actor that is seen for the first time."""
        slot = work.labels.get(LEASE_LABEL)
        if slot is None or work.state == ENDED:
            return None
        lease = self.by_slot.get(slot)
        if lease is None:
            lease = self._adopt(slot, work.labels[REQUEST_LABEL], work.job_id, next(iter(work.node_ids), None))
        elif lease.actor_id:
            return None
        self._bind(lease, work.work_id)
        return lease

    def _bind(self, lease: Lease, actor_id: str) -> None:
        self.ghosts.lay(actor_id)
        self._table.bind(lease, actor_id)
        self._tell(lease)
        if lease.told is None:
            self._note("lease", actor_id, "waits: no node for it now")
        if self._table.is_named(actor_id):
            self._scheduler.settle()  # what waits for this very actor can find it now

    def _hear(self, work: Work) -> None:
        """Its slot may be claimed a moment later."""
        self._heard.pop(work.work_id, None)
        self._heard[work.work_id] = work
        if len(self._heard) > _MOST_HEARD:
            del self._heard[next(iter(self._heard))]

    def _lives(self, actor_id: str) -> bool:
        """Asked once more by itself: while a table is read, one that changes may be missed."""
        return any(work.state != ENDED for work in self._port.find(actor_id))

    def _job_ended(self, job_id: str) -> None:
        for lease in [lease for lease in self.by_slot.values() if not lease.is_actor and lease.owner_job == job_id]:
            self._end(lease)
        self.ghosts.job_ended(job_id)

    def _look_up(self, request: Request) -> set[str]:
        """Actors that a request names by their handles: where they are is asked once, and heard from then on. Which of those
        that it has to keep away from Ray has yet to place."""
        unplaced = set()
        for term in handles(request):
            for actor_id in term.values:
                if actor_id in self._table.by_actor or actor_id in self.ghosts:
                    continue
                for work in self._port.find(actor_id):
                    self.see(replace(work, labels={**work.labels, ACTOR_ID: actor_id}))
                    if work.state == WAITING and LEASE_LABEL not in work.labels and term.hard and not term.positive:
                        unplaced.add(actor_id)
        return unplaced

    def _decide_beside(self, actor_id: str) -> None:
        """An actor that Ray placed is there or gone: what had to keep away from it can be decided."""
        for lease in self._undecided.pop(actor_id, ()):
            lease.unplaced.discard(actor_id)
            if not lease.unplaced:
                known_as = lease.workload.workload_id
                lease.workload = self._scheduler.submit(known_as, lease.ask.request, lease.ask.labels)
                self._changed(lease)
