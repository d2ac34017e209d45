"""Virtual clusters: reserving their minimum, repairing it after a node was lost, giving everything back."""

from __future__ import annotations

from remora.kernel import confined, shares
from remora.kernel.cluster import Cluster
from remora.kernel.gang import Gang, Item, gang_of_bundles
from remora.kernel.tree import DESTROYED, READY, VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector


def reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Reserve all that the minimum still lacks, or nothing."""
    journal: shares.Journal = []
    stirred = cluster.stirred
    if _reserve(cluster, vcluster, journal):
        vcluster.state = READY
        return True
    shares.undo(journal)
    cluster.stirred = stirred
    return False


def could_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Whether ``reserve`` would succeed; nothing changes."""
    with shares.trial(cluster) as journal:
        return _reserve(cluster, vcluster, journal)


def dissolve(cluster: Cluster, vcluster: VCluster) -> None:
    """Give everything back to the parent; its children and work are gone already."""
    assert not vcluster.children, vcluster
    for number in {vnode.node for vnode in vcluster.vnodes()} | {*vcluster.flex}:
        leave(cluster, vcluster, number)
    vcluster.flex_total.clear()
    vcluster.flex_used.clear()
    vcluster.state = DESTROYED
    cluster.tree.remove(vcluster)


def leave(cluster: Cluster, vcluster: VCluster, number: int) -> None:
    """Give back everything that it has on one node, the minimum too."""
    for slot, vnode in enumerate(vcluster.fixed):
        if vnode is not None and vnode.node == number:
            shares.give(cluster, vnode.host, tuple(vnode.total.items()))
            vcluster.set_fixed(slot, None)
    if number in vcluster.flex:
        flexible = vcluster.remove_flexible(number)
        shares.give(cluster, flexible.host, tuple(flexible.total.items()))
        for amounts, gone in ((vcluster.flex_total, flexible.total), (vcluster.flex_used, flexible.used)):
            for name, units in gone.items():
                shares.bump(amounts, name, -units)


def _reserve(cluster: Cluster, vcluster: VCluster, journal: shares.Journal) -> bool:
    taken = [vnode.host if vnode is not None else None for vnode in vcluster.fixed]
    if None in taken:
        gang = _gang(cluster, vcluster, taken)
        hosts = gang.place()
        vcluster.unsure = gang.gave_up
        if hosts is None:
            return False
        specs = [node for nodes in vcluster.spec.fixed_size_nodes for node in nodes.nodes]
        for slot, host in enumerate(hosts):
            if taken[slot] is None:
                node = specs[slot]
                if not shares.take(cluster, host, node.resources.pairs, journal):
                    return False
                vnode = VNode(vcluster.next_vnode_id(), vcluster, host._replace(source=None), node)
                vnode.total = dict(node.resources)
                _settle(vcluster, slot, vnode, journal)
    allowed = confined.untainted(cluster, NodeClass(LabelSelector(), vcluster.tolerations))
    return shares.reserve_flexible(cluster, vcluster, vcluster.flex_shortfall(), allowed, journal)


def _gang(cluster: Cluster, vcluster: VCluster, taken: list[Host | None]) -> Gang:
    if vcluster.group is not None:
        return gang_of_bundles(cluster, vcluster.parent, vcluster.group.options[0], vcluster.group.strategy, taken)
    nodes = NodeClass(LabelSelector(), vcluster.tolerations)
    sets = vcluster.spec.fixed_size_nodes
    items = [Item(node.resources, nodes, team) for team, group in enumerate(sets) for node in group.nodes]
    strategies = [group.scheduling_policy.value for group in sets]
    return Gang(cluster, vcluster.parent, items, strategies, taken, by_node=False)


def _settle(vcluster: VCluster, slot: int, vnode: VNode, journal: shares.Journal) -> None:
    vcluster.set_fixed(slot, vnode)

    def back() -> None:
        vcluster.set_fixed(slot, None)
        vcluster.take_back_vnode_id()

    journal.append(back)
