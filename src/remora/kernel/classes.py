"""Which nodes a class is offered on: those of its first choice that some node could ever hold.

Inside a virtual cluster: the nodes where it has a virtual node that the class admits.
"""

from __future__ import annotations

from remora.kernel import confined
from remora.kernel.cluster import Cluster
from remora.kernel.eligibility import eligible
from remora.kernel.nodesets import NodeSet, collect, members
from remora.kernel.tree import READY, VCluster
from remora.kernel.virtual_labels import admits, labels_of, openings
from remora.model.requests import NodeClass
from remora.model.resources import Resources


def offered(cluster: Cluster, choices: tuple[NodeClass, ...], demand: Resources, vcluster: VCluster | None = None) -> NodeSet:
    """The nodes whose raylets may start work of this class now. None while no choice could ever be held."""
    if vcluster is not None:
        return _offered_in(cluster, vcluster, choices, demand)
    if len(choices) == 1:
        return eligible(cluster, choices[0])
    for choice in choices:
        nodes = eligible(cluster, choice)
        if nodes & cluster.totals.at_least(demand):
            return nodes
    return 0


def _offered_in(cluster: Cluster, vcluster: VCluster, choices: tuple[NodeClass, ...], demand: Resources) -> NodeSet:
    for choice in choices if vcluster.state == READY else ():
        if len(choices) == 1 or confined.feasible(cluster, vcluster, choice, demand):
            allowed = confined.untainted(cluster, choice)
            return allowed & (_owned(cluster, vcluster, choice) or _possible(cluster, vcluster, choice, allowed))
    return 0


def _owned(cluster: Cluster, vcluster: VCluster, choice: NodeClass) -> NodeSet:
    return collect(vnode.node for vnode in vcluster.vnodes() if admits(choice, labels_of(cluster, vnode)))


def _possible(cluster: Cluster, vcluster: VCluster, choice: NodeClass, allowed: NodeSet) -> NodeSet:
    """It has no such virtual node yet: wherever it could get one."""
    return collect(
        number
        for number in members(allowed)
        if any(admits(choice, labels) for _, labels in openings(cluster, vcluster, number))
    )
