"""Which nodes a class is offered on: those of its first choice that some node, there or to be started, could ever hold.

Inside a virtual cluster: the nodes where it has a virtual node that the class admits.
"""

from __future__ import annotations

from remora.kernel.placing import inside
from remora.kernel.placing.eligibility import could_hold, eligible
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members
from remora.kernel.state.virtual_labels import admits, labels_of, openings
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL


def offered(cluster: Cluster, choices: tuple[NodeClass, ...], demand: Resources, vcluster: VCluster | None = None) -> NodeSet:
    """Return the nodes whose raylets may start work of this class now; no node while no choice could ever be held."""
    if vcluster is not None:
        return _offered_in(cluster, vcluster, choices, demand)
    if len(choices) == 1:
        return eligible(cluster, choices[0])
    for choice in choices:
        if could_hold(cluster, choice, demand):
            return eligible(cluster, choice)
    return 0


def _offered_in(cluster: Cluster, vcluster: VCluster, choices: tuple[NodeClass, ...], demand: Resources) -> NodeSet:
    for choice in choices if vcluster.state == READY else ():
        if len(choices) == 1 or inside.feasible(cluster, vcluster, choice, demand):
            allowed = inside.untainted(cluster, choice)
            return allowed & (_owned(cluster, vcluster, choice) or _possible(cluster, vcluster, choice, allowed))
    return 0


def _owned(cluster: Cluster, vcluster: VCluster, choice: NodeClass) -> NodeSet:
    return collect(vnode.node for vnode in vcluster.vnodes() if admits(choice, labels_of(cluster, vnode)))


def _possible(cluster: Cluster, vcluster: VCluster, choice: NodeClass, allowed: NodeSet) -> NodeSet:
    """Return where a cluster without such a virtual node could get one."""
    asked = {term.key for terms in (choice.selector.terms, *choice.any_of) for term in terms}
    own = any(key in asked for key in (VNODE_LABEL, VCLUSTER_LABEL))
    if not own and not any(ancestor.fixed for ancestor in vcluster.chain() if ancestor is not vcluster):
        # No ancestor adds labels that are asked for, so the physical nodes' labels decide, and they are indexed.
        return eligible(cluster, choice)
    return collect(
        number
        for number in members(allowed)
        if any(admits(choice, labels) for _, labels in openings(cluster, vcluster, number))
    )
