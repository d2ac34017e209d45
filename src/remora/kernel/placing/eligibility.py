"""Which nodes a node class admits by labels, taints and id, kept until a node changes."""

from __future__ import annotations

from remora.kernel.rules import STATIC, Query
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.type_table import TypeTable
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY, Resources

_MOST_CLASSES = 4096


def eligible(cluster: Cluster, choice: NodeClass) -> NodeSet:
    """Return the nodes that the static rules admit. A rebuild is a few operations on node sets, whatever their size."""
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


def could_hold(cluster: Cluster, choice: NodeClass, demand: Resources) -> bool:
    """Return whether a node that is there could ever hold it, or one of a type that may be started now or later."""
    return bool(eligible(cluster, choice) & cluster.totals.at_least(demand)) or bool(types_for(cluster, choice, demand))


def types_for(cluster: Cluster, choice: NodeClass, demand: Resources) -> NodeSet:
    """Return the node types of which a machine could be started that would hold it, as templates."""
    table = cluster.types
    return 0 if table is None else types_that_hold(table, choice, demand) & table.at_hand


def types_that_hold(table: TypeTable, choice: NodeClass, demand: Resources) -> NodeSet:
    """Return the types of which an empty node would hold it, as templates, whether any may be started or not."""
    return eligible(table.templates, choice) & table.templates.totals.at_least(demand)
