"""Which nodes a class is offered on: those of its first choice that some node could ever hold."""

from __future__ import annotations

from remora.kernel.cluster import Cluster
from remora.kernel.eligibility import eligible
from remora.kernel.nodesets import NodeSet
from remora.model.requests import NodeClass
from remora.model.resources import Resources


def offered(cluster: Cluster, choices: tuple[NodeClass, ...], demand: Resources) -> NodeSet:
    """The nodes whose raylets may start work of this class now. None while no choice could ever be held."""
    if len(choices) == 1:
        return eligible(cluster, choices[0])
    for choice in choices:
        nodes = eligible(cluster, choice)
        if nodes & cluster.totals.at_least(demand):
            return nodes
    return 0
