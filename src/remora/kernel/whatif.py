"""The same cluster with nothing running on it: could this ever fit?

A copy of the nodes and of one chain of virtual clusters, empty, over which the ordinary functions run.
"""

from __future__ import annotations

from remora.kernel import shares
from remora.kernel.cluster import Cluster
from remora.kernel.reserving import could_reserve
from remora.kernel.tree import READY, VCluster, VNode
from remora.kernel.workloads import Host


def emptied(cluster: Cluster, vcluster: VCluster | None = None) -> tuple[Cluster, VCluster | None]:
    """An empty copy, and in it the copy of ``vcluster``."""
    twin = Cluster(cluster.seed)
    numbers: dict[int, int] = {}
    for node in cluster.nodes.by_id.values():
        copy = twin.add_node(node.node_id, node.total, tuple(node.labels.items()), tuple(node.taints.items()))
        numbers[node.number] = copy.number
    vnodes: dict[int, VNode] = {}
    inner: VCluster | None = None
    for original in reversed(list(vcluster.chain()) if vcluster is not None else []):
        inner = _copy(twin, original, inner, numbers, vnodes)
    return twin, inner


def could_ever_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Whether the minimum would fit if its parent had nothing else to do. Kept until a node changes."""
    version = cluster.nodes.version
    if vcluster.ever_fits is None or vcluster.ever_fits[0] != version:
        twin, parent = emptied(cluster, vcluster.parent)
        probe = VCluster(vcluster.cluster_id, vcluster.spec, parent, 0, 0, vcluster.tolerations)
        vcluster.ever_fits = (version, could_reserve(twin, probe))
    return vcluster.ever_fits[1]


def _copy(
    twin: Cluster, original: VCluster, parent: VCluster | None, numbers: dict[int, int], vnodes: dict[int, VNode]
) -> VCluster:
    copy = VCluster(original.cluster_id, original.spec, parent, original.priority, original.order, original.tolerations)
    copy.state = READY
    twin.tree.add(copy)
    for index, vnode in enumerate(original.fixed):
        if vnode is not None:
            copy.fixed[index] = vnodes[id(vnode)] = _copy_vnode(twin, copy, parent, vnode, numbers, vnodes)
    for vnode in original.flex.values():
        twin_vnode = _copy_vnode(twin, copy, parent, vnode, numbers, vnodes)
        copy.flex[twin_vnode.node] = vnodes[id(vnode)] = twin_vnode
        for name, units in vnode.total.items():
            shares.bump(copy.flex_total, name, units)
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
