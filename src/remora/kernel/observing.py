"""Virtual clusters on a live cluster, where nobody tells of single tasks: use is observed, and shares grow for what waits."""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel import shares
from remora.kernel.cluster import Cluster
from remora.kernel.placement import decide
from remora.kernel.tree import VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.strategies import TASK


def observe_use(vcluster: VCluster, number: int, used: Mapping[str, int]) -> None:
    """The cluster's own work holds this much on a node; what its children were given there is known already.

    Which virtual node it is in is not told: fixed-size ones are filled first. More than there is may be in use for a moment.
    """
    left = dict(used)
    for vnode in vcluster.fixed:
        if vnode is not None and vnode.node == number:
            for name, total in vnode.total.items():
                given = given_to_children(vnode, name)
                part = min(left.get(name, 0), max(total - given, 0))
                left[name] = left.get(name, 0) - part
                _set_used(vnode, name, given + part)
    flexible = vcluster.flex.get(number)
    if flexible is not None:
        for name in {*flexible.total, *flexible.used, *left}:
            _set_used(flexible, name, given_to_children(flexible, name) + left.get(name, 0))


def own_total(vnode: VNode, name: str) -> int:
    """What is left of a virtual node for the cluster's own work, once its children have theirs."""
    return vnode.total.get(name, 0) - given_to_children(vnode, name)


def given_to_children(vnode: VNode, name: str) -> int:
    here = [inner for child in vnode.cluster.children.values() for inner in child.vnodes() if inner.node == vnode.node]
    return sum(inner.total.get(name, 0) for inner in here if _comes_from(inner, vnode, name))


def grow_for(cluster: Cluster, vcluster: VCluster, choices: tuple[NodeClass, ...], demand: Resources, count: int) -> int:
    """Make shares so that ``count`` more of this demand find room, as far as it goes; how many do."""
    request = Request(TASK, demand, demand, choices, cluster=vcluster.cluster_id)
    journal: shares.Journal = []
    hosts: list[Host] = []
    while demand and len(hosts) < count:
        host = decide(cluster, request)
        if host is None or not shares.take(cluster, host, demand.pairs, journal):
            break
        hosts.append(host)
    for host in hosts:
        shares.give(cluster, host, demand.pairs)
    return len(hosts)


def bring_along(cluster: Cluster, vcluster: VCluster, name: str, beside: str = "CPU") -> None:
    """Where a cluster has a part of a node's CPUs, it gets the same part of something that its spec leaves open, if that is to
    be had: growing by every task's few bytes of memory, one after the other, would hold its work up."""
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


def put_back(cluster: Cluster, vcluster: VCluster, slot: int | None, host: Host, total: Mapping[str, int]) -> None:
    """A virtual node that is remembered from before: it is there, whatever its parent has left."""
    spec = None
    if slot is not None:
        spec = [node for nodes in vcluster.spec.fixed_size_nodes for node in nodes.nodes][slot]
    vnode = VNode(vcluster.next_vnode_id(), vcluster, host, spec)
    if slot is not None:
        vnode.total = dict(total)
        vcluster.set_fixed(slot, vnode)
    else:
        vcluster.add_flexible(vnode)
        for name, units in total.items():
            shares.resize(vnode, name, units)
    if host.cluster is None:
        for name, units in total.items():
            cluster.available.add(host.node, name, -units)
        cluster.load.update(host.node)
    else:
        above = host.fixed or host.cluster.flex.get(host.node)
        for name, units in total.items() if above is not None else ():
            assert above is not None
            _set_used(above, name, above.used.get(name, 0) + units)


def _comes_from(inner: VNode, vnode: VNode, name: str) -> bool:
    """What a fixed-size node does not name comes from the flexible node beside it."""
    source = inner.host.fixed
    if vnode.fixed:
        return source is vnode and name in vnode.total
    return source is None or name not in source.total


def _set_used(vnode: VNode, name: str, units: int) -> None:
    delta = units - vnode.used.get(name, 0)
    if delta:
        shares.use(vnode, name, delta)
