"""Which machines to keep though they look idle: those that something was promised, as few as possible.

A machine is kept for a reserved minimum that lies on it, for a whole that has part of its machines and waits for others, and
for work that was placed there and has not been seen to run yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remora.kernel.provisioning.plans import Plan
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members, without

MINIMUM, WHOLE, LEASE = "minimum", "whole", "lease"


@dataclass(frozen=True)
class Kept:
    """Why a machine is kept: ``kind`` for programs, ``why`` for people."""

    kind: str
    why: str


def kept(cluster: Cluster, plan: Plan | None = None, before: Iterable[str] = (), staying: NodeSet = 0) -> dict[str, Kept]:
    """Return the machines to keep, by node id. ``plan`` is the newest; ``before`` are those that are kept now, which are rather
    kept on than others; ``staying`` are those that nobody would end, which carry a minimum for nothing."""
    found: dict[int, Kept] = {}
    for number, workload in _about_to_start(cluster):
        found.setdefault(number, Kept(LEASE, f"{workload} is about to start there"))
    for node_id, whom in (plan.held if plan is not None else {}).items():
        node = cluster.nodes.by_id.get(node_id)
        if node is not None:
            found.setdefault(node.number, Kept(WHOLE, f"{whom} is to lie there, and waits for other nodes"))
    known = {node.number for node_id in before if (node := cluster.nodes.by_id.get(node_id)) is not None}
    for number, names in _carriers(cluster, known, staying, collect(found)).items():
        found.setdefault(number, Kept(MINIMUM, f"the minimum of {' and '.join(names)} lies there"))
    ids = {cluster.nodes.at(number).node_id: why for number, why in found.items() if not staying >> number & 1}
    return dict(sorted(ids.items()))


def _about_to_start(cluster: Cluster) -> Iterable[tuple[int, str]]:
    for workload in cluster.placed.values():
        if not workload.confirmed:
            yield workload.node, workload.workload_id
    for group in cluster.groups.values():
        for host in group.hosts:
            if host is not None:
                yield host.node, f"the placement group {group.group_id}"


def _carriers(cluster: Cluster, before: set[int], staying: NodeSet, anyway: NodeSet) -> dict[int, list[str]]:
    """Return the machines that carry minima, each with whose: all with fixed-size nodes, and as few of the others as do."""
    ready = [each for each in cluster.tree.clusters.values() if each.state == READY and not each.closing]
    chosen: dict[int, list[str]] = {}
    for vcluster in ready:
        for vnode in vcluster.fixed:
            if vnode is not None and vcluster.cluster_id not in chosen.setdefault(vnode.node, []):
                chosen[vnode.node].append(vcluster.cluster_id)
    fixed = collect(chosen) | staying | anyway
    carrying = fixed
    for vcluster in ready:
        for name, least in vcluster.spec.flexible_resource_min.pairs:
            missing = least - _carried(vcluster, name, carrying)
            for number in sorted(vcluster.flex, key=lambda n: _preference(cluster, vcluster, name, n, before)):
                if missing <= 0:
                    break
                part = vcluster.flex[number].total.get(name, 0)
                if part and not carrying >> number & 1:
                    carrying |= 1 << number
                    missing -= part
    carrying = _without_needless(cluster, ready, carrying, fixed, before)
    for vcluster in ready:
        if vcluster.spec.flexible_resource_min:
            for number in members(carrying & vcluster.flex_nodes):
                if vcluster.cluster_id not in chosen.setdefault(number, []):
                    chosen[number].append(vcluster.cluster_id)
    return chosen


def _carried(vcluster: VCluster, name: str, nodes: NodeSet) -> int:
    return sum(vnode.total.get(name, 0) for number, vnode in vcluster.flex.items() if nodes >> number & 1)


def _preference(cluster: Cluster, vcluster: VCluster, name: str, number: int, before: set[int]) -> tuple[bool, bool, int, int]:
    """Return how well a machine carries a minimum: kept already, in use anyway, a large part of it."""
    vnode = vcluster.flex[number]
    in_use = bool(cluster.on_node[number]) or bool(vnode.used)
    return number not in before, not in_use, -vnode.total.get(name, 0), number


def _without_needless(cluster: Cluster, ready: list[VCluster], carrying: NodeSet, fixed: NodeSet, before: set[int]) -> NodeSet:
    """Leave machines out without which every minimum is carried all the same: what was chosen for one may do for others."""
    for number in sorted(members(without(carrying, fixed)), key=lambda n: (n in before, bool(cluster.on_node[n]), -n)):
        rest = carrying ^ 1 << number
        if all(
            _carried(vcluster, name, rest) >= min(least, _carried(vcluster, name, carrying))
            for vcluster in ready
            for name, least in vcluster.spec.flexible_resource_min.pairs
        ):
            carrying = rest
    return carrying
