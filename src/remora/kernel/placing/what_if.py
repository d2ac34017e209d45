"""The same cluster with nothing running on it, and with all the machines that may be started: could this ever fit?

A copy of the nodes and of one chain of virtual clusters, empty, over which the ordinary functions run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from remora.kernel.placing.enlarging import Enlarger, Part, parts_of_cluster
from remora.kernel.placing.reserving import could_reserve, reserve
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster, VNode
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Node
from remora.kernel.state.type_table import openings_beside
from remora.kernel.state.workloads import Host
from remora.model.topology import Levels


def empty_copy(cluster: Cluster, vcluster: VCluster | None = None) -> tuple[Cluster, VCluster | None]:
    """Return an empty copy, and in it the copy of ``vcluster``. The copy of the nodes alone is kept until a node changes:
    whoever gets it asks questions and leaves it as it was."""
    if vcluster is None and cluster.kept_empty_copy is not None and cluster.kept_empty_copy[0] == cluster.nodes.version:
        return cluster.kept_empty_copy[1], None
    twin = Cluster(cluster.seed)
    numbers: dict[int, int] = {}
    for node in cluster.nodes.by_id.values():
        copy = _copy_node(twin, node)
        numbers[node.number] = copy.number
    vnodes: dict[int, VNode] = {}
    inner: VCluster | None = None
    for original in reversed(list(vcluster.chain()) if vcluster is not None else []):
        inner = _copy(twin, original, inner, numbers, vnodes)
    if vcluster is None:
        cluster.kept_empty_copy = (cluster.nodes.version, twin)
    return twin, inner


def fits_with_types(
    cluster: Cluster,
    twin: Cluster,
    inner: VCluster | None,
    types: NodeSet,
    parts: list[Part],
    fits: Callable[[Cluster], bool],
    levels: Levels = (),
) -> bool:
    """Return whether a whole fits with machines of these types added, to the empty copy as it is, or after the machines that
    idle there have gone, which makes room for others where the number of all is limited. The copy is left as it was."""
    table = cluster.types
    if table is None or not types:
        return False
    enlarger = Enlarger(twin, openings_beside(table, twin.nodes.by_id.values()), types)
    added = enlarger.enlarge_within(parts, lambda: fits(twin), outside=inner is None, levels=levels)
    enlarger.drop(added or ())
    if added is not None or inner is not None or not any(node.node_type for node in twin.nodes.by_id.values()):
        return added is not None
    bare = Cluster(cluster.seed)
    for node in cluster.nodes.by_id.values():
        if not node.node_type:
            _copy_node(bare, node)
    afresh = Enlarger(bare, openings_beside(table, ()), types)
    return afresh.enlarge_within(parts, lambda: fits(bare), outside=True, levels=levels) is not None


def could_ever_reserve(cluster: Cluster, vcluster: VCluster) -> bool:
    """Return whether the minimum would fit if its parent had nothing else to do. Kept until a node or the parent's layout
    changes.

    A search that gave up has not shown that it cannot fit, so it counts as a yes.
    """
    depends = layout(cluster, vcluster.parent)
    if vcluster.ever_fits is None or vcluster.ever_fits[0] != depends:
        twin, parent = empty_copy(cluster, vcluster.parent)
        probe = VCluster(vcluster.cluster_id, vcluster.spec, parent, 0, 0, vcluster.tolerations)
        fits = (parent is None or parent.state == READY) and could_reserve(twin, probe)
        if not fits and not probe.inconclusive and cluster.types is not None and (parent is None or parent.state == READY):
            parts = parts_of_cluster(probe)
            levels = next((each.topology for each in vcluster.spec.fixed_size_nodes if each.topology), ())
            fits = fits_with_types(
                cluster, twin, parent, cluster.types.on_offer, parts, lambda tried: could_reserve(tried, probe), levels
            )
        # A parent that itself cannot be had now, or has lost nodes, says nothing about its children.
        above = vcluster.parent.chain() if vcluster.parent is not None else ()
        broken = any(ancestor.state == READY and not ancestor.whole for ancestor in above)
        unknown = probe.inconclusive or broken or (parent is not None and parent.state != READY)
        vcluster.ever_fits = (depends, fits or unknown)
    return vcluster.ever_fits[1]


def layout(cluster: Cluster, vcluster: VCluster | None) -> Hashable:
    """Return a value that changes whenever what an empty cluster could hold may have changed."""
    chain = vcluster.chain() if vcluster is not None else ()
    return cluster.nodes.version, tuple((ancestor.cluster_id, ancestor.state, ancestor.layout) for ancestor in chain)


def _copy_node(twin: Cluster, node: Node) -> Node:
    return twin.add_node(node.node_id, node.total, tuple(node.labels.items()), tuple(node.taints.items()), node.node_type)


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
    fixed = vnodes.get(id(vnode.host.fixed)) if vnode.host.fixed is not None else None
    host = Host(parent, numbers[vnode.node], fixed)
    journal: shares.Journal = []
    if not shares.take(twin, host, tuple(vnode.total.items()), journal):
        shares.undo(journal)
        shares.force(twin, host, vnode.total.items())  # its node has shrunk since, and it has its share all the same
    made = VNode(copy.next_vnode_id(), copy, host, vnode.spec)
    made.total = dict(vnode.total)
    return made
