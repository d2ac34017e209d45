"""Recount everything from what is placed, and compare with what the indexes say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remora.errors import InvariantError
from remora.kernel.state.cluster import Cluster, refused_by
from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.load import CALM_STEPS
from remora.kernel.state.node_sets import collect
from remora.kernel.state.node_table import TAINT
from remora.kernel.state.shares import counted_in
from remora.kernel.state.workloads import Host, Workload
from remora.model.strategies import NODE

_Holdings = dict[Any, Counter[str]]
_NOTHING: Counter[str] = Counter()


def validate(cluster: Cluster) -> None:
    """Raise InvariantError unless: no node is over its total, no child over its parent, no virtual cluster over its
    maximum, and every index equals a recount.

    Where what is in use was taken from reports, it is at least what is assumed here; how much more is for the reports to say.
    """
    held = _holdings(cluster)
    _check_nodes(cluster, held)
    for vcluster in cluster.tree.clusters.values():
        _check_cluster(vcluster, held)
    _check_label_indexes(cluster)
    _check_load(cluster)
    _check_views(cluster)


def _holdings(cluster: Cluster) -> _Holdings:
    """Return what each host provides, added up over everything that takes from it."""
    held: _Holdings = {}

    def hold(holding: Any, host: Host, amounts: Any) -> None:
        for name, units in amounts:
            if host.cluster is None:
                holder: Any = host.node
            elif host.fixed is not None and name in host.fixed.total:
                holder = id(host.fixed)
            else:
                vnode = host.cluster.flex.get(host.node) or counted_in(host, name)
                if vnode is None:
                    raise InvariantError(f"{holding} takes from a share on node {host.node} that is gone")
                holder = id(vnode)
            held.setdefault(holder, Counter())[name] += units

    for workload in cluster.placed.values():
        if not workload.confirmed:
            hold(workload, workload.host or Host(None, workload.node, None), workload.request.resources.pairs)
    for group in cluster.groups.values():
        for bundle, host in zip(group.bundles, group.hosts, strict=True):
            if host is not None:
                hold(group, host, bundle.resources.pairs)
    for vcluster in cluster.tree.clusters.values():
        for vnode in vcluster.vnodes():
            hold(vnode, vnode.host, vnode.total.items())
    return held


def _check_nodes(cluster: Cluster, held: _Holdings) -> None:
    for node in cluster.nodes.by_id.values():
        used = held.get(node.number, _NOTHING)
        for name in {*node.total, *used, *cluster.available.amounts(node.number)}:
            total, free = node.total.get(name, 0), cluster.available.get(node.number, name)
            right = free <= total - used[name] if node.reported else free == total - used[name]
            if not right:
                raise InvariantError(f"{node.node_id} has {free} {name} free, but {total} - {used[name]} are")
            if not (free >= 0 or node.reported):
                raise InvariantError(f"{node.node_id} is over its total by {-free} {name}")
    if cluster.nodes.alive != collect(node.number for node in cluster.nodes.by_id.values()):
        raise InvariantError("alive is not the live nodes")


def _check_cluster(vcluster: VCluster, held: _Holdings) -> None:
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    above = vcluster.parent
    if above is not None and above.children.get(vcluster.cluster_id) is not vcluster:
        raise InvariantError(f"{vcluster} is none of the children of {above}")
    vnodes = [*vcluster.vnodes(), *(vcluster.flex[number] for number in vcluster.emptied)]
    _check_reported(vcluster, vnodes, held)
    for vnode in vnodes:
        _check_vnode(vnode, held.get(id(vnode), _NOTHING))
        if not vnode.fixed:
            total.update(vnode.total)
            used.update(vnode.used)
    if dict(+total) != vcluster.flex_total:
        raise InvariantError(f"{vcluster} counts {vcluster.flex_total} flexible, but has {dict(total)}")
    if dict(+used) != vcluster.flex_used:
        raise InvariantError(f"{vcluster} counts {vcluster.flex_used} used, but {dict(used)} are")
    for name, units in total.items():
        limit = vcluster.spec.limit(name)
        if not (limit is None or units <= limit):
            raise InvariantError(f"{vcluster} has {units} {name}, over its maximum of {limit}")


def _check_vnode(vnode: VNode, held: Counter[str]) -> None:
    for name in {*held, *vnode.used}:
        units = vnode.used.get(name, 0)
        if units < 0:
            raise InvariantError(f"{vnode} counts less than nothing of {name} as used")
        if not vnode.reported:
            if units != held[name]:
                raise InvariantError(f"{vnode} counts {vnode.used} used, but {dict(held)} are")
            if units > vnode.total.get(name, 0):
                raise InvariantError(f"{vnode} is over its total of {name}")


def _check_reported(vcluster: VCluster, vnodes: list[VNode], held: _Holdings) -> None:
    """Check the sum over the virtual nodes on a node: reports do not tell in which of them something is."""
    used: dict[int, Counter[str]] = {}
    for vnode in vnodes:
        if vnode.reported:
            used.setdefault(vnode.node, Counter()).update(vnode.used)
    for number, counted in used.items():
        assumed = sum((held.get(id(vnode), _NOTHING) for vnode in vnodes if vnode.node == number), Counter[str]())
        for name, units in assumed.items():
            beside = sum(vnode.used.get(name, 0) for vnode in vnodes if vnode.node == number and not vnode.reported)
            right = counted[name] + beside >= units
            if not right:
                raise InvariantError(f"{vcluster} counts {dict(counted)} used on node {number}, but {dict(assumed)} are")


def _check_label_indexes(cluster: Cluster) -> None:
    labels: dict[Any, Counter[int]] = {}
    taints: dict[Any, Counter[int]] = {}
    for node in cluster.nodes.by_id.values():
        for key, value in node.labels.items():
            labels.setdefault((NODE, key, value), Counter())[node.number] += 1
        for key, value in node.taints.items():
            taints.setdefault((TAINT, key, value), Counter())[node.number] += 1
    placed: dict[Any, Counter[int]] = {}
    refused: dict[Any, Counter[int]] = {}
    for number, here in cluster.on_node.items():
        for workload_id, workload in here.items():
            right = workload is cluster.placed.get(workload_id) and workload.node == number
            if not right:
                raise InvariantError(f"{workload} is not where node {number} has it")
    by_cluster: dict[str, dict[str, Workload]] = {}
    for workload_id, workload in cluster.placed.items():
        if workload.request.cluster is not None:
            by_cluster.setdefault(workload.request.cluster, {})[workload_id] = workload
    if cluster.in_cluster != by_cluster:
        raise InvariantError("what is placed in virtual clusters is not a recount")
    for workload in cluster.placed.values():
        inside = workload.host.cluster.cluster_id if workload.host is not None and workload.host.cluster else None
        if inside != workload.request.cluster:
            raise InvariantError(f"{workload} is counted in {inside}, not in {workload.request.cluster}")
        if inside is not None and workload.host is not None and cluster.tree.clusters.get(inside) is not workload.host.cluster:
            raise InvariantError(f"the virtual cluster of {workload} is gone")
        scope = (workload.request.kind, workload.request.namespace)
        if workload is not cluster.on_node[workload.node].get(workload.workload_id):
            raise InvariantError(f"{workload} is not on its node")
        for key, value in workload.labels:
            placed.setdefault((scope, key, value), Counter())[workload.node] += 1
        for whom, kept_away in refused_by(workload.request):
            for key, value in kept_away:
                refused.setdefault((whom, key, value), Counter())[workload.node] += 1
    cluster.presence_by_domain.recount()
    cluster.refusals_by_domain.recount()
    cluster.tallies.recount(cluster.placed.values())
    for name, index, want in (
        ("node labels", cluster.nodes.labels, labels),
        ("taints", cluster.nodes.taints, taints),
        ("placed labels", cluster.presence, placed),
        ("refusals", cluster.refusals, refused),
    ):
        if index.recount() != {key: dict(count) for key, count in want.items()}:
            raise InvariantError(f"the index of {name} is not a recount")
        for scope, key, value in want:
            nodes = index.with_value(scope, key, (value,))
            if nodes != collect(want[scope, key, value]):
                raise InvariantError(f"the nodes with {key}={value} are not a recount")


def _check_load(cluster: Cluster) -> None:
    levels = [0] * len(cluster.load.levels)
    for node in cluster.nodes.by_id.values():
        levels[cluster.load.step_of(node.number)] |= 1 << node.number
    if levels != cluster.load.levels:
        raise InvariantError("the load levels are not a recount")
    calm = sum(levels[:CALM_STEPS])
    if calm != cluster.load.calm:
        raise InvariantError("the calm nodes are not a recount")


def _check_views(cluster: Cluster) -> None:
    for ledger in (cluster.totals, cluster.available):
        nodes = [(node.number, ledger.amounts(node.number)) for node in cluster.nodes.by_id.values()]
        for shape in ledger.shapes():
            want = collect(number for number, amounts in nodes if shape.fits_in(amounts))
            if ledger.at_least(shape) != want:
                raise InvariantError(f"the nodes with {shape} are not a recount")
