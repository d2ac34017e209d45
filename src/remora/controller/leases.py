"""Leases: one actor or task each, on the one node that the kernel chose for it.

A lease has a *slot*, whose token the work needs to be placed. The token stands on the chosen node from the decision until
the actor lives there (it does not hold it), or the task has ended. So when an actor dies and Ray starts it again, it waits
for its token, and the kernel decides anew under the rules of that moment.

What a killed controller forgets it reads back: an actor's slot and request are labels of the actor in GCS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from remora.kernel.cycle import Scheduler
from remora.kernel.gang import Gang, Item
from remora.kernel.nodes import Node
from remora.kernel.placement import decide
from remora.kernel.rules import Query
from remora.kernel.rules.affinity import AffinityRule
from remora.kernel.workloads import Host, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY, Resources
from remora.model.selectors import LabelSelector
from remora.model.strategies import ACTOR, OBJECT, STAY, TOGETHER, Affinity
from remora.model.taints import Tolerations
from remora.seam.port import ENDED, JOB, RUNNING, WAITING, Port, Work
from remora.wire.leases import LEASE_LABEL, REQUEST_LABEL, Ask, decode_ask, encode_ask, own_labels
from remora.wire.tokens import lease_token

CLAIM_SECONDS = 10.0
"""A lease that nothing has claimed by then is taken back: the caller died, or the actor was there already."""

_COOL_SECONDS = 2.0
_REPORTED_SECONDS = 0.5  # until what a new actor takes is in the report of its node
_STRANGE_SECONDS = 15.0
_GENERATION = "generation"
_KEY = "lease/"
_OBJECT = "object/"
_MOST_HEARD = 2_000
_POOL = 4
_BUSY_SECONDS = 10.0
_KNOWN_SECONDS = 0.3

Note = Callable[[str, str, str], None]


class Lease:
    """``actor_id`` is "" until the actor is seen in GCS; ``alive_at`` is when it was first seen running where it is.

    ``unplaced`` are actors that it has to keep away from and that Ray has yet to place: until then nothing can be decided.
    """

    __slots__ = ("actor_id", "alive_at", "ask", "made_at", "owner_job", "slot", "unplaced", "workload")

    def __init__(self, slot: str, ask: Ask, workload: Workload, made_at: float, owner_job: str) -> None:
        self.slot = slot
        self.ask = ask
        self.workload = workload
        self.made_at = made_at
        self.owner_job = owner_job
        self.actor_id = ""
        self.alive_at: float | None = None
        self.unplaced: set[str] = set()

    @property
    def is_actor(self) -> bool:
        return self.ask.request.kind == ACTOR


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
        self.by_slot: dict[str, Lease] = {}
        self._by_actor: dict[str, Lease] = {}
        self._free: list[tuple[float, str]] = []
        self._numbers = 0
        # Slots of a killed controller may still be on their way: ours are told apart by a number of its own.
        self._generation = int(port.get(_GENERATION) or b"0") + 1
        port.put(_GENERATION, str(self._generation).encode())
        self._ghosts: dict[str, Workload] = {}
        self._objects: dict[str, str] = {}
        self._heard: dict[str, Work] = {}
        self._moved = False
        self._pools: dict[str, list[tuple[float, str]]] = {}
        self._busy_at = -_BUSY_SECONDS

    # What clients ask

    def place(self, ask: Ask, job_id: str) -> tuple[str, str | None]:
        """A slot for this work, and its node if there is one for it now."""
        slot = self._slot()
        lease = self._add(slot, ask, job_id)
        self._busy_at = self._now()
        if (ready := self._from_pool(lease)) is not None:
            self._free.append((self._now(), slot))
            slot = ready
        if not lease.is_actor:  # GCS keeps an actor's labels, and of a task nothing that we could read back
            self._port.put(_KEY + slot, json.dumps([job_id, encode_ask(ask)]).encode())
        return slot, self.node_of(lease)

    def remember(self) -> None:
        """Tasks that a controller before us gave leases to."""
        for key in self._port.keys(_KEY):
            slot = key.removeprefix(_KEY)
            job_id, text = json.loads(self._port.get(key) or b"[]")
            node = self._scheduler.cluster.nodes.by_id.get(self._token_on(lease_token(slot)) or "")
            ask = decode_ask(text)
            if node is None:
                self._add(slot, ask, job_id)
            else:
                self._add_at(node, slot, ask, job_id)
        for key in self._port.keys(_OBJECT):
            labels, node_id, namespace, job_id = json.loads(self._port.get(key) or b"[]")
            pairs = tuple((name, value) for name, value in labels)
            self._lay_out(key.removeprefix(_OBJECT), pairs, node_id, namespace, job_id)

    def is_strange(self, slot: str) -> bool:
        """A slot that a controller before us gave, and whose work may still be on its way."""
        young = self._now() - self._began < _STRANGE_SECONDS
        return young and slot not in self.by_slot and all(slot != ended for _, ended in self._free)

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

    def _from_pool(self, lease: Lease) -> str | None:
        """A slot whose token every raylet knows to be on the chosen node already: it starts without waiting for that."""
        pool = self._pools.get(self.node_of(lease) or "", [])
        if not pool or self._now() - pool[0][0] < _KNOWN_SECONDS:
            return None
        _, slot = pool.pop(0)
        del self.by_slot[lease.slot]
        self._scheduler.cluster.rename(lease.workload, slot)
        lease.slot = slot
        self.by_slot[slot] = lease
        return slot

    def fill_pools(self) -> None:
        """While leases are asked for, each node has a few slots in reserve; afterwards none."""
        alive = self._scheduler.cluster.nodes.by_id
        most = _POOL if self._now() - self._busy_at < _BUSY_SECONDS else 0
        for node_id in [*self._pools, *(alive if most else ())]:
            pool = self._pools.setdefault(node_id, [])
            if node_id not in alive or len(pool) > most:
                self._free.extend((self._now() + _COOL_SECONDS, slot) for _, slot in pool)
                del self._pools[node_id]
            else:
                pool.extend((self._now(), self._slot()) for _ in range(most - len(pool)))

    def give_up(self, slot: str) -> None:
        """The work was never started, or has ended."""
        lease = self.by_slot.get(slot)
        if lease is not None:
            self._end(lease)

    # What the cluster tells

    def see(self, work: Work) -> None:
        """An actor has come, changed or gone."""
        if work.kind == JOB:
            self.job_ended(work.job_id)
            return
        lease = self._by_actor.get(work.work_id) or self._claim(work)
        if lease is None:
            self._hear(work)
            self._see_other(work)
            return
        if work.state == ENDED:
            self._end(lease)
        elif work.state == RUNNING:
            self._runs(lease, work)
        elif work.state == WAITING and work.detail == "RESTARTING" and lease.alive_at is not None:
            self._restarts(lease)

    def see_all(self, works: Iterable[Work]) -> None:
        """Every actor that there is: what was missed is made good, and what nobody claimed is taken back."""
        living = {}
        for work in works:
            self.see(work)
            if work.state != ENDED:
                living[work.work_id] = work
        for lease in list(self.by_slot.values()):
            gone = lease.actor_id and lease.actor_id not in living and not self._lives(lease.actor_id)
            if gone or (not lease.actor_id and lease.is_actor and self._now() - lease.made_at > CLAIM_SECONDS):
                self._end(lease)
        for actor_id in [ghost for ghost in self._ghosts if ghost not in living and ghost not in self._objects]:
            if not self._lives(actor_id):
                self._lay(actor_id)

    def _lives(self, actor_id: str) -> bool:
        """Asked once more by itself: while a table is read, one that changes may be missed."""
        return any(work.state != ENDED for work in self._port.find(actor_id))

    def node_left(self, node_id: str) -> list[list[Lease]]:
        """Before the scheduler places again what was there. Groups that move together are left to ``regroup``."""
        for ghost_id, ghost in list(self._ghosts.items()):
            if ghost.placed and self._scheduler.cluster.nodes.at(ghost.node).node_id == node_id:
                self._lay(ghost_id)
                if ghost_id in self._objects:
                    self.drop_object(ghost_id)
        lost = [lease for lease in self.by_slot.values() if self.node_of(lease) == node_id]
        groups: list[list[Lease]] = []
        for lease in lost:
            lease.alive_at = None
            self._moved = True
        for lease in lost:
            members = [
                other for other in lost if other is not lease and other.workload.placed and self._moves_with(other, lease)
            ]
            if members and lease.workload.placed:
                groups.append([lease, *members])
                for each in groups[-1]:
                    self._scheduler.cluster.release(each.workload)
        return groups

    def regroup(self, groups: list[list[Lease]]) -> None:
        """Their node is gone: each group goes to one node that fits it, or else everybody alone."""
        for group in groups:
            if not self._place_together(group):
                for lease in group:
                    known_as = lease.workload.workload_id
                    lease.workload = self._scheduler.submit(known_as, lease.ask.request, lease.ask.labels)

    def job_ended(self, job_id: str) -> None:
        for lease in [lease for lease in self.by_slot.values() if not lease.is_actor and lease.owner_job == job_id]:
            self._end(lease)
        for object_id in [object_id for object_id, job in self._objects.items() if job == job_id]:
            self.drop_object(object_id)

    # Objects

    def put_object(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        """An object with labels lies on a node."""
        self._port.put(_OBJECT + object_id, json.dumps([labels, node_id, namespace, job_id]).encode())
        self._lay_out(object_id, labels, node_id, namespace, job_id)

    def drop_object(self, object_id: str) -> None:
        self._port.put(_OBJECT + object_id, None)
        self._objects.pop(object_id, None)
        self._lay(object_id)

    def _lay_out(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        node = self._scheduler.cluster.nodes.by_id.get(node_id)
        if node is not None and object_id not in self._ghosts:
            self._objects[object_id] = job_id
            self._haunt(object_id, node, labels, _nothing(OBJECT, namespace))

    # What steering needs

    def tokens(self) -> Iterable[tuple[str, str]]:
        """Node and token of every lease whose work has yet to start there, and of the slots in reserve."""
        for lease in self.by_slot.values():
            node_id = self.node_of(lease)
            if node_id is not None and lease.alive_at is None:
                yield node_id, lease_token(lease.slot)
        for node_id, pool in self._pools.items():
            for _, slot in pool:
                yield node_id, lease_token(slot)

    def taken(self) -> dict[str, Resources]:
        """What is promised on each node but not in its report yet."""
        promised: dict[str, Resources] = {}
        for lease in self.by_slot.values():
            node_id = self.node_of(lease)
            fresh = lease.alive_at is None or self._now() - lease.alive_at < _REPORTED_SECONDS
            if node_id is not None and fresh and lease.is_actor:
                promised[node_id] = promised.get(node_id, EMPTY) + lease.ask.request.resources
        return promised

    def node_of(self, lease: Lease) -> str | None:
        workload = lease.workload
        return self._scheduler.cluster.nodes.at(workload.node).node_id if workload.placed else None

    def of_slot(self, slot: str) -> Lease | None:
        return self.by_slot.get(slot)

    # The rest

    def _slot(self) -> str:
        ready = [entry for entry in self._free if entry[0] <= self._now()]
        if ready:
            lowest = min(ready, key=lambda entry: (len(entry[1]), entry[1]))  # so that few names are ever in use
            self._free.remove(lowest)
            return lowest[1]
        self._numbers += 1
        return f"{self._generation}.{self._numbers}"

    def _add(self, slot: str, ask: Ask, job_id: str) -> Lease:
        unplaced = self._follow(ask.request)
        if unplaced:
            workload = Workload(slot, ask.request, ask.labels, self._scheduler.next_order())
        else:
            workload = self._scheduler.submit(slot, ask.request, ask.labels)
        lease = self.by_slot[slot] = Lease(slot, ask, workload, self._now(), job_id)
        lease.unplaced = unplaced
        return lease

    def _settled(self, actor_id: str) -> None:
        """An actor is placed or gone: what had to keep away from it can be decided."""
        for lease in self.by_slot.values():
            if actor_id in lease.unplaced:
                lease.unplaced.discard(actor_id)
                if not lease.unplaced:
                    known_as = lease.workload.workload_id
                    lease.workload = self._scheduler.submit(known_as, lease.ask.request, lease.ask.labels)

    def _add_at(self, node: Node, slot: str, ask: Ask, job_id: str) -> Lease:
        """It was decided before we were here."""
        workload = Workload(slot, ask.request, ask.labels, self._scheduler.next_order())
        self._scheduler.cluster.place(workload, Host(None, node.number, None))
        lease = self.by_slot[slot] = Lease(slot, ask, workload, self._now(), job_id)
        return lease

    def _claim(self, work: Work) -> Lease | None:
        """The lease of an actor that is seen for the first time."""
        slot = work.labels.get(LEASE_LABEL)
        if slot is None or work.state == ENDED:
            return None
        lease = self.by_slot.get(slot)
        if lease is None:  # given by a controller that is no more
            lease = self._adopt(slot, work)
        elif lease.actor_id:
            return None
        self._bind(lease, work.work_id)
        return lease

    def _bind(self, lease: Lease, actor_id: str) -> None:
        self._by_actor[actor_id] = lease
        lease.actor_id = actor_id
        self._lay(actor_id)
        self._scheduler.cluster.rename(lease.workload, actor_id)
        if self._named():
            self._scheduler.settle()  # what waits for this very actor can find it now

    def _hear(self, work: Work) -> None:
        """Its slot may be claimed a moment later."""
        self._heard.pop(work.work_id, None)
        self._heard[work.work_id] = work
        if len(self._heard) > _MOST_HEARD:
            del self._heard[next(iter(self._heard))]

    def _adopt(self, slot: str, work: Work) -> Lease:
        ask = decode_ask(work.labels[REQUEST_LABEL])
        self._follow(ask.request)
        cluster = self._scheduler.cluster
        node = cluster.nodes.by_id.get(work.node_ids[0] if work.node_ids else self._token_on(lease_token(slot)) or "")
        return self._add(slot, ask, work.job_id) if node is None else self._add_at(node, slot, ask, work.job_id)

    def _runs(self, lease: Lease, work: Work) -> None:
        if lease.alive_at is None:
            lease.alive_at = self._now()
            self._note("lease", lease.actor_id, f"runs on {work.node_ids[0][:12] if work.node_ids else 'its node'}")

    def _restarts(self, lease: Lease) -> None:
        before = self.node_of(lease)
        lease.alive_at = None
        if not self._move_together(lease):
            self._scheduler.fail(lease.workload)
        after = self.node_of(lease)
        where = f"decided {after[:12]}" if after else "waits: no node for it now"
        self._note("lease", lease.actor_id, f"restarts; it was on {before[:12] if before else 'a lost node'}; {where}")
        self._moved |= after != before

    def _move_together(self, lease: Lease) -> bool:
        """It takes those with it that are declared to move with it, if one node fits them all and it cannot stay."""
        cluster = self._scheduler.cluster
        others = [other for other in self.by_slot.values() if other is not lease and self._moves_with(other, lease)]
        if not others or not lease.workload.placed:
            return False
        old = lease.workload.node
        cluster.release(lease.workload)
        host = decide(cluster, lease.ask.request, lease.ask.labels, lease.workload.workload_id)
        if host is None or host.node != old:
            for other in others:
                cluster.release(other.workload)
            if self._place_together([lease, *others]):
                for other in others:
                    self._send_after(other, lease)
                return True
            for other in others:
                cluster.place(other.workload, Host(None, old, None))
        # As it was, for the scheduler to fail it: it stays if it can, or goes alone.
        cluster.place(lease.workload, Host(None, old, None))
        return False

    def _place_together(self, group: list[Lease]) -> bool:
        """All of them on one node, if there is one; none of them is placed."""
        cluster = self._scheduler.cluster
        items = [Item(each.ask.request.resources, each.ask.request.choices[0]) for each in group]
        hosts = Gang(cluster, None, items, ["STRICT_PACK"], [None] * len(items), by_node=True).place()
        if hosts is None:
            return False
        for each in group:
            cluster.place(each.workload, hosts[0])
        return True

    def _moves_with(self, other: Lease, lease: Lease) -> bool:
        together = [each for each in other.ask.request.affinities if each.on_failover == TOGETHER]
        same = other.workload.placed and lease.workload.placed and other.workload.node == lease.workload.node
        return bool(same and any(self._joins(affinity, other, lease) for affinity in together))

    def _joins(self, affinity: Affinity, other: Lease, lease: Lease) -> bool:
        """Whether an affinity of ``other`` is met by this very lease."""
        for term in affinity.hard:
            if term.positive and term.key == ACTOR_ID and lease.actor_id in term.values:
                return True
            within = other.ask.request.namespace == lease.ask.request.namespace
            if term.positive and term.key != ACTOR_ID and within and term.matches(dict(lease.ask.labels)):
                return True
        return False

    def follow(self) -> None:
        """Somebody has moved: those that are declared to follow, and whose rules hold somewhere else only, are sent there."""
        if not self._moved:
            return
        self._moved = False
        for lease in list(self.by_slot.values()):
            request = lease.ask.request
            if lease.alive_at is None or all(each.on_failover == STAY for each in request.affinities):
                continue
            if self._still_holds(lease):
                continue
            host = decide(self._scheduler.cluster, request, lease.ask.labels, lease.workload.workload_id)
            if host is None:
                self._moved = True  # not yet: the one it follows may still be waiting
            else:
                self._note("lease", lease.actor_id, "is restarted to follow the actor that it joined")
                self._port.restart(lease.actor_id)

    def _still_holds(self, lease: Lease) -> bool:
        query = Query(lease.ask.request, lease.ask.request.choices[0], lease.ask.labels, lease.workload.workload_id)
        here = 1 << lease.workload.node
        return all(screen.passing(here) for screen in AffinityRule().screens(self._scheduler.cluster, query))

    def _send_after(self, other: Lease, lease: Lease) -> None:
        if other.alive_at is not None:
            other.alive_at = None
            self._note("lease", other.actor_id, f"is restarted to move together with {lease.actor_id[:12]}")
            self._port.restart(other.actor_id)

    def _end(self, lease: Lease) -> None:
        del self.by_slot[lease.slot]
        self._by_actor.pop(lease.actor_id, None)
        # The last user of a task's slot may not have returned its worker yet; an actor's worker is gone with it.
        self._free.append((self._now() + (0.0 if lease.is_actor else _COOL_SECONDS), lease.slot))
        if not lease.is_actor:
            self._port.put(_KEY + lease.slot, None)
        if not lease.unplaced:
            self._scheduler.finish(lease.workload)

    # Actors without a lease that somebody refers to, or that bear labels

    def _follow(self, request: Request) -> set[str]:
        """Actors that a request names by their handles: where they are is asked once, and heard from then on. Which of those
        that it has to keep away from Ray has yet to place."""
        unplaced = set()
        for affinity in request.affinities:
            for term in affinity.expressions:
                for actor_id in term.values if term.key == ACTOR_ID else ():
                    if actor_id in self._by_actor or actor_id in self._ghosts:
                        continue
                    for work in self._port.find(actor_id):
                        self.see(replace(work, labels={**work.labels, ACTOR_ID: actor_id}))
                        if work.state == WAITING and LEASE_LABEL not in work.labels and term.hard and not term.positive:
                            unplaced.add(actor_id)
        return unplaced

    def _see_other(self, work: Work) -> None:
        """An actor that Ray placed: what it bears or who names it makes it count."""
        labels = own_labels(work.labels)
        if work.state != RUNNING:
            self._lay(work.work_id)
        elif work.work_id not in self._ghosts and (labels or work.work_id in self._named()):
            node = self._scheduler.cluster.nodes.by_id.get(work.node_ids[0]) if work.node_ids else None
            if node is not None:
                shown = tuple(pair for pair in labels if pair[0] != ACTOR_ID)
                self._haunt(work.work_id, node, shown, _nothing(ACTOR, work.namespace))
        if work.state != WAITING:
            self._settled(work.work_id)

    def _haunt(self, ghost_id: str, node: Node, labels: Labels, request: Request) -> None:
        """Something counts on a node although nobody placed it here."""
        ghost = self._ghosts[ghost_id] = Workload(ghost_id, request, labels, self._scheduler.next_order())
        self._scheduler.cluster.place(ghost, Host(None, node.number, None))
        self._scheduler.settle()

    def _named(self) -> set[str]:
        """The actors that what waits wants to be near to."""
        waiting = (lease.ask.request for lease in self.by_slot.values() if not lease.workload.placed)
        terms = (term for request in waiting for affinity in request.affinities for term in affinity.expressions)
        return {actor_id for term in terms if term.key == ACTOR_ID for actor_id in term.values}

    def _lay(self, actor_id: str) -> None:
        ghost = self._ghosts.pop(actor_id, None)
        if ghost is not None and ghost.placed:
            self._scheduler.cluster.release(ghost)
            self._scheduler.settle()


def _nothing(kind: str, namespace: str) -> Request:
    """What it takes is in the report of its node already."""
    return Request(kind, EMPTY, EMPTY, (NodeClass(LabelSelector(), Tolerations()),), namespace=namespace)
