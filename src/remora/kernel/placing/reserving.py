"""Virtual clusters: reserve their minimum, repair it after a node was lost, restore what is remembered, give it all back."""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.placing import inside
from remora.kernel.placing.gang import Gang, Item, gang_of_bundles
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import DESTROYED, READY, VCluster, VNode
from remora.kernel.state.workloads import Host
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector


def reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Reserve all that the minimum still lacks, or nothing; return whether it is reserved."""
    journal: shares.Journal = []
    shares_moved, reserved = cluster.shares_moved, False
    try:
        reserved = _reserve(cluster, vcluster, journal)
    finally:  # nothing half-done stays, also when it fails
        if not reserved:
            shares.undo(journal)
            cluster.shares_moved = shares_moved
    if reserved:
        vcluster.state = READY
        vcluster.changed()
    return reserved


def could_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Return whether ``reserve`` would succeed; nothing changes."""
    with shares.trial(cluster) as journal:
        return _reserve(cluster, vcluster, journal)


def dissolve(cluster: Cluster, vcluster: VCluster) -> None:
    """Give everything back to the parent; its children and work are gone already."""
    assert not vcluster.children, vcluster
    for vnode in [*vcluster.fixed, *vcluster.flex.values()]:
        for name, units in list(vnode.used.items()) if vnode is not None else ():
            assert vnode is not None
            shares.use(vnode, name, -units)  # what reports still show of its work is nobody's now
    for number in {vnode.node for vnode in vcluster.vnodes()} | {*vcluster.flex}:
        vacate(cluster, vcluster, number)
    vcluster.state = DESTROYED
    cluster.tree.remove(vcluster)


def vacate(cluster: Cluster, vcluster: VCluster, number: int) -> bool:
    """Give back what it has on one node, the minimum too; return whether that was all.

    What is in use stays: of a flexible node so much, a fixed-size one whole.
    """
    for slot, vnode in enumerate(vcluster.fixed):
        if vnode is not None and vnode.node == number and not any(vnode.used.values()):
            shares.give(cluster, vnode.host, tuple(vnode.total.items()))
            vcluster.set_fixed(slot, None)
    flexible = vcluster.flex.get(number)
    if flexible is not None:
        for name in list(flexible.total):
            idle = flexible.idle(name)
            if idle > 0:
                shares.resize(flexible, name, -idle)
                shares.give(cluster, flexible.host, ((name, idle),))
        if not flexible.total and not flexible.used:
            vcluster.remove_flexible(number)
    return number not in vcluster.flex and not vcluster.nodes() >> number & 1


def _reserve(cluster: Cluster, vcluster: VCluster, journal: shares.Journal) -> bool:
    taken = [vnode.host if vnode is not None else None for vnode in vcluster.fixed]
    if None in taken:
        gang = _gang(cluster, vcluster, taken)
        hosts = gang.place()
        vcluster.inconclusive = gang.gave_up
        if hosts is None:
            return False
        for slot, (host, node) in enumerate(zip(hosts, vcluster.spec.fixed_nodes, strict=True)):
            if taken[slot] is None:
                if not shares.take(cluster, host, node.resources.pairs, journal):
                    return False
                vnode = VNode(vcluster.next_vnode_id(), vcluster, host._replace(source=None), node)
                vnode.total = dict(node.resources)
                _settle(vcluster, slot, vnode, journal)
    allowed = inside.untainted(cluster, NodeClass(LabelSelector(), vcluster.tolerations))
    return shares.reserve_flexible(cluster, vcluster, vcluster.flex_shortfall(), allowed, journal)


def _gang(cluster: Cluster, vcluster: VCluster, taken: list[Host | None]) -> Gang:
    if vcluster.group is not None:
        group = vcluster.group
        return gang_of_bundles(cluster, vcluster.parent, group.options[0], group.strategy, taken, group.levels(0))
    nodes = NodeClass(LabelSelector(), vcluster.tolerations)
    sets = vcluster.spec.fixed_size_nodes
    items = [Item(node.resources, nodes, team) for team, group in enumerate(sets) for node in group.nodes]
    strategies = [group.scheduling_policy.value for group in sets]
    levels = [group.topology for group in sets]
    return Gang(cluster, vcluster.parent, items, strategies, taken, by_node=False, levels=levels)


def _settle(vcluster: VCluster, slot: int, vnode: VNode, journal: shares.Journal) -> None:
    vcluster.set_fixed(slot, vnode)

    def back() -> None:
        vcluster.set_fixed(slot, None, step=-1)
        vcluster.take_back_vnode_id()

    journal.append(back)


def restore_vnode(cluster: Cluster, vcluster: VCluster, slot: int | None, host: Host, total: Mapping[str, int]) -> None:
    """Put a virtual node back that is remembered from before, whatever its parent has left."""
    vnode = VNode(vcluster.next_vnode_id(), vcluster, host, vcluster.spec.fixed_nodes[slot] if slot is not None else None)
    if slot is not None:
        vnode.total = dict(total)
        vcluster.set_fixed(slot, vnode)
    else:
        vcluster.add_flexible(vnode)
        for name, units in total.items():
            shares.resize(vnode, name, units)
    shares.force(cluster, host, total.items())
