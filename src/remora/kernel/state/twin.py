"""A copy of a cluster in which anything may be tried: the original is left as it is."""

from __future__ import annotations

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.workloads import Host


def twin_of(cluster: Cluster, *, shares: bool = True) -> Cluster:
    """Return a copy with the same node numbers, in which work can be placed, minima reserved and nodes added.

    What is placed is there for the rules, and cannot be taken away. Without ``shares`` there are no virtual clusters in it;
    what they hold of the nodes is not free all the same.
    """
    twin = Cluster(cluster.seed)
    twin.nodes = cluster.nodes.copy()
    twin.totals, twin.available = cluster.totals.copy(), cluster.available.copy()
    twin.load = cluster.load.copy(twin.totals, twin.available)
    twin.presence, twin.refusals = cluster.presence.copy(), cluster.refusals.copy()
    twin.presence_by_domain = cluster.presence_by_domain.copy(twin.presence, twin.nodes)
    twin.refusals_by_domain = cluster.refusals_by_domain.copy(twin.refusals, twin.nodes)
    twin.refused_within = dict(cluster.refused_within)
    twin.tallies = cluster.tallies.copy(twin.nodes)
    twin.placed = dict(cluster.placed)
    twin.on_node = {number: {} for number in cluster.on_node}
    twin.last_spread = cluster.last_spread
    twin.eligible_cache = dict(cluster.eligible_cache)
    twin.types = cluster.types
    if shares:
        twin.in_cluster = {cluster_id: dict(inside) for cluster_id, inside in cluster.in_cluster.items()}
        vnodes: dict[int, VNode] = {}
        for original in cluster.tree.clusters.values():
            _copy(twin, original, vnodes)
        twin.tree.made = cluster.tree.made
    return twin


def _copy(twin: Cluster, original: VCluster, vnodes: dict[int, VNode]) -> None:
    """Copy a virtual cluster whose parent is there already."""
    parent = twin.tree.get(original.parent.cluster_id) if original.parent is not None else None
    copy = VCluster(
        original.cluster_id,
        original.spec,
        parent,
        original.priority,
        original.order,
        original.tolerations,
        original.group,
    )
    twin.tree.add(copy)
    copy.state, copy.closing, copy.layout = original.state, original.closing, original.layout
    copy.flex_total, copy.flex_used = dict(original.flex_total), dict(original.flex_used)
    copy.flex_nodes = original.flex_nodes
    copy.idle, copy.emptied = set(original.idle), set(original.emptied)
    copy._made = original._made
    for slot, vnode in enumerate(original.fixed):
        if vnode is not None:
            copy.fixed[slot] = _copy_vnode(copy, vnode, vnodes)
    for number, vnode in original.flex.items():
        copy.flex[number] = _copy_vnode(copy, vnode, vnodes)


def _copy_vnode(cluster: VCluster, original: VNode, vnodes: dict[int, VNode]) -> VNode:
    source = original.host
    fixed = vnodes.get(id(source.fixed)) if source.fixed is not None else None
    made = VNode(original.vnode_id, cluster, Host(cluster.parent, original.node, fixed), original.spec)
    made.total, made.used, made.reported = dict(original.total), dict(original.used), original.reported
    vnodes[id(original)] = made
    return made
