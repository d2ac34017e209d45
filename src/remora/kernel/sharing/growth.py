"""Making room in a share for work that waits: as much as its maximum and its parent allow."""

from __future__ import annotations

from collections.abc import Iterable

from remora.kernel.placing.placement import decide
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Host
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.strategies import TASK

Want = tuple[tuple[NodeClass, ...], Resources, int]
"""Where something may run, what one of its kind takes, and how many there are."""


def grow_for(cluster: Cluster, vcluster: VCluster, wants: Iterable[Want]) -> None:
    """Make shares so that all of this finds room beside each other, as far as it goes; what comes first goes first."""
    journal: shares.Journal = []
    taken: list[tuple[Host, Resources]] = []
    for choices, demand, count in wants:
        request = Request(TASK, demand, demand, choices, cluster=vcluster.cluster_id)
        for _ in range(count if demand else 0):
            host = decide(cluster, request)
            if host is None or not shares.take(cluster, host, demand.pairs, journal):
                break
            taken.append((host, demand))
    for host, demand in taken:
        shares.give(cluster, host, demand.pairs)


def grow_in_proportion(cluster: Cluster, vcluster: VCluster, name: str, beside: str = "CPU") -> None:
    """Give the cluster the same fraction of ``name`` (memory) as it has of the node's CPUs, if that is available. Growing by
    each task's few bytes would delay its work."""
    for number in {vnode.node for vnode in vcluster.vnodes()}:
        whole = cluster.nodes.at(number).total
        here = [vnode for vnode in vcluster.vnodes() if vnode.node == number]
        part = whole.get(name, 0) * sum(vnode.total.get(beside, 0) for vnode in here) // max(whole.get(beside, 0), 1)
        lack = part - sum(vnode.total.get(name, 0) for vnode in here)
        if lack > 0:
            flexible = vcluster.flex.get(number)
            amounts = [(name, lack + (flexible.idle(name) if flexible is not None else 0))]
            host, journal = Host(vcluster, number, None), []  # type: tuple[Host, shares.Journal]
            if shares.take(cluster, host, amounts, journal):
                shares.give(cluster, host, amounts)
            else:
                shares.undo(journal)
