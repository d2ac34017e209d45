"""Failover: where an actor goes that restarts, and who goes with it.

``on_failover`` says what those do that joined it: they *stay* until they fail themselves, they *follow* when their rule holds
elsewhere only, or the group moves *together* to one node that fits them all.
"""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.context import Context
from remora.controller.effects import Restart
from remora.controller.leases.lease_table import Lease, LeaseTable
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.gang import Gang, Item
from remora.kernel.placing.placement import decide
from remora.kernel.rules import Query
from remora.kernel.rules.affinity import AffinityRule
from remora.kernel.state import shares
from remora.kernel.state.workloads import Host
from remora.model.labels import ACTOR_ID
from remora.model.strategies import STAY, TOGETHER, Affinity


class Failover:
    """``changed`` is told of every lease that was placed here or has stopped running."""

    def __init__(self, context: Context, scheduler: Scheduler, table: LeaseTable, changed: Callable[[Lease], None]) -> None:
        self._context = context
        self._scheduler = scheduler
        self._table = table
        self._changed = changed
        self._moved = False
        self._restarts: dict[str, None] = {}

    def restarts(self, lease: Lease) -> None:
        """Decide anew about an actor that restarts, under the rules of this moment. What it was observed to take counts beside
        that until its node is counted anew: a report may have given it back already, and others may have got it since."""
        before, workload = self._table.node_of(lease), lease.workload
        observed = (workload.host or Host(None, workload.node, None)) if workload.confirmed else None
        lease.live_since = lease.told = None
        self._context.note("lease", lease.actor_id, f"restarts; it was on {before[:12] if before else 'a lost node'}")
        if not self._move_together(lease):
            # What it took is free for itself, on its own node: it was running there a moment ago.
            workload.confirmed = False
            self._scheduler.fail(workload)
        if observed is not None:
            shares.force(self._scheduler.cluster, observed, workload.request.resources.pairs)
        self._changed(lease)
        after = self._table.node_of(lease)
        if after is None:
            self._context.note("lease", lease.actor_id, "waits: no node for it now")
        self._moved |= after != before

    def node_left(self, number: int) -> list[list[Lease]]:
        """Before the scheduler places again what was on a node: return the groups that move together, for ``regroup``."""
        lost = self._table.on_node(number)
        self._moved |= bool(lost)
        node_id = self._scheduler.cluster.nodes.at(number).node_id
        groups: list[list[Lease]] = []
        for lease in lost:
            lease.live_since = lease.told = None
            if lease.actor_id:
                self._context.note("lease", lease.actor_id, f"its node {node_id[:12]} left")
        for lease in lost:
            members = [other for other in lost if other is not lease and self._moves_with(other, lease)]
            if members and lease.workload.placed:
                groups.append([lease, *members])
                for each in groups[-1]:
                    self._scheduler.cluster.release(each.workload)
        return groups

    def regroup(self, groups: list[list[Lease]]) -> None:
        """Their node is gone: place each group on one node that fits it, or else everybody alone."""
        for group in groups:
            together = self._place_together(group)
            for lease in group:
                if not together:
                    known_as = lease.workload.workload_id
                    lease.workload = self._scheduler.submit(known_as, lease.workload.request, lease.ask.labels)
                self._changed(lease)

    def follow(self) -> None:
        """When somebody has moved: restart those that are declared to follow, and whose rules hold somewhere else only."""
        if not self._moved:
            return
        self._moved = False
        for lease in list(self._table.by_slot.values()):
            with self._context.aside.care_of("lease", lease.slot, "following"):
                self._follow(lease)

    def plan(self) -> list[Restart]:
        """Return the actors that have to be restarted."""
        return list(map(Restart, self._restarts))

    def restarted(self, actor_id: str) -> None:
        self._restarts.pop(actor_id, None)

    # The rest

    def _follow(self, lease: Lease) -> None:
        request = lease.workload.request
        if lease.live_since is None or all(each.on_failover == STAY for each in request.affinities):
            return
        if not lease.workload.placed or self._still_holds(lease):
            return
        host = decide(self._scheduler.cluster, request, lease.ask.labels, lease.workload.workload_id)
        if host is None:
            self._moved = True  # not yet: the one it follows may still be waiting
        elif lease.actor_id not in self._restarts:
            self._context.note("lease", lease.actor_id, "is restarted to follow the actor that it joined")
            self._restarts[lease.actor_id] = None

    def _move_together(self, lease: Lease) -> bool:
        """Take those along that are declared to move with it, if one node fits them all and it cannot stay. Return whether that
        was done."""
        if not lease.workload.placed:
            return False
        cluster, workload = self._scheduler.cluster, lease.workload
        old = workload.node
        others = [other for other in self._table.on_node(old) if other is not lease and self._moves_with(other, lease)]
        if not others:
            return False
        workload.confirmed = False  # what it took is free for itself, and is taken again where it has to stay as it was
        leaving = [(each.workload, each.workload.confirmed, each.workload.host) for each in (lease, *others)]
        cluster.release(workload)
        host = decide(cluster, workload.request, lease.ask.labels, workload.workload_id)
        if host is None or host.node != old:
            for other in others:
                cluster.release(other.workload)
            if self._place_together([lease, *others]):
                for other in others:
                    self._send_after(other, lease)
                return True
        # As it was, for the scheduler to fail it: it stays if it can, or goes alone.
        for each, confirmed, at in leaving:
            if not each.placed:
                if confirmed:
                    cluster.move(each, old)
                else:
                    cluster.put_back(each, at or Host(None, old, None))
        return False

    def _place_together(self, group: list[Lease]) -> bool:
        """Place all of them on one node, in the virtual cluster that they are in. Return whether there is one; if not, none of
        them is placed."""
        cluster = self._scheduler.cluster
        clusters = {each.workload.request.cluster for each in group}
        if len(clusters) > 1:
            return False
        within = clusters.pop()
        space = cluster.tree.get(within) if within is not None else None
        items = [Item(each.workload.request.resources, each.workload.request.choices[0]) for each in group]
        hosts = Gang(cluster, space, items, ["STRICT_PACK"], [None] * len(items), by_node=True).place()
        if hosts is None:
            return False
        for each, host in zip(group, hosts, strict=True):
            cluster.place(each.workload, host)
        return True

    def _send_after(self, other: Lease, lease: Lease) -> None:
        running = other.live_since is not None
        other.live_since = None
        self._changed(other)
        if running:
            self._context.note("lease", other.actor_id, f"is restarted to move together with {lease.actor_id[:12]}")
            self._restarts[other.actor_id] = None

    def _moves_with(self, other: Lease, lease: Lease) -> bool:
        together = [each for each in other.workload.request.affinities if each.on_failover == TOGETHER]
        same = other.workload.placed and lease.workload.placed and other.workload.node == lease.workload.node
        return bool(same and any(_joins(affinity, other, lease) for affinity in together))

    def _still_holds(self, lease: Lease) -> bool:
        request = lease.workload.request
        query = Query(request, request.choices[0], lease.ask.labels, lease.workload.workload_id)
        here = 1 << lease.workload.node
        return all(screen.passing(here) for screen in AffinityRule().screens(self._scheduler.cluster, query))


def _joins(affinity: Affinity, other: Lease, lease: Lease) -> bool:
    """Return whether an affinity of ``other`` is met by this very lease."""
    within = other.ask.request.namespace == lease.ask.request.namespace
    for term in affinity.hard:
        if term.positive and term.key == ACTOR_ID and lease.actor_id in term.values:
            return True
        if term.positive and term.key != ACTOR_ID and within and term.matches(dict(lease.ask.labels)):
            return True
    return False
