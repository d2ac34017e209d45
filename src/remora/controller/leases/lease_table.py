"""The leases that there are, found by slot, by actor, by question, by node and by the actors that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.workloads import Workload
from remora.model.labels import ACTOR_ID
from remora.model.requests import Request
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import ACTOR, TOGETHER
from remora.wire.asks import Ask
from remora.wire.timing import CLAIM_SECONDS


class Lease:
    """``question`` is the id of the call that it was the answer to, ``worker_id`` who asked. ``actor_id`` is "" until the actor
    is seen in GCS; ``live_since`` is when it was first seen running where it is.

    ``unplaced`` are actors that it has to keep away from and of which it is not known where they are: until then nothing can be
    decided. ``token_on`` is the node where its token should stand, ``leaving`` nodes where it stands still from before;
    ``told`` is the node that its time line says was decided.
    """

    __slots__ = (
        "actor_id",
        "ask",
        "leaving",
        "live_since",
        "made_at",
        "missing",
        "owner_job",
        "question",
        "slot",
        "token_on",
        "told",
        "unplaced",
        "worker_id",
        "workload",
    )

    def __init__(self, slot: str, ask: Ask, workload: Workload, made_at: float, owner_job: str) -> None:
        self.slot = slot
        self.ask = ask
        self.question = self.worker_id = self.actor_id = ""
        self.workload = workload
        self.made_at = made_at
        self.owner_job = owner_job
        self.live_since: float | None = None
        self.unplaced: set[str] = set()
        self.token_on: str | None = None
        self.leaving: str | None = None
        self.told: str | None = None
        self.missing = False

    @property
    def is_actor(self) -> bool:
        return self.ask.request.kind == ACTOR

    @property
    def cluster_id(self) -> str | None:
        return self.workload.request.cluster


class LeaseTable:
    """The only writer of these indexes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._named: Counter[str] = Counter()
        self._by_slot: dict[str, Lease] = {}
        self._by_actor: dict[str, Lease] = {}
        self._mates: dict[str, Lease] = {}
        self._by_question: dict[str, Lease] = {}
        self._over: dict[str, tuple[str, float]] = {}  # questions about what has ended: the slot that was the answer, and when
        self._by_worker: dict[str, set[str]] = {}  # tasks, by who asked for them

    @property
    def by_slot(self) -> Mapping[str, Lease]:
        return self._by_slot

    @property
    def by_actor(self) -> Mapping[str, Lease]:
        return self._by_actor

    @property
    def mates(self) -> Mapping[str, Lease]:
        """Return those that move together with others of their domain, by slot."""
        return self._mates

    def add(self, lease: Lease) -> None:
        assert lease.slot not in self._by_slot, lease.slot
        self._by_slot[lease.slot] = lease
        self._named.update(named_by(lease.ask.request))
        if moves_within(lease.ask.request):
            self._mates[lease.slot] = lease

    def asked(self, lease: Lease, question: str, worker_id: str) -> None:
        """Note which question a lease was the answer to, and who asked."""
        lease.question, lease.worker_id = question, worker_id
        if question:
            self._by_question[question] = lease
        if worker_id and not lease.is_actor:
            self._by_worker.setdefault(worker_id, set()).add(lease.slot)

    def remove(self, lease: Lease, now: float) -> None:
        if self._by_question.pop(lease.question, None) is not None:
            self._over[lease.question] = lease.slot, now
        while self._over and next(iter(self._over.values()))[1] < now - CLAIM_SECONDS:
            del self._over[next(iter(self._over))]
        del self._by_slot[lease.slot]
        self._mates.pop(lease.slot, None)
        if self._by_actor.get(lease.actor_id) is lease:
            del self._by_actor[lease.actor_id]
        if lease.worker_id in self._by_worker:
            self._by_worker[lease.worker_id].discard(lease.slot)
            if not self._by_worker[lease.worker_id]:
                del self._by_worker[lease.worker_id]
        for actor_id in named_by(lease.ask.request):
            self._named[actor_id] -= 1
            if not self._named[actor_id]:
                del self._named[actor_id]

    def bind(self, lease: Lease, actor_id: str) -> None:
        """From now on the kernel knows it as this actor."""
        self._by_actor[actor_id] = lease
        lease.actor_id = actor_id
        self._cluster.rename(lease.workload, actor_id)

    def is_named(self, actor_id: str) -> bool:
        """Return whether some lease wants to be near to this actor, or away from it."""
        return actor_id in self._named

    def answer_to(self, question: str) -> Lease | None:
        return self._by_question.get(question)

    def answered(self, question: str) -> str | None:
        """Return the slot that was the answer to a question, where what it was given for has just ended: only a call that was
        sent twice asks that again."""
        return self._over[question][0] if question in self._over else None

    def of_worker(self, worker_id: str) -> list[Lease]:
        """Return the tasks that a worker asked for."""
        return [self._by_slot[slot] for slot in self._by_worker.get(worker_id, ())]

    def workers(self) -> list[str]:
        """Return the workers that have asked for tasks with leases."""
        return list(self._by_worker)

    def of(self, workload: Workload) -> Lease | None:
        found = self._by_actor.get(workload.workload_id) or self._by_slot.get(workload.workload_id)
        return found if found is not None and found.workload is workload else None

    def on_node(self, number: int) -> list[Lease]:
        return [lease for each in self._cluster.on_node[number].values() if (lease := self.of(each)) is not None]

    def node_of(self, lease: Lease) -> str | None:
        """Return the node that a lease was decided on, or is observed on; None while it waits."""
        return self.node_at(lease.workload)

    def node_at(self, workload: Workload) -> str | None:
        return self._cluster.nodes.at(workload.node).node_id if workload.placed else None

    def validate(self) -> None:
        """Raise AssertionError when the indexes contradict each other."""
        for slot, lease in self._by_slot.items():
            assert lease.slot == slot
            assert not lease.actor_id or self._by_actor.get(lease.actor_id) is lease, lease.slot
            assert lease.workload.workload_id in (lease.slot, lease.actor_id), lease.slot
        for actor_id, lease in self._by_actor.items():
            assert lease.actor_id == actor_id
            assert self._by_slot.get(lease.slot) is lease, actor_id


def handles(request: Request) -> Iterator[LabelMatchExpression]:
    """Return the expressions that name actors by their handles."""
    for affinity in request.affinities:
        yield from (term for term in affinity.expressions if term.key == ACTOR_ID)


def moves_within(request: Request) -> tuple[str, ...]:
    """Return the labels of the domains in which work joins others to move together with them."""
    return tuple(
        dict.fromkeys(
            term.topology
            for affinity in request.affinities
            if affinity.on_failover == TOGETHER
            for term in affinity.hard
            if term.positive and term.topology
        )
    )


def named_by(request: Request) -> list[str]:
    return [actor_id for term in handles(request) for actor_id in term.values]


def wants(request: Request) -> str:
    """Return what is asked for as people read it: ``zone=a, actors with type=cat``; empty when any node will do."""
    selector = request.choices[0].selector
    terms = [f"{each.owner}s with {term.show()}" for each in request.affinities for term in each.expressions]
    spreads = [f"spread over {each.over}" for each in request.spreads]
    return ", ".join([*([str(selector)] if selector.terms else []), *terms, *spreads])
