"""Which nodes a node class admits by labels, taints and id, kept until a node changes."""

from __future__ import annotations

from remora.kernel.cluster import Cluster
from remora.kernel.nodesets import NodeSet
from remora.kernel.rules import STATIC, Query
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY

_MOST_CLASSES = 4096


def eligible(cluster: Cluster, choice: NodeClass) -> NodeSet:
    """The nodes that the static rules admit. A rebuild is a few operations on node sets, whatever their size."""
    version = cluster.nodes.version
    known = cluster.eligible_cache.get(choice)
    if known is not None and known[0] == version:
        return known[1]
    query = Query(Request("task", EMPTY, EMPTY, (choice,)), choice)
    nodes = cluster.nodes.alive
    for rule in STATIC:
        for screen in rule.screens(cluster, query):
            nodes = screen.passing(nodes)
    if known is None and len(cluster.eligible_cache) >= _MOST_CLASSES:
        cluster.eligible_cache.pop(next(iter(cluster.eligible_cache)))
    cluster.eligible_cache[choice] = (version, nodes)
    return nodes
