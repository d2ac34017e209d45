"""What is in use of a share, as reports say it, and what is left of it for the cluster's own work."""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import VCluster, VNode


def observe_use(vcluster: VCluster, number: int, used: Mapping[str, int]) -> None:
    """Take over that the cluster's own work holds this much on a node: what was reported, and what is assumed beyond that. What
    its children were given there is known already.

    Which virtual node it is in is not told: fixed-size ones are filled first. More than there is may be in use for a moment.
    """
    left = dict(used)
    for vnode in vcluster.fixed:
        if vnode is not None and vnode.node == number:
            for name, total in vnode.total.items():
                given = given_to_children(vnode, name)
                part = min(left.get(name, 0), max(total - given, 0))
                left[name] = left.get(name, 0) - part
                _set_used(vnode, name, given + part)
    flexible = vcluster.flex.get(number)
    if flexible is not None:
        for name in {*flexible.total, *flexible.used, *left}:
            _set_used(flexible, name, given_to_children(flexible, name) + left.get(name, 0))


def own_total(vnode: VNode, name: str) -> int:
    """Return what is left of a virtual node for the cluster's own work, once its children have theirs."""
    return vnode.total.get(name, 0) - given_to_children(vnode, name)


def given_to_children(vnode: VNode, name: str) -> int:
    """Return how much of a virtual node the cluster's children have."""
    given = 0
    for child in vnode.cluster.children.values():
        for inner in (*child.fixed, child.flex.get(vnode.node)):
            if inner is not None and inner.node == vnode.node and _comes_from(inner, vnode, name):
                given += inner.total.get(name, 0)
    return given


def _comes_from(inner: VNode, vnode: VNode, name: str) -> bool:
    """Return whether a child's virtual node takes a resource from this one. What a fixed-size node does not name comes from the
    flexible node beside it."""
    source = inner.host.fixed
    if vnode.fixed:
        return source is vnode and name in vnode.total
    return source is None or name not in source.total


def _set_used(vnode: VNode, name: str, units: int) -> None:
    vnode.reported = True
    delta = units - vnode.used.get(name, 0)
    if delta:
        shares.use(vnode, name, delta)
