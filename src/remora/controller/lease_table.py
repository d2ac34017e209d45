"""The leases that there are, found by slot, by actor, by node and by the actors that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from remora.kernel.cluster import Cluster
from remora.kernel.workloads import Workload
from remora.model.labels import ACTOR_ID
from remora.model.requests import Request
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import ACTOR
from remora.wire.leases import Ask


class Lease:
    """``actor_id`` is "" until the actor is seen in GCS; ``alive_at`` is when it was first seen running where it is.

    ``unplaced`` are actors that it has to keep away from and that Ray has yet to place: until then nothing can be decided.
    ``token_on`` is the node where its token has to stand, ``told`` the one that its time line says was decided.
    """

    __slots__ = ("actor_id", "alive_at", "ask", "made_at", "owner_job", "slot", "token_on", "told", "unplaced", "workload")

    def __init__(self, slot: str, ask: Ask, workload: Workload, made_at: float, owner_job: str) -> None:
        self.slot = slot
        self.ask = ask
        self.workload = workload
        self.made_at = made_at
        self.owner_job = owner_job
        self.actor_id = ""
        self.alive_at: float | None = None
        self.unplaced: set[str] = set()
        self.token_on: str | None = None
        self.told: str | None = None

    @property
    def is_actor(self) -> bool:
        return self.ask.request.kind == ACTOR


class LeaseTable:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._named: Counter[str] = Counter()
        self.by_slot: dict[str, Lease] = {}
        self.by_actor: dict[str, Lease] = {}

    def add(self, lease: Lease) -> None:
        self.by_slot[lease.slot] = lease
        self._named.update(named_by(lease.ask.request))

    def remove(self, lease: Lease) -> None:
        del self.by_slot[lease.slot]
        self.by_actor.pop(lease.actor_id, None)
        for actor_id in named_by(lease.ask.request):
            self._named[actor_id] -= 1
            if not self._named[actor_id]:
                del self._named[actor_id]

    def bind(self, lease: Lease, actor_id: str) -> None:
        """From now on the kernel knows it as this actor."""
        self.by_actor[actor_id] = lease
        lease.actor_id = actor_id
        self._cluster.rename(lease.workload, actor_id)

    def is_named(self, actor_id: str) -> bool:
        """Whether some lease wants to be near to this actor, or away from it."""
        return actor_id in self._named

    def of(self, workload: Workload) -> Lease | None:
        return self.by_actor.get(workload.workload_id) or self.by_slot.get(workload.workload_id)

    def on_node(self, number: int) -> list[Lease]:
        return [lease for each in self._cluster.on_node[number].values() if (lease := self.of(each)) is not None]

    def node_of(self, lease: Lease) -> str | None:
        return self.node_at(lease.workload)

    def node_at(self, workload: Workload) -> str | None:
        return self._cluster.nodes.at(workload.node).node_id if workload.placed else None


def handles(request: Request) -> Iterator[LabelMatchExpression]:
    """The expressions that name actors by their handles."""
    for affinity in request.affinities:
        yield from (term for term in affinity.expressions if term.key == ACTOR_ID)


def named_by(request: Request) -> list[str]:
    return [actor_id for term in handles(request) for actor_id in term.values]


def wants(request: Request) -> str:
    """As people read it: ``zone=a, actors with type=cat``; empty when any node will do."""
    selector = request.choices[0].selector
    terms = [f"{each.owner}s with {term.show()}" for each in request.affinities for term in each.expressions]
    return ", ".join([*([str(selector)] if selector.terms else []), *terms])
