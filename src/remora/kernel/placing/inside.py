"""Deciding inside a virtual cluster, where the shares are the capacity.

What the cluster already owns comes first: a fixed-size node, then idle flexible share, and only then growth; and last what it
owns on a node that others have filled, which it has to wait for. Rules about
nodes (taints, affinity) hold as they do outside; labels are asked of the virtual nodes, which have more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remora.kernel.placing.eligibility import could_hold, eligible
from remora.kernel.placing.ranking import choose
from remora.kernel.rules import Query
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.node_sets import NodeSet, collect, without
from remora.kernel.state.virtual_labels import admits, asks_labels, labels_of, openings
from remora.kernel.state.workloads import Host
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL

_EVERYTHING = LabelSelector()


def decide(cluster: Cluster, vcluster: VCluster, query: Query, open_nodes: NodeSet) -> Host | None:
    """Return the host inside ``vcluster``, or None; ``open_nodes`` are those that affinity leaves open."""
    demand = query.request.demand
    allowed = open_nodes & untainted(cluster, query.choice)
    crowded: dict[int, Host] = {}
    for vnodes in (vcluster.fixed, _with_idle(vcluster, demand)):
        found = _owned(cluster, vnodes, query.choice, demand, allowed)
        owned = {number: host for number, host in found.items() if not is_crowded(cluster, vcluster, number, demand)}
        if owned:
            return owned[choose(cluster, query, collect(owned), _wishes(cluster, query, owned))]
        crowded = crowded or found
    if not demand and any(vcluster.vnodes()):
        return None  # work that asks for nothing stays where its cluster is
    growing = allowed & growable(cluster, vcluster, query.choice, demand)
    # What the parent owns and does not use comes before making the parent grow as well.
    at_hand = growing & _idle_nodes(vcluster.parent, demand) if vcluster.parent is not None else 0
    last: Host | None = None
    for nodes in (at_hand, without(growing, at_hand)):
        while nodes:
            number = choose(cluster, query, nodes)
            for host in flexible_hosts(cluster, vcluster, number, query.choice):
                if shares.fits(cluster, host, demand):
                    if not is_crowded(cluster, vcluster, number, demand, above=True):
                        return host
                    last = last or host  # out of idle shares, its own or its parent's, that are not to be had now
            nodes ^= 1 << number
    return crowded[choose(cluster, query, collect(crowded), _wishes(cluster, query, crowded))] if crowded else last


def feasible(cluster: Cluster, vcluster: VCluster, choice: NodeClass, demand: Resources) -> bool:
    """Return whether the cluster could ever hold it: when empty, and grown to its maximum."""
    allowed = untainted(cluster, choice)
    for vnode in vcluster.fixed:
        if vnode is None or not allowed >> vnode.node & 1 or not admits(choice, labels_of(cluster, vnode)):
            continue
        beside = Resources({name: units for name, units in demand.pairs if name not in vnode.total})
        if all(vnode.total.get(name, units) >= units for name, units in demand.pairs) and _within_limits(vcluster, beside):
            return True
    left = _given(choice, vcluster)
    if left is None or not _within_limits(vcluster, demand):
        return False
    if vcluster.parent is not None:
        return feasible(cluster, vcluster.parent, left, demand)
    return could_hold(cluster, left, demand)


def untainted(cluster: Cluster, choice: NodeClass) -> NodeSet:
    """Return what the static rules admit when labels are left out: those are asked of the virtual nodes."""
    return eligible(cluster, replace(choice, selector=_EVERYTHING, any_of=()) if asks_labels(choice) else choice)


def growable(cluster: Cluster, vcluster: VCluster, choice: NodeClass, demand: Resources) -> NodeSet:
    """Return a superset of the nodes on which the flexible part could provide ``demand``."""
    nodes = shares.reachable(cluster, vcluster, demand, {})
    asked = {term.key for term in choice.selector.terms}
    if not asked or VNODE_LABEL in asked or any(ancestor.fixed for ancestor in vcluster.chain() if ancestor is not vcluster):
        return nodes
    # No ancestor adds labels of its own, so the physical nodes' labels decide, and they are indexed.
    left = _given(replace(choice, any_of=()), vcluster)
    return nodes & eligible(cluster, left) if left is not None else 0


def is_crowded(cluster: Cluster, vcluster: VCluster, number: int, demand: Resources, *, above: bool = False) -> bool:
    """Return whether others use a node beyond what its shares leave them, so that what a cluster has idle there, or with
    ``above`` those around it too, is not to be had now. That is so on a live cluster only, where use is observed."""
    if not cluster.nodes.at(number).reported:
        return False
    for name, units in demand.pairs:
        missing = -cluster.available.get(number, name)
        if missing > 0:
            having = vcluster.chain() if above else (vcluster,)
            idle = sum(vnode.idle(name) for each in having for vnode in each.vnodes() if vnode.node == number)
            if idle - missing < units:
                return True
    return False


def flexible_hosts(cluster: Cluster, vcluster: VCluster, number: int, choice: NodeClass) -> list[Host]:
    """Return the flexible node there, or the ways to make it, that the labels asked for admit."""
    if not asks_labels(choice):
        return [Host(vcluster, number, None)]
    return [host for host, labels in openings(cluster, vcluster, number) if admits(choice, labels)]


def _given(choice: NodeClass, vcluster: VCluster) -> NodeClass | None:
    """Return what is left to ask of nodes once the label of the cluster itself is known; None when that label says no."""
    left = choice.selector.given({VCLUSTER_LABEL: vcluster.cluster_id})
    return None if left is None else replace(choice, selector=left)


def _with_idle(vcluster: VCluster, demand: Resources) -> list[VNode]:
    return [vcluster.flex[number] for number in sorted(vcluster.idle if demand else {*vcluster.flex} - vcluster.emptied)]


def _owned(
    cluster: Cluster, vnodes: Iterable[VNode | None], choice: NodeClass, demand: Resources, allowed: NodeSet
) -> dict[int, Host]:
    """Return, by node number, the first virtual node there that has the demand without growing a share of what it names."""
    found: dict[int, Host] = {}
    for vnode in vnodes:
        if vnode is None or vnode.node in found or not allowed >> vnode.node & 1:
            continue
        beside = False
        for name, units in demand.pairs:
            if vnode.fixed and name not in vnode.total:
                beside = True
            elif vnode.idle(name) < units:
                break
        else:
            host = Host(vnode.cluster, vnode.node, vnode if vnode.fixed else None)
            if asks_labels(choice) and not admits(choice, labels_of(cluster, vnode)):
                continue
            if not beside or shares.fits(cluster, host, demand):
                found[vnode.node] = host
    return found


def _wishes(cluster: Cluster, query: Query, owned: dict[int, Host]) -> list[NodeSet] | None:
    """Return the wishes about node labels as node sets, asked of the virtual nodes."""
    if not query.request.wishes:
        return None
    labels = {}
    for number, host in owned.items():
        assert host.cluster is not None
        labels[number] = labels_of(cluster, host.fixed or host.cluster.flex[number])
    return [collect(number for number in labels if term.matches(labels[number])) for term in query.request.wishes]


def _idle_nodes(vcluster: VCluster, demand: Resources) -> NodeSet:
    return collect(vnode.node for vnode in vcluster.vnodes() if all(vnode.idle(name) >= units for name, units in demand.pairs))


def _within_limits(vcluster: VCluster, demand: Resources) -> bool:
    return all((limit := vcluster.spec.limit(name)) is None or limit >= units for name, units in demand.pairs)
