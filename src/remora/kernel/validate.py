"""Recount everything from what is placed, and compare with what the indexes say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remora.errors import InvariantError
from remora.kernel.cluster import Cluster, refused_by
from remora.kernel.load import CALM_STEPS
from remora.kernel.nodes import TAINT
from remora.kernel.nodesets import collect
from remora.kernel.tree import VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.resources import Resources
from remora.model.strategies import NODE

_Holdings = dict[Any, Counter[str]]


def validate(cluster: Cluster) -> None:
    """Raise InvariantError unless: no node is over its total, no child over its parent, no virtual cluster over its
    maximum, and every index equals a recount."""
    held = _holdings(cluster)
    _check_nodes(cluster, held)
    for vcluster in cluster.tree.clusters.values():
        _check_cluster(vcluster, held)
    _check_label_indexes(cluster)
    _check_load(cluster)
    _check_views(cluster)


def _holdings(cluster: Cluster) -> _Holdings:
    """What each host provides, added up over everything that takes from it."""
    held: _Holdings = {}

    def hold(host: Host, amounts: Any) -> None:
        for name, units in amounts:
            if host.cluster is None:
                holder: Any = host.node
            elif host.fixed is not None and name in host.fixed.total:
                holder = id(host.fixed)
            else:
                holder = id(host.cluster.flex[host.node])
            held.setdefault(holder, Counter())[name] += units

    for workload in cluster.placed.values():
        hold(workload.host or Host(None, workload.node, None), workload.request.resources.pairs)
    for group in cluster.groups.values():
        for bundle, host in zip(group.bundles, group.hosts, strict=True):
            if host is not None:
                hold(host, bundle.resources.pairs)
    for vcluster in cluster.tree.clusters.values():
        for vnode in vcluster.vnodes():
            hold(vnode.host, vnode.total.items())
    return held


def _check_nodes(cluster: Cluster, held: _Holdings) -> None:
    for node in cluster.nodes.by_id.values():
        used = held.get(node.number, Counter())
        for name in {*node.total, *used, *cluster.available.names()}:
            total, free = node.total.get(name, 0), cluster.available.get(node.number, name)
            _require(free == total - used[name], f"{node.node_id} has {free} {name} free, but {total} - {used[name]} are")
            _require(free >= 0, f"{node.node_id} is over its total by {-free} {name}")
    _require(
        cluster.nodes.alive == collect(node.number for node in cluster.nodes.by_id.values()), "alive is not the live nodes"
    )


def _check_cluster(vcluster: VCluster, held: _Holdings) -> None:
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for vnode in vcluster.vnodes():
        _check_vnode(vnode, held.get(id(vnode), Counter()))
        if not vnode.fixed:
            total.update(vnode.total)
            used.update(vnode.used)
    _require(dict(+total) == vcluster.flex_total, f"{vcluster} counts {vcluster.flex_total} flexible, but has {dict(total)}")
    _require(dict(+used) == vcluster.flex_used, f"{vcluster} counts {vcluster.flex_used} used, but {dict(used)} are")
    for name, units in total.items():
        limit = vcluster.spec.limit(name)
        _require(limit is None or units <= limit, f"{vcluster} has {units} {name}, over its maximum of {limit}")


def _check_vnode(vnode: VNode, held: Counter[str]) -> None:
    _require(
        dict(+held) == {k: v for k, v in vnode.used.items() if v}, f"{vnode} counts {vnode.used} used, but {dict(held)} are"
    )
    for name, units in vnode.used.items():
        _require(0 <= units <= vnode.total.get(name, 0), f"{vnode} is over its total of {name}")


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
    for workload in cluster.placed.values():
        scope = (workload.request.kind, workload.request.namespace)
        _require(workload is cluster.on_node[workload.node].get(workload.workload_id), f"{workload} is not on its node")
        for key, value in workload.labels:
            placed.setdefault((scope, key, value), Counter())[workload.node] += 1
        for whom, kept_away in refused_by(workload.request):
            for key, value in kept_away:
                refused.setdefault((whom, key, value), Counter())[workload.node] += 1
    for name, index, want in (
        ("node labels", cluster.nodes.labels, labels),
        ("taints", cluster.nodes.taints, taints),
        ("placed labels", cluster.presence, placed),
        ("refusals", cluster.refusals, refused),
    ):
        _require(index.recount() == {key: dict(count) for key, count in want.items()}, f"the index of {name} is not a recount")
        for scope, key, value in want:
            nodes = index.with_value(scope, key, (value,))
            _require(nodes == collect(want[scope, key, value]), f"the nodes with {key}={value} are not a recount")


def _check_load(cluster: Cluster) -> None:
    levels = [0] * len(cluster.load.levels)
    for node in cluster.nodes.by_id.values():
        levels[cluster.load.step_of(node.number)] |= 1 << node.number
    _require(levels == cluster.load.levels, "the load levels are not a recount")
    calm = sum(levels[:CALM_STEPS])
    _require(calm == cluster.load.calm, "the calm nodes are not a recount")


def _check_views(cluster: Cluster) -> None:
    for ledger in (cluster.totals, cluster.available):
        for shape in ledger.shapes():
            want = collect(
                node.number
                for node in cluster.nodes.by_id.values()
                if Resources(dict(shape)).fits_in(ledger.amounts(node.number))
            )
            _require(ledger.at_least(shape) == want, f"the nodes with {shape} are not a recount")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)
