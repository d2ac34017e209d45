"""Where one piece of work goes: feasible, allowed, available, then the best; or nowhere for now.

1. for each choice in order (the selector, then its fallbacks):
2.   the nodes that its labels, taints and pin allow, and that have the resources free
3.   minus what affinity refuses
4.   if any is left: the best by wishes, then by policy
5.   if none is left but some node, there or to be started, could ever hold it: wait here, do not fall back
"""

from __future__ import annotations

from remora.kernel.placing import inside
from remora.kernel.placing.eligibility import could_hold, eligible
from remora.kernel.placing.ranking import choose
from remora.kernel.rules import DYNAMIC, Query
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.workloads import Host
from remora.model.labels import Labels
from remora.model.requests import Request


def decide(
    cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "", within: NodeSet | None = None
) -> Host | None:
    """Return the host for a newcomer now; None when it has to wait. Reads only. ``within`` are the nodes that come into
    question at all."""
    last = request.choices[-1]
    for choice in request.choices:
        query = Query(request, choice, labels, workload_id)
        host = _decide(cluster, query, within)
        if host is not None or choice is last or feasible(cluster, query):
            return host
    return None


def _decide(cluster: Cluster, query: Query, within: NodeSet | None) -> Host | None:
    request = query.request
    if request.cluster is not None:
        vcluster = cluster.tree.get(request.cluster)
        if vcluster.state != READY:
            return None
        open_ = screened(cluster, query)
        return inside.decide(cluster, vcluster, query, open_ if within is None else open_ & within)
    ready = eligible(cluster, query.choice) & cluster.available.at_least(request.demand)
    if within is not None:
        ready &= within
    if ready and (request.affinities or request.spreads or cluster.refusals):
        ready = _screen(cluster, query, ready)
    return Host(None, choose(cluster, query, ready), None) if ready else None


def feasible(cluster: Cluster, query: Query) -> bool:
    """Return whether some node, or one of a type that may be started, could ever hold it: by totals, labels and taints; what is
    placed there now plays no part."""
    request = query.request
    if request.cluster is not None:
        return inside.feasible(cluster, cluster.tree.get(request.cluster), query.choice, request.demand)
    return could_hold(cluster, query.choice, request.demand)


def screened(cluster: Cluster, query: Query) -> NodeSet:
    """Return the nodes that the placed workloads leave open to a query, whatever their labels, taints and resources."""
    return _screen(cluster, query, cluster.nodes.alive)


def _screen(cluster: Cluster, query: Query, nodes: NodeSet) -> NodeSet:
    for rule in DYNAMIC:
        for screen in rule.screens(cluster, query):
            nodes = screen.passing(nodes)
            if not nodes:
                return 0
    return nodes
