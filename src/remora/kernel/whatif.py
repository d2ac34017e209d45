"""The same cluster with nothing running on it: could this ever fit?

A copy of the nodes and of one chain of virtual clusters, empty, over which the ordinary functions run.
"""

from __future__ import annotations

from collections.abc import Hashable

from remora.kernel import shares
from remora.kernel.cluster import Cluster
from remora.kernel.reserving import could_reserve, reserve
from remora.kernel.tree import READY, VCluster, VNode
from remora.kernel.workloads import Host


def emptied(cluster: Cluster, vcluster: VCluster | None = None) -> tuple[Cluster, VCluster | None]:
    """An empty copy, and in it the copy of ``vcluster``. The copy of the nodes alone is kept until a node changes: whoever
    gets it asks questions and leaves it as it was."""
    if vcluster is None and cluster.empty_twin is not None and cluster.empty_twin[0] == cluster.nodes.version:
        return cluster.empty_twin[1], None
    twin = Cluster(cluster.seed)
    numbers: dict[int, int] = {}
    for node in cluster.nodes.by_id.values():
        copy = twin.add_node(node.node_id, node.total, tuple(node.labels.items()), tuple(node.taints.items()))
        numbers[node.number] = copy.number
    vnodes: dict[int, VNode] = {}
    inner: VCluster | None = None
    for original in reversed(list(vcluster.chain()) if vcluster is not None else []):
        inner = _copy(twin, original, inner, numbers, vnodes)
    if vcluster is None:
        cluster.empty_twin = (cluster.nodes.version, twin)
    return twin, inner


def could_ever_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Whether the minimum would fit if its parent had nothing else to do. Kept until a node or the parent's layout changes.

    A search that gave up has not shown that it cannot fit, so it counts as a yes.
    """
    depends = layout(cluster, vcluster.parent)
    if vcluster.ever_fits is None or vcluster.ever_fits[0] != depends:
        twin, parent = emptied(cluster, vcluster.parent)
        probe = VCluster(vcluster.cluster_id, vcluster.spec, parent, 0, 0, vcluster.tolerations)
        fits = (parent is None or parent.state == READY) and could_reserve(twin, probe)
        # A parent that itself cannot be had now, or has lost nodes, says nothing about its children.
        above = vcluster.parent.chain() if vcluster.parent is not None else ()
        broken = any(ancestor.state == READY and not ancestor.whole for ancestor in above)
        unknown = probe.unsure or broken or (parent is not None and parent.state != READY)
        vcluster.ever_fits = (depends, fits or unknown)
    return vcluster.ever_fits[1]


def layout(cluster: Cluster, vcluster: VCluster | None) -> Hashable:
    """Changes whenever what an empty cluster could hold may have changed."""
    chain = vcluster.chain() if vcluster is not None else ()
    return cluster.nodes.version, tuple((ancestor.cluster_id, ancestor.state, ancestor.layout) for ancestor in chain)


def _copy(
    twin: Cluster, original: VCluster, parent: VCluster | None, numbers: dict[int, int], vnodes: dict[int, VNode]
) -> VCluster:
    copy = VCluster(original.cluster_id, original.spec, parent, original.priority, original.order, original.tolerations)
    twin.tree.add(copy)
    if original.state != READY:
        if parent is None or parent.state == READY:
            reserve(twin, copy)
        return copy
    copy.state = READY
    for index, vnode in enumerate(original.fixed):
        if vnode is not None:
            copy.fixed[index] = vnodes[id(vnode)] = _copy_vnode(twin, copy, parent, vnode, numbers, vnodes)
    for vnode in original.flex.values():
        twin_vnode = _copy_vnode(twin, copy, parent, vnode, numbers, vnodes)
        vnodes[id(vnode)] = twin_vnode
        copy.add_flexible(twin_vnode)
        for name, units in vnode.total.items():
            shares.bump(copy.flex_total, name, units)
        if vnode.total:
            copy.idle.add(twin_vnode.node)
    return copy


def _copy_vnode(
    twin: Cluster, copy: VCluster, parent: VCluster | None, vnode: VNode, numbers: dict[int, int], vnodes: dict[int, VNode]
) -> VNode:
    fixed = vnodes[id(vnode.host.fixed)] if vnode.host.fixed is not None else None
    host = Host(parent, numbers[vnode.node], fixed)
    taken = shares.take(twin, host, tuple(vnode.total.items()), [])
    assert taken, vnode
    made = VNode(copy.next_vnode_id(), copy, host, vnode.spec)
    made.total = dict(vnode.total)
    return made
