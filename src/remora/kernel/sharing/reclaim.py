"""What has to come back so that a virtual cluster gets its minimum: shares that others have only borrowed.

Borrowed is what a sibling has above its own minimum, and what its parent's own work uses. Nothing is ended for it: a borrower
that is asked to use less starts nothing new until it does.
"""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.placing.reserving import could_reserve
from remora.kernel.sharing.usage import own_total
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster

Place = tuple[str | None, int]
"""Whose work, and on which node; None is work in no virtual cluster."""


def reclaim(
    cluster: Cluster, waiting: VCluster, used_beyond: Mapping[Place, Mapping[str, int]]
) -> dict[Place, dict[str, int]] | None:
    """Return who has to use how much less, so that ``waiting`` can be reserved, or what it has lost: as few as possible, the
    youngest and least important first. None when that would not help. ``used_beyond`` is what is used of nodes and is nobody's
    share: by work in no virtual cluster, and by work that uses more of its share than that is by now."""
    borrowers = [each for each in _siblings(cluster, waiting) if each.state == READY and each is not waiting]
    borrowers.sort(key=lambda sibling: (sibling.priority, -sibling.order))
    with shares.trial(cluster) as journal:
        asked = _borrowed_by_work(cluster, waiting.parent, used_beyond, journal)
        if asked and could_reserve(cluster, waiting):
            return asked
        for borrower in borrowers:
            asked |= _excess(cluster, borrower, journal)
            if asked and could_reserve(cluster, waiting):
                return asked
    return None


def _siblings(cluster: Cluster, waiting: VCluster) -> list[VCluster]:
    if waiting.parent is not None:
        return list(waiting.parent.children.values())
    return [vcluster for vcluster in cluster.tree.clusters.values() if vcluster.parent is None]


def _excess(cluster: Cluster, borrower: VCluster, journal: shares.Journal) -> dict[Place, dict[str, int]]:
    """Return what a sibling has above its minimum, from where it has most. What it has given to those inside was promised to
    them: it does not come back before they end."""
    asked: dict[Place, dict[str, int]] = {}
    for name, total in list(borrower.flex_total.items()):
        left = total - borrower.spec.flexible_resource_min.get(name, 0)
        for vnode in sorted(borrower.flex.values(), key=lambda vnode: -vnode.total.get(name, 0)):
            part = min(left, own_total(vnode, name))
            if part > 0:
                left -= part
                shares.resize(vnode, name, -part, journal)
                shares.give(cluster, vnode.host, ((name, part),), journal)
                asked.setdefault((borrower.cluster_id, vnode.node), {})[name] = part
    return asked


def _borrowed_by_work(
    cluster: Cluster, parent: VCluster | None, used_beyond: Mapping[Place, Mapping[str, int]], journal: shares.Journal
) -> dict[Place, dict[str, int]]:
    """Return what the parent's own work uses: all of it is what its children were promised first."""
    asked: dict[Place, dict[str, int]] = {}
    if parent is None:
        for (account, number), used in used_beyond.items():
            shares.give_physical(cluster, number, used, journal)
            if used:
                asked[account, number] = dict(used)
        return asked
    for vnode in parent.vnodes():
        for name in list(vnode.used):
            inner = sum(
                each.total.get(name, 0)
                for child in parent.children.values()
                for each in child.vnodes()
                if each.host.node == vnode.node and (each.host.fixed or parent.flex.get(each.node)) is vnode
            )
            part = vnode.used[name] - inner
            if part > 0:
                shares.use(vnode, name, -part, journal)
                asked.setdefault((parent.cluster_id, vnode.node), {})[name] = part
    return asked
