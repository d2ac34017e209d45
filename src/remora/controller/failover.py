"""Failover: where an actor goes that restarts, and who goes with it.

``on_failover`` says what those do that joined it: they *stay* until they fail themselves, they *follow* when their rule holds
elsewhere only, or the group moves *together* to one node that fits them all.
"""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.lease_table import Lease, LeaseTable
from remora.kernel.cycle import Scheduler
from remora.kernel.gang import Gang, Item
from remora.kernel.placement import decide
from remora.kernel.rules import Query
from remora.kernel.rules.affinity import AffinityRule
from remora.kernel.workloads import Host
from remora.model.labels import ACTOR_ID
from remora.model.strategies import STAY, TOGETHER, Affinity
from remora.seam.port import Port

Note = Callable[[str, str, str], None]


class Failover:
    """``changed`` is told of every lease that was placed here or has stopped running."""

    def __init__(
        self, port: Port, scheduler: Scheduler, table: LeaseTable, note: Note, changed: Callable[[Lease], None]
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._table = table
        self._note = note
        self._changed = changed
        self._moved = False

    def restarts(self, lease: Lease) -> None:
        """Decided anew, under the rules of this moment."""
        before = self._table.node_of(lease)
        lease.alive_at = lease.told = None
        self._note("lease", lease.actor_id, f"restarts; it was on {before[:12] if before else 'a lost node'}")
        if not self._move_together(lease):
            self._scheduler.fail(lease.workload)
        self._changed(lease)
        after = self._table.node_of(lease)
        if after is None:
            self._note("lease", lease.actor_id, "waits: no node for it now")
        self._moved |= after != before

    def node_left(self, number: int) -> list[list[Lease]]:
        """Before the scheduler places again what was there: the groups that move together, which are left to ``regroup``."""
        lost = self._table.on_node(number)
        self._moved |= bool(lost)
        node_id = self._scheduler.cluster.nodes.at(number).node_id
        groups: list[list[Lease]] = []
        for lease in lost:
            lease.alive_at = lease.told = None
            if lease.actor_id:
                self._note("lease", lease.actor_id, f"its node {node_id[:12]} left")
        for lease in lost:
            members = [other for other in lost if other is not lease and self._moves_with(other, lease)]
            if members:
                groups.append([lease, *members])
                for each in groups[-1]:
                    self._scheduler.cluster.release(each.workload)
        return groups

    def regroup(self, groups: list[list[Lease]]) -> None:
        """Their node is gone: each group goes to one node that fits it, or else everybody alone."""
        for group in groups:
            together = self._place_together(group)
            for lease in group:
                if not together:
                    known_as = lease.workload.workload_id
                    lease.workload = self._scheduler.submit(known_as, lease.ask.request, lease.ask.labels)
                self._changed(lease)

    def follow(self) -> None:
        """Somebody has moved: those that are declared to follow, and whose rules hold somewhere else only, are sent there."""
        if not self._moved:
            return
        self._moved = False
        for lease in list(self._table.by_slot.values()):
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

    def _move_together(self, lease: Lease) -> bool:
        """It takes those with it that are declared to move with it, if one node fits them all and it cannot stay."""
        if not lease.workload.placed:
            return False
        cluster = self._scheduler.cluster
        old = lease.workload.node
        others = [other for other in self._table.on_node(old) if other is not lease and self._moves_with(other, lease)]
        if not others:
            return False
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

    def _send_after(self, other: Lease, lease: Lease) -> None:
        running = other.alive_at is not None
        other.alive_at = None
        self._changed(other)
        if running:
            self._note("lease", other.actor_id, f"is restarted to move together with {lease.actor_id[:12]}")
            self._port.restart(other.actor_id)

    def _moves_with(self, other: Lease, lease: Lease) -> bool:
        together = [each for each in other.ask.request.affinities if each.on_failover == TOGETHER]
        same = other.workload.placed and lease.workload.placed and other.workload.node == lease.workload.node
        return bool(same and any(_joins(affinity, other, lease) for affinity in together))

    def _still_holds(self, lease: Lease) -> bool:
        query = Query(lease.ask.request, lease.ask.request.choices[0], lease.ask.labels, lease.workload.workload_id)
        here = 1 << lease.workload.node
        return all(screen.passing(here) for screen in AffinityRule().screens(self._scheduler.cluster, query))


def _joins(affinity: Affinity, other: Lease, lease: Lease) -> bool:
    """Whether an affinity of ``other`` is met by this very lease."""
    within = other.ask.request.namespace == lease.ask.request.namespace
    for term in affinity.hard:
        if term.positive and term.key == ACTOR_ID and lease.actor_id in term.values:
            return True
        if term.positive and term.key != ACTOR_ID and within and term.matches(dict(lease.ask.labels)):
            return True
    return False
