"""Failover: where an actor goes that restarts, and who goes with it.

``on_failover`` says what those do that joined it: they *stay* until they fail themselves, they *follow* when their rule holds
elsewhere only, or the group moves *together* to one node that fits them all. Where they joined it within a domain, a rack, they
are a gang of that rack: whoever lost its node stays in the rack if there is room, or else all move to another one as one.
"""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.context import Context
from remora.controller.effects import Restart
from remora.controller.leases.lease_table import Lease, LeaseTable, moves_within
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.gang import Gang, Item
from remora.kernel.placing.placement import decide
from remora.kernel.rules import Query
from remora.kernel.rules.affinity import AffinityRule
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.domains import around, domain_of, domains_of, in_domain
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.workloads import Host, Workload
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
            friends = [other for other in lost if other is not lease and self._moves_with(other, lease)]
            if friends and lease.workload.placed:
                groups.append([lease, *friends])
                for each in groups[-1]:
                    self._scheduler.cluster.release(each.workload)
        for lease in lost:
            gang = self._gang_of(lease) if lease.workload.placed else []
            if len(gang) > 1:
                groups.append(gang)
                for each in gang:
                    if each.workload.node == number:
                        self._scheduler.cluster.release(each.workload)
        return groups

    def regroup(self, groups: list[list[Lease]]) -> None:
        """Their node is gone: place each group on one node that fits it, or else everybody alone."""
        for group in groups:
            within = _topologies(group)
            if within:
                self._regroup_gang(group, within)
                continue
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
            return self._move_gang(lease)
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
                _put_as_it_was(cluster, each, old, confirmed, at)
        return False

    def _place_together(self, group: list[Lease], within: tuple[str, ...] = ()) -> bool:
        """Place all of them on one node, or in one domain of each of some labels, in their virtual cluster. Return whether
        there is one; if not, none of them is placed. Of a gang those that have a place already stay there."""
        cluster = self._scheduler.cluster
        clusters = {each.workload.request.cluster for each in group}
        if len(clusters) > 1:
            return False
        cluster_id = clusters.pop()
        space = cluster.tree.get(cluster_id) if cluster_id is not None else None
        if within:
            return self._place_in_domain(group, within[0])
        items = [Item(each.workload.request.resources, each.workload.request.choices[0]) for each in group]
        hosts = Gang(cluster, space, items, ["STRICT_PACK"], [None] * len(items), by_node=True).place()
        if hosts is None:
            return False
        for each, host in zip(group, hosts, strict=True):
            cluster.place(each.workload, host)
        return True

    # Gangs of a domain

    def _place_in_domain(self, group: list[Lease], topology: str) -> bool:
        """Place those of a gang that have no place in one domain, that of the others where there are any: whom others join
        first, each by its own rules. Return whether there is such a domain; if not, none of them is placed."""
        cluster = self._scheduler.cluster
        settled = [domain_of(cluster.nodes, topology, each.workload.node) for each in group if each.workload.placed]
        placing = [each for each in group if not each.workload.placed]
        placing.sort(key=lambda each: bool(moves_within(each.workload.request)))
        for domain in tuple(dict.fromkeys(settled) or domains_of(cluster.nodes, topology)):
            if domain is not None and self._place_each(placing, in_domain(cluster.nodes, topology, domain)):
                for each in placing:
                    self._scheduler.waiting.withdraw(each.workload)
                return True
        return False

    def _place_each(self, leases: list[Lease], domain: NodeSet) -> bool:
        cluster = self._scheduler.cluster
        for number, each in enumerate(leases):
            workload = each.workload
            host = decide(cluster, workload.request, workload.labels, workload.workload_id, within=domain)
            if host is None:
                for placed in leases[:number]:
                    cluster.release(placed.workload)
                return False
            cluster.place(workload, host)
        return True

    def _gang_of(self, lease: Lease) -> list[Lease]:
        """Return a lease and those that are with it in a domain to move together, also those of them that wait."""
        mates = self._table.mates
        found = {lease.slot: lease}
        ahead = [lease] if mates else []
        while ahead:
            one = ahead.pop()
            for other in (*mates.values(), *(self._neighbours(one) if one.slot in mates else ())):
                if other.slot not in found and (self._is_bound(other, one) or self._is_bound(one, other)):
                    found[other.slot] = other
                    ahead.append(other)
        return list(found.values())

    def _neighbours(self, lease: Lease) -> list[Lease]:
        """Return the leases in the domains that a lease names in what makes it move together."""
        if not lease.workload.placed:
            return []
        nodes, found = self._scheduler.cluster.nodes, 0
        for topology in _topologies([lease]):
            found |= around(nodes, topology, 1 << lease.workload.node)
        return [other for number in members(found) for other in self._table.on_node(number)]

    def _is_bound(self, other: Lease, lease: Lease) -> bool:
        """Return whether one moves together with a lease that it joined within a domain: it is there, or one of them waits."""
        nodes = self._scheduler.cluster.nodes
        for affinity in other.workload.request.affinities:
            topology = _joins(affinity, other, lease) if affinity.on_failover == TOGETHER else None
            if topology:
                if not (other.workload.placed and lease.workload.placed):
                    return True
                domains = {domain_of(nodes, topology, each.workload.node) for each in (other, lease)}
                if len(domains) == 1 and None not in domains:
                    return True
        return False

    def _regroup_gang(self, gang: list[Lease], within: tuple[str, ...]) -> None:
        """Some of a gang have no node any more: place them in its domain, or else all of it in another one, or else alone."""
        cluster = self._scheduler.cluster
        lost = [each for each in gang if not each.workload.placed]
        stayed = [each for each in gang if each.workload.placed]
        if self._place_together(gang, within) or self._move_all(gang, within):
            for lease in lost:
                self._changed(lease)
            return
        for lease in lost:
            if lease.workload not in self._scheduler.waiting.get(lease.workload.request, ()):
                known_as = lease.workload.workload_id
                lease.workload = self._scheduler.submit(known_as, lease.workload.request, lease.ask.labels)
            self._changed(lease)
        assert all(cluster.placed.get(each.workload.workload_id) is each.workload for each in stayed), gang

    def _move_gang(self, lease: Lease) -> bool:
        """A member of a gang restarts: if it cannot stay in its domain, take the gang to another one. Return whether that was
        done."""
        gang = self._gang_of(lease)
        if len(gang) < 2:
            return False
        cluster, workload, within = self._scheduler.cluster, lease.workload, _topologies(gang)
        old, before = workload.node, (workload.confirmed, workload.host)
        workload.confirmed = False
        cluster.release(workload)
        if self._place_together(gang, within) or self._move_all(gang, within):
            return True
        _put_as_it_was(cluster, workload, old, *before)
        return False

    def _move_all(self, gang: list[Lease], within: tuple[str, ...]) -> bool:
        """Place a whole gang in another domain; those that run elsewhere are restarted. Return whether there is one: if not,
        everybody is where it was."""
        cluster = self._scheduler.cluster
        stayed = [each for each in gang if each.workload.placed]
        leaving = [(each.workload, each.workload.node, each.workload.confirmed, each.workload.host) for each in stayed]
        for each in stayed:
            cluster.release(each.workload)
        if stayed and self._place_together(gang, within):
            for each in stayed:
                self._send_after(each, gang[0])
            return True
        for workload, node, confirmed, host in leaving:
            _put_as_it_was(cluster, workload, node, confirmed, host)
        return False

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
        return bool(same and any(_joins(affinity, other, lease) == "" for affinity in together))

    def _still_holds(self, lease: Lease) -> bool:
        request = lease.workload.request
        query = Query(request, request.choices[0], lease.ask.labels, lease.workload.workload_id)
        here = 1 << lease.workload.node
        return all(screen.passing(here) for screen in AffinityRule().screens(self._scheduler.cluster, query))


def _put_as_it_was(cluster: Cluster, workload: Workload, node: int, confirmed: bool, host: Host | None) -> None:
    if confirmed:
        cluster.move(workload, node)
    else:
        cluster.put_back(workload, host or Host(None, node, None))


def _topologies(group: list[Lease]) -> tuple[str, ...]:
    """Return the labels of the domains in which members of a group joined each other, to move together."""
    return tuple(dict.fromkeys(topology for each in group for topology in moves_within(each.workload.request)))


def _joins(affinity: Affinity, other: Lease, lease: Lease) -> str | None:
    """Return the topology within which an affinity of ``other`` is met by this very lease, empty for its node; None where it is
    not."""
    within = other.ask.request.namespace == lease.ask.request.namespace
    for term in affinity.hard:
        if term.positive and term.key == ACTOR_ID and lease.actor_id in term.values:
            return term.topology
        if term.positive and term.key != ACTOR_ID and within and term.matches(dict(lease.ask.labels)):
            return term.topology
    return None
