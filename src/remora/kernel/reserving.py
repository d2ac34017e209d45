"""Virtual clusters: reserving their minimum, repairing it after a node was lost, giving everything back."""

from __future__ import annotations

from remora.kernel import confined, shares
from remora.kernel.cluster import Cluster
from remora.kernel.gang import Gang, Item
from remora.kernel.tree import DESTROYED, READY, VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector


def reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Reserve all that the minimum still lacks, or nothing."""
    journal: shares.Journal = []
    if _reserve(cluster, vcluster, journal):
        vcluster.state = READY
        return True
    shares.undo(journal)
    return False


def could_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Whether ``reserve`` would succeed; nothing changes."""
    journal: shares.Journal = []
    try:
        return _reserve(cluster, vcluster, journal)
    finally:
        shares.undo(journal)


def dissolve(cluster: Cluster, vcluster: VCluster) -> None:
    """Give everything back to the parent; its children and work are gone already."""
    assert not vcluster.children, vcluster
    for vnode in vcluster.vnodes():
        shares.give(cluster, vnode.host, tuple(vnode.total.items()))
    vcluster.fixed = [None] * len(vcluster.fixed)
    vcluster.flex.clear()
    vcluster.flex_total.clear()
    vcluster.flex_used.clear()
    vcluster.state = DESTROYED
    cluster.tree.remove(vcluster)


def _reserve(cluster: Cluster, vcluster: VCluster, journal: shares.Journal) -> bool:
    nodes = NodeClass(LabelSelector(), vcluster.tolerations)
    start = 0
    for group in vcluster.spec.fixed_size_nodes:
        slots = range(start, start + len(group.nodes))
        start = slots.stop
        taken = [vnode.host if (vnode := vcluster.fixed[slot]) is not None else None for slot in slots]
        if None not in taken:
            continue
        items = [Item(node.resources, nodes) for node in group.nodes]
        gang = Gang(cluster, vcluster.parent, items, group.scheduling_policy.value, taken, by_node=False)
        hosts = gang.place()
        if hosts is None:
            return False
        for slot, node, before, host in zip(slots, group.nodes, taken, hosts, strict=True):
            if before is None:
                if not shares.take(cluster, host, node.resources.pairs, journal):
                    return False
                vnode = VNode(vcluster.next_vnode_id(), vcluster, host, node)
                vnode.total = dict(node.resources)
                _settle(vcluster, slot, vnode, journal)
    allowed = confined.untainted(cluster, nodes)
    return shares.reserve_flexible(cluster, vcluster, vcluster.flex_shortfall(), allowed, journal)


def _settle(vcluster: VCluster, slot: int, vnode: VNode, journal: shares.Journal) -> None:
    vcluster.fixed[slot] = vnode

    def back() -> None:
        vcluster.fixed[slot] = None
        vcluster.take_back_vnode_id()

    journal.append(back)


def host_of(vnode: VNode) -> Host:
    """A virtual node as the host of its tenants."""
    return Host(vnode.cluster, vnode.node, vnode if vnode.fixed else None)
