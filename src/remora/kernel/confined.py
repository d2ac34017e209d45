"""Deciding inside a virtual cluster, where the shares are the capacity.

What the cluster already owns comes first: a fixed-size node, then idle flexible share, and only then growth. Rules about
nodes (taints, affinity, labels) hold as they do outside; a virtual node has its own labels on top of its node's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from remora.kernel import shares
from remora.kernel.cluster import Cluster
from remora.kernel.eligibility import eligible
from remora.kernel.nodesets import NodeSet, collect, without
from remora.kernel.ranking import choose
from remora.kernel.rules import Query
from remora.kernel.tree import VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.virtual_clusters import VCLUSTER_LABEL

_EVERYTHING = LabelSelector()


def decide(cluster: Cluster, vcluster: VCluster, query: Query, open_nodes: NodeSet) -> Host | None:
    """The host inside ``vcluster``, or None; ``open_nodes`` are those that affinity leaves open."""
    demand = query.request.demand
    allowed = open_nodes & untainted(cluster, query.choice)
    for vnodes in (vcluster.fixed, list(vcluster.flex.values())):
        owned = _owned(cluster, vnodes, query.choice.selector, demand, allowed)
        if owned:
            return owned[choose(cluster, query, _nodes(owned))]
    if not demand and any(vcluster.vnodes()):
        return None  # work that asks for nothing stays where its cluster is
    growing = allowed & grown_nodes(cluster, vcluster, query.choice, demand)
    # What the parent owns and does not use comes before making the parent grow as well.
    at_hand = growing & _idle_nodes(vcluster.parent, demand) if vcluster.parent is not None else 0
    for nodes in (at_hand, without(growing, at_hand)):
        while nodes:
            number = choose(cluster, query, nodes)
            host = Host(vcluster, number, None)
            if shares.fits(cluster, host, demand):
                return host
            nodes ^= 1 << number
    return None


def feasible(cluster: Cluster, vcluster: VCluster, choice: NodeClass, demand: Resources) -> bool:
    """Whether the cluster could ever hold it: when empty, and grown to its maximum."""
    for vnode in vcluster.fixed:
        if vnode is None or not choice.selector.matches(labels_of(cluster, vnode)):
            continue
        beside = Resources({name: units for name, units in demand.pairs if name not in vnode.total})
        if all(vnode.total.get(name, units) >= units for name, units in demand.pairs) and _within_limits(vcluster, beside):
            return True
    left = choice.selector.given({VCLUSTER_LABEL: vcluster.cluster_id})
    if left is None or not _within_limits(vcluster, demand):
        return False
    if vcluster.parent is not None:
        return feasible(cluster, vcluster.parent, replace(choice, selector=left), demand)
    return bool(eligible(cluster, replace(choice, selector=left)) & cluster.totals.at_least(demand))


def untainted(cluster: Cluster, choice: NodeClass) -> NodeSet:
    """What the static rules admit when labels are left out: those are asked of the virtual nodes."""
    return eligible(cluster, replace(choice, selector=_EVERYTHING)) if choice.selector else eligible(cluster, choice)


def grown_nodes(cluster: Cluster, vcluster: VCluster, choice: NodeClass, demand: Resources) -> NodeSet:
    """A superset of the nodes on which the flexible part could provide ``demand``."""
    left = choice.selector.given({VCLUSTER_LABEL: vcluster.cluster_id})
    if left is None:
        return 0
    return shares.reachable(cluster, vcluster, demand, {}) & eligible(cluster, replace(choice, selector=left))


def labels_of(cluster: Cluster, vnode: VNode) -> Mapping[str, str]:
    """A virtual node's labels: inherited from its node, then its own."""
    inherited = {**cluster.nodes.at(vnode.node).labels}
    if vnode.host.fixed is not None:
        inherited.update(labels_of(cluster, vnode.host.fixed))
    return {**inherited, **vnode.labels}


def _owned(
    cluster: Cluster, vnodes: list[VNode | None] | list[VNode], selector: LabelSelector, demand: Resources, allowed: NodeSet
) -> dict[int, Host]:
    """By node number: the first virtual node there that has the demand without growing a share of what it names."""
    found: dict[int, Host] = {}
    for vnode in vnodes:
        if vnode is None or vnode.node in found or not allowed >> vnode.node & 1:
            continue
        if not all(vnode.idle(name) >= units for name, units in demand.pairs if name in vnode.total or not vnode.fixed):
            continue
        if selector and not selector.matches(labels_of(cluster, vnode)):
            continue
        host = Host(vnode.cluster, vnode.node, vnode if vnode.fixed else None)
        if shares.fits(cluster, host, demand):
            found[vnode.node] = host
    return found


def _idle_nodes(vcluster: VCluster, demand: Resources) -> NodeSet:
    return collect(vnode.node for vnode in vcluster.vnodes() if all(vnode.idle(name) >= units for name, units in demand.pairs))


def _nodes(hosts: dict[int, Host]) -> NodeSet:
    return collect(hosts)


def _within_limits(vcluster: VCluster, demand: Resources) -> bool:
    return all((limit := vcluster.spec.limit(name)) is None or limit >= units for name, units in demand.pairs)
