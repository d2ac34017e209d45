"""Admission: who may start or go on in virtual clusters, and which of them are *overdrawn* or only borrow.

A cluster is overdrawn while more of it runs than may, because a worker came back from ``ray.get``: nothing of it starts until
that is repaid. Where a minimum is owed to somebody, whoever has borrowed it starts nothing new on that node. Both stand in the
fences of nodes; what wants to start there waits for admission.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from remora.controller.clusters.lending import Kind, Lending, Waiter
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.room import Room
from remora.controller.clusters.use import Reclaimed, Use
from remora.controller.context import Context
from remora.controller.tokens.book import Book, Units
from remora.controller.tokens.node_fences import Fences
from remora.kernel.state.cluster import Cluster
from remora.wire.fences import ELSEWHERE, GO, ROOT
from remora.wire.timing import TOLD_SECONDS

_PATIENT_SECONDS = 2.0


class Admission:
    def __init__(
        self, context: Context, cluster: Cluster, registry: Registry, use: Use, lending: Lending, book: Book, fences: Fences
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._registry = registry
        self._use = use
        self._lending = lending
        self._book = book
        self._fences = fences
        self._lent = lending.watch()
        self._overdrawn: set[str] = set()
        self._borrowers: dict[str, set[str]] = {}
        self._reclaimed: Reclaimed = {}

    @property
    def overdrawn(self) -> Collection[str]:
        """The clusters of which nothing may start."""
        return self._overdrawn

    def is_overdrawn(self, cluster_id: str) -> bool:
        return cluster_id in self._overdrawn

    def answer(self, worker_id: str) -> str | None:
        """Return what somebody who waits for admission is told; None while it has to wait."""
        if self._lending.tell_admitted(worker_id):
            return self._lending.tell(worker_id, GO)
        waiter = self._lending.find(worker_id)
        if waiter is None or waiter.kind is not Kind.STARTING or not self._will_wait_long(waiter):
            return None
        self._lending.remove(worker_id)
        if waiter.cluster_id != ROOT:
            self._lending.hear(worker_id, *waiter.place, waiter.amounts, Kind.RESUBMITTED, part=waiter.part)
        return self._lending.tell(worker_id, ELSEWHERE)

    # In a round

    def find_borrowers(self, reclaimed: Reclaimed, lacking: Iterable[str]) -> bool:
        """Find out who uses more of a node than is left to it, because a minimum is owed to somebody else, or because what it
        has begun to use again was just divided otherwise (Ray gives a worker that has a lease the next task at once).
        ``lacking`` are nodes where a share should be larger. Return whether that is anybody else than before: workers have
        yet to be told."""
        before = self._borrowers
        self._reclaimed = reclaimed
        self._borrowers = {node_id: {ROOT} for node_id in self._use.crowded()}
        for node_id in lacking:
            for cluster_id in self._use.clusters_on(node_id):
                running, allowed = self._use.running(cluster_id, node_id), self._use.allowed(cluster_id, node_id, reclaimed)
                if self._registry.records[cluster_id].group is None and _beyond(running, allowed):
                    self._borrowers.setdefault(node_id, set()).add(cluster_id)
        for account, number in reclaimed:
            if not self._cluster.nodes.alive >> number & 1:
                continue
            node_id = self._cluster.nodes.at(number).node_id
            if account is None:
                over = _beyond(*self._use.outside_use(node_id, reclaimed))
            elif account in self._registry.records:
                over = _beyond(self._use.running(account, node_id), self._use.allowed(account, node_id, reclaimed))
            else:
                continue
            if over:
                self._borrowers.setdefault(node_id, set()).add(account or ROOT)
        return self._borrowers != before

    def admit(self, room: Room, changing: Collection[str]) -> None:
        """Between taking and giving: let on whoever there is room for by the tokens that are out, and say what is full.

        Who has begun already goes on soon in any case, but not before every worker knows that nothing else may start, and no
        placement group is about to reserve anything. ``changing`` are clusters whose tokens are being lowered right now: what
        is out of them is known in a moment.
        """
        for waiter in self._lending.line():
            with self._context.aside.care_of("worker", waiter.worker_id, "admitting"):
                is_returning, is_known = waiter.kind is Kind.RETURNING, waiter.cluster_id not in changing
                goes_on = is_known and (self._may_go_on(waiter, room) if is_returning else self._may_start(waiter, room))
                if goes_on or is_returning:  # who has begun already goes on before anybody else gets anything
                    room.use(waiter.node_id, waiter.cluster_id, waiter.amounts)
                if goes_on:
                    self._lending.admit(waiter.worker_id)
        self._find_overdrawn(room, changing)
        self._tell()

    # The rest

    def _may_go_on(self, waiter: Waiter, room: Room) -> bool:
        """Return whether a worker that comes back may use its share: there is room for it, or it may go beyond the maximum,
        beside whoever uses its share."""
        if waiter.cluster_id not in self._registry.records or room.allows(waiter.cluster_id, waiter.amounts):
            return True
        if not self._is_told(waiter.cluster_id):
            return False
        shares = (record.cluster_id for record, group in self._registry.group_shares() if group.under_way)
        return self._overdrawn.isdisjoint(shares)

    def _is_told(self, cluster_id: str) -> bool:
        """Return whether every worker of a cluster knows that it is overdrawn."""
        if cluster_id not in self._overdrawn:
            return False
        return all(self._fences.full_for(node_id, cluster_id) > TOLD_SECONDS for node_id in self._nodes_of(cluster_id))

    def _find_overdrawn(self, room: Room, changing: Collection[str]) -> None:
        """Only clusters of which something has changed can have become so, or have ceased to be."""
        touched = {*self._book.touched, *self._overdrawn, *(cluster_id for cluster_id, _ in self._lent)}
        self._book.touched.clear()
        self._lent.clear()
        look_at: set[str] = set()
        for account in touched:
            record = self._registry.records.get(account)
            if record is not None:
                look_at.add(record.vcluster.top.cluster_id)
        found: set[str] = set()
        for top in look_at:
            for cluster_id in self._below(top):
                if cluster_id in changing:
                    found |= {cluster_id} & self._overdrawn
                    self._book.touched.add(cluster_id)
                elif room.is_overdrawn(cluster_id):
                    found.add(cluster_id)
        self._overdrawn = found

    def _below(self, cluster_id: str) -> list[str]:
        record = self._registry.records.get(cluster_id)
        children = record.vcluster.children if record is not None else ()
        return [cluster_id, *(each for child in children for each in self._below(child))] if record is not None else []

    def _nodes_of(self, cluster_id: str) -> set[str]:
        """Return the nodes where work of a cluster may start: on its own share, or in a placement group of it."""
        accounts = [cluster_id, *(record.cluster_id for record in self._registry.groups_in(cluster_id))]
        return {node_id for account in accounts for node_id in self._book.places_of(account)}

    def _tell(self) -> None:
        full: dict[str, set[str]] = {node_id: set(borrowers) for node_id, borrowers in self._borrowers.items()}
        for cluster_id in self._overdrawn:
            record = self._registry.records[cluster_id]
            if record.group is None:
                for node_id in self._nodes_of(cluster_id):
                    full.setdefault(node_id, set()).add(cluster_id)
        for node_id in {*full, *self._fences.full_nodes()}:
            self._fences.fill(node_id, frozenset(full.get(node_id, ())))

    def _may_start(self, waiter: Waiter, room: Room) -> bool:
        if waiter.node_id not in self._cluster.nodes.by_id:
            return False
        if waiter.cluster_id != ROOT and waiter.cluster_id not in self._registry.records:
            return True  # it is gone: nothing holds them up
        if not waiter.amounts.pairs:  # a placement group holds what it will use
            return not room.is_overdrawn(waiter.cluster_id)
        running, allowed = self._use_of(waiter)
        if any(running.get(name, 0) + units > allowed.get(name, 0) for name, units in waiter.amounts.pairs):
            return False
        return waiter.cluster_id == ROOT or room.admits(waiter.node_id, waiter.cluster_id, waiter.amounts)

    def _will_wait_long(self, waiter: Waiter) -> bool:
        """Return whether its cluster has no share on its node that could ever take it, and got none for a while."""
        if self._context.now() - waiter.since < _PATIENT_SECONDS or waiter.node_id not in self._cluster.nodes.by_id:
            return False
        allowed = self._use_of(waiter)[1]
        return any(units > allowed.get(name, 0) for name, units in waiter.amounts.pairs)

    def _use_of(self, waiter: Waiter) -> tuple[Mapping[str, int], Units]:
        """Return what others like it use of its node, by the last report, and what they may."""
        if waiter.cluster_id == ROOT:
            return self._use.outside_use(waiter.node_id, self._reclaimed)
        if waiter.cluster_id not in self._registry.records:
            return {}, dict(waiter.amounts)
        running = self._use.running(waiter.cluster_id, waiter.node_id)
        return running, self._use.allowed(waiter.cluster_id, waiter.node_id, self._reclaimed)


def _beyond(used: Mapping[str, int], allowed: Mapping[str, int]) -> bool:
    return any(units > allowed.get(name, 0) for name, units in used.items())
