"""Idle shares on fewer machines: a minimum that lies in crumbs on many would keep all of them from going.

Nothing that runs is touched. A machine on which a share lies idle, and nothing else is, is vacated where all of that finds room
on machines that stay anyway, or on others that carry more.
"""

from __future__ import annotations

from remora.kernel.placing import inside
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.workloads import Host
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector


def compact(cluster: Cluster, staying: NodeSet = 0) -> NodeSet:
    """Move idle shares onto as few machines as possible, and return the machines that carry nothing any more. ``staying`` are
    machines that nobody would end."""
    carriers = [vcluster for vcluster in cluster.tree.clusters.values() if vcluster.state == READY and vcluster.flex]
    carriers.sort(key=lambda vcluster: -sum(1 for _ in vcluster.chain()))  # children first: they lie in their parents' shares
    if not carriers:
        return 0
    busy = staying | _in_use(cluster, carriers)
    idle: dict[int, int] = {}
    for vcluster in carriers:
        for number, vnode in vcluster.flex.items():
            if vnode.total and not busy >> number & 1:
                idle[number] = idle.get(number, 0) + sum(vnode.total.values())
    vacated = 0
    for number in sorted(idle, key=lambda number: (idle[number], -number)):
        # Empty machines are no place to go to: they would have to stay for it.
        others = [other for other in idle if other != number and not vacated >> other & 1]
        others.sort(key=lambda other: (-idle[other], other))
        if _vacate(cluster, carriers, number, [*members(busy), *others]):
            vacated |= 1 << number
    return vacated


def _in_use(cluster: Cluster, carriers: list[VCluster]) -> NodeSet:
    """Return the machines on which there is more than idle flexible shares."""
    busy = 0
    for group in cluster.groups.values():
        for host in group.hosts:
            busy |= 1 << host.node if host is not None else 0
    for vcluster in cluster.tree.clusters.values():
        for vnode in vcluster.fixed:
            busy |= 1 << vnode.node if vnode is not None else 0
    for number in members(cluster.nodes.alive):
        if cluster.on_node[number] or _is_used(cluster, carriers, number):
            busy |= 1 << number
    return busy


def _is_used(cluster: Cluster, carriers: list[VCluster], number: int) -> bool:
    """Return whether anything runs on a machine: more of it is taken than its shares hold, or shares are in use by work."""
    held: dict[str, int] = {}
    for vcluster in carriers:
        vnode = vcluster.flex.get(number)
        if vnode is None:
            continue
        given: dict[str, int] = {}
        for child in vcluster.children.values():
            inner = child.flex.get(number)
            for name, units in inner.total.items() if inner is not None else ():
                shares.bump(given, name, units)
        if any(units > given.get(name, 0) for name, units in vnode.used.items()):
            return True
        if vcluster.parent is None:
            for name, units in vnode.total.items():
                shares.bump(held, name, units)
    total, free = cluster.nodes.at(number).total, cluster.available.amounts(number)
    return any(units - free.get(name, 0) > held.get(name, 0) for name, units in total.items())


def _vacate(cluster: Cluster, carriers: list[VCluster], number: int, targets: list[int]) -> bool:
    """Move every share that lies on a machine elsewhere, or none; return whether that went."""
    journal: shares.Journal = []
    shares_moved = cluster.shares_moved
    before = {vcluster.cluster_id: dict(vcluster.flex_total) for vcluster in carriers}
    for vcluster in carriers:
        here = number in vcluster.flex
        if here and not _move(cluster, vcluster, number, targets, before[vcluster.cluster_id], journal):
            shares.undo(journal)
            cluster.shares_moved = shares_moved
            return False
    for vcluster in carriers:
        shares.drop_emptied(vcluster)
    return True


def _move(
    cluster: Cluster, vcluster: VCluster, number: int, targets: list[int], before: dict[str, int], journal: shares.Journal
) -> bool:
    """Give up a share on a machine and have as much as ``before`` again elsewhere. What a child took along is there already."""
    vnode = vcluster.flex[number]
    allowed = inside.untainted(cluster, NodeClass(LabelSelector(), vcluster.tolerations))
    for name in list(vnode.total):
        idle = vnode.idle(name)
        if idle != vnode.total[name]:
            return False
        shares.resize(vnode, name, -idle, journal)
        shares.give(cluster, vnode.host, ((name, idle),), journal)
        for target in targets:
            missing = before.get(name, 0) - vcluster.flex_total.get(name, 0)
            if missing <= 0:
                break
            if allowed >> target & 1:
                _grow(cluster, Host(vcluster, target, None), name, missing, journal)
        if vcluster.flex_total.get(name, 0) < before.get(name, 0):
            return False
    return True


def _grow(cluster: Cluster, host: Host, name: str, most: int, journal: shares.Journal) -> None:
    """Let a share have up to ``most`` more of a resource on a machine."""
    assert host.cluster is not None
    vnode = host.cluster.flex.get(host.node)
    idle = vnode.idle(name) if vnode is not None else 0
    part = min(most, shares.reach(cluster, host, name) - idle)
    mark = len(journal)
    if part > 0:
        if shares.take(cluster, host, ((name, idle + part),), journal):
            shares.give(cluster, host, ((name, idle + part),), journal)
        else:
            shares.undo(journal, mark)


def staying_nodes(cluster: Cluster) -> NodeSet:
    """Return the machines that nobody but people starts and ends."""
    nodes = 0
    for number in members(cluster.nodes.alive):
        if not cluster.nodes.at(number).node_type:
            nodes |= 1 << number
    return nodes
