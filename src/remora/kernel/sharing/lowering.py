"""Bringing a virtual cluster that has more than it may down to a lower maximum.

What is idle is given back at once. Nothing is ended: of what is in use, its work is asked to use less, and starts nothing new
until it does; what its children have only borrowed comes back after its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.sharing.reclaim import Place
from remora.kernel.sharing.usage import given_to_children
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster


def give_back_idle(cluster: Cluster, vcluster: VCluster, limits: Mapping[str, int]) -> dict[str, int]:
    """Give back what is idle above these limits, and return what is above them still."""
    if any(vcluster.flex_total.get(name, 0) > limit for name, limit in limits.items()):
        for child in vcluster.children.values():
            if child.group is None:
                _trim(cluster, child)
    over = {}
    for name, limit in limits.items():
        excess = vcluster.flex_total.get(name, 0) - limit
        if excess > 0:
            excess -= shares.shrink(cluster, vcluster, name, excess, None, [])
        if excess > 0:
            over[name] = excess
    return over


def use_less(vcluster: VCluster, over: Mapping[str, int]) -> dict[Place, dict[str, int]]:
    """Return whose work has to use how much less, so that so much comes back: the cluster's own, then that of its children,
    the youngest and least important first, down to their minima. Reads only."""
    asked: dict[Place, dict[str, int]] = {}
    for name, units in over.items():
        _ask(vcluster, name, units, asked)
    return asked


def _trim(cluster: Cluster, vcluster: VCluster) -> None:
    for child in vcluster.children.values():
        if child.group is None:
            _trim(cluster, child)
    shares.trim_one(cluster, vcluster)


def _ask(vcluster: VCluster, name: str, units: int, asked: dict[Place, dict[str, int]]) -> None:
    left = units
    for number, vnode in sorted(vcluster.flex.items()):
        part = min(left, vnode.used.get(name, 0) - given_to_children(vnode, name))
        if part > 0:
            asked.setdefault((vcluster.cluster_id, number), {})[name] = part
            left -= part
    for child in sorted(vcluster.children.values(), key=lambda each: (each.priority, -each.order)):
        borrowed = child.flex_total.get(name, 0) - child.spec.flexible_resource_min.get(name, 0)
        if left > 0 and borrowed > 0 and child.group is None:
            part = min(left, borrowed)
            _ask(child, name, part, asked)
            left -= part
