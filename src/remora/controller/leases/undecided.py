"""Leases of which nothing can be decided before it is known where other actors are: those that they name by their handles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from remora.controller.leases.bystanders import Bystanders
from remora.controller.leases.known_actors import KnownActors
from remora.controller.leases.lease_table import Lease, LeaseTable, handles
from remora.kernel.cycle import Scheduler
from remora.model.requests import Request
from remora.port.contract import RUNNING, WAITING, Work
from remora.wire.asks import LEASE_LABEL, own_labels


class Undecided:
    """The only writer of ``Lease.unplaced``. ``changed`` is told of every lease that was decided here."""

    def __init__(
        self,
        scheduler: Scheduler,
        table: LeaseTable,
        actors: KnownActors,
        bystanders: Bystanders,
        changed: Callable[[Lease], None],
    ) -> None:
        self._scheduler = scheduler
        self._table = table
        self._actors = actors
        self._bystanders = bystanders
        self._changed = changed
        self._by_actor: defaultdict[str, list[Lease]] = defaultdict(list)  # by the actor that they have to know of

    def __contains__(self, actor_id: str) -> bool:
        return actor_id in self._by_actor

    def unknown(self, request: Request) -> set[str]:
        """Return the actors that a request names by their handles and of which it is not known where they are; of those that
        Ray has yet to place only those that it has to keep away from."""
        unplaced = set()
        for term in handles(request):
            for actor_id in term.values:
                if actor_id in self._table.by_actor or actor_id in self._bystanders:
                    continue
                known = self._actors.get(actor_id)
                if known is None:
                    self._actors.look_up(actor_id)
                    unplaced.add(actor_id)
                elif known.state == RUNNING:
                    self.see_bystander(known, named=True)
                elif term.hard and not term.positive and LEASE_LABEL not in known.labels:
                    unplaced.add(actor_id)
        return unplaced

    def add(self, lease: Lease, unplaced: set[str]) -> None:
        """Keep a lease until these actors are known."""
        lease.unplaced = unplaced
        for actor_id in unplaced:
            self._by_actor[actor_id].append(lease)

    def in_cluster(self, cluster_id: str) -> list[Lease]:
        """Return the leases in a virtual cluster of which nothing can be decided yet."""
        undecided = (lease for leases in self._by_actor.values() for lease in leases)
        return list({lease.slot: lease for lease in undecided if lease.cluster_id == cluster_id}.values())

    def drop(self, lease: Lease) -> None:
        """There is nothing to decide about a lease any more."""
        for actor_id in lease.unplaced:
            self._by_actor[actor_id].remove(lease)
        lease.unplaced = set()

    def see_bystander(self, work: Work, *, named: bool = False) -> None:
        """An actor without a lease: what it bears or who names it makes it count, while it runs."""
        labels = own_labels(work.labels)
        if work.state != RUNNING:
            self._bystanders.drop(work.work_id)
        elif (labels or named or self._table.is_named(work.work_id)) and work.node_ids:
            self._bystanders.add_actor(work.work_id, work.node_ids[0], labels, work.namespace)
        if work.state != WAITING:
            self.decide_beside(work.work_id)

    def decide_beside(self, actor_id: str) -> None:
        """It is known where an actor is, or that it is gone: decide the leases that were waiting to know."""
        known = self._actors.get(actor_id)
        is_placed = known is None or known.state != WAITING or actor_id in self._table.by_actor
        for lease in list(self._by_actor.get(actor_id, ())):
            if not is_placed and _avoids(lease.ask.request, actor_id):
                continue
            self._by_actor[actor_id].remove(lease)
            lease.unplaced.discard(actor_id)
            if not lease.unplaced:
                known_as = lease.workload.workload_id
                lease.workload = self._scheduler.submit(known_as, lease.workload.request, lease.ask.labels)
                self._changed(lease)
        if not self._by_actor.get(actor_id):
            self._by_actor.pop(actor_id, None)


def _avoids(request: Request, actor_id: str) -> bool:
    """Return whether a request has to keep away from an actor."""
    return any(term.hard and not term.positive and actor_id in term.values for term in handles(request))
