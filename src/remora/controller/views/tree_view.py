"""The tree of virtual clusters as it is shown: the root and each cluster with what it has, uses and may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remora.controller.clusters.records import Record
from remora.controller.controller import Controller
from remora.controller.tokens.book import Units
from remora.controller.views.machine_words import words_for
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import QUEUED, READY
from remora.kernel.state.shares import bump
from remora.kernel.state.virtual_labels import labels_of
from remora.model.resources import Resources
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL
from remora.wire.fences import ROOT
from remora.wire.tokens import is_real

_ABOUT_TO_STAND = "its minimum is reserved, and its nodes are being told"


def look_at(controller: Controller, cluster_id: str) -> dict[str, Any]:
    """Return the state of a cluster; while it waits its place in the queue, and why."""
    record = controller.registry.get(cluster_id)
    where = {"position": controller.registry.position(record), "reason": _why(controller, record)}
    if record.state == READY and not record.announced:
        if controller.scaling.is_on and not _stands(controller, record):
            return {"cluster_id": cluster_id, "state": QUEUED, "position": 1, "reason": where["reason"] or _ABOUT_TO_STAND}
        record.announced = True
    return {"cluster_id": cluster_id, "state": record.state, **where}


def tree(controller: Controller, *, labels: bool = True) -> list[dict[str, Any]]:
    """Return every virtual cluster, parents first; not those that are closed and have given everything back, nor what placement
    groups have, which is used by whom they lie in."""
    records = (record for record in controller.registry.records.values() if record.group is None)
    return [describe(controller, record, labels=labels) for record in records if record.has_something]


def describe(controller: Controller, record: Record, *, labels: bool = True) -> dict[str, Any]:
    """Return one virtual cluster in plain values; the labels of its virtual nodes only where they are asked for."""
    vcluster = record.vcluster
    parent = vcluster.parent
    total: Units = {}
    used: Units = {}
    nodes = []
    for vnode in vcluster.vnodes():
        node_id = controller.cluster.nodes.at(vnode.node).node_id
        above = vnode.host.fixed or (parent.flex.get(vnode.node) if parent is not None else None)
        nodes.append(
            {
                "vnode_id": vnode.vnode_id,
                "node_id": node_id,
                "parent": above.vnode_id if above is not None else node_id,
                "fixed": vnode.fixed,
                "labels": labels_of(controller.cluster, vnode) if labels else {},
                "total": Resources(vnode.total).to_dict(),
                "used": Resources(vnode.used).to_dict(),
            }
        )
        for name in vnode.total:
            bump(total, name, vnode.total[name])
            bump(used, name, vnode.used.get(name, 0))
    names = {*total, *(vcluster.spec.flexible_resource_max or ())}
    limits = {name: controller.use.cap(vcluster.cluster_id, name) for name in sorted(names)}
    return {
        "cluster_id": vcluster.cluster_id,
        "parent": parent.cluster_id if parent is not None else None,
        "job_id": record.job_id,
        "state": record.state,
        "priority": vcluster.priority,
        "spec": vcluster.spec.to_dict(),
        "min": vcluster.minimum().to_dict(),
        "total": Resources(total).to_dict(),
        "used": Resources(used).to_dict(),
        "max": Resources({name: units for name, units in limits.items() if units is not None}).to_dict(),
        "lowering": Resources(record.goal).to_dict(),
        "position": controller.registry.position(record),
        "reason": _why(controller, record),
        "nodes": nodes,
    }


def _stands(controller: Controller, record: Record) -> bool:
    """Return whether no machine of a cluster may be about to be ended: each has answered that a share of it stands there, which
    starts the clock of an idle machine again, or is in use, or is nobody's to end."""
    vcluster, views = record.vcluster, controller.picture.views
    if not vcluster.whole:
        return False
    for number in {vnode.node for vnode in vcluster.vnodes()}:
        view = views.get(controller.cluster.nodes.at(number).node_id)
        if view is None or view.draining:
            return False
        tokens = controller.book.places_of(record.cluster_id).get(view.node_id, ())
        in_use = any(is_real(name) and view.available.get(name, 0.0) < amount for name, amount in view.total.items())
        if view.node_type and not in_use and not any(controller.book.amount(view.node_id, token) for token in tokens):
            return False
    return True


def _why(controller: Controller, record: Record) -> str:
    """Return why a cluster waits, and what is done about it."""
    why = controller.registry.why(record)
    return "; ".join(each for each in (why, words_for(controller, ("cluster", record.cluster_id)) if why else "") if each)


def root_row(cluster: Cluster) -> dict[str, Any]:
    """Return the same for the whole cluster. What its virtual clusters have counts as used, idle or not."""
    nodes: list[dict[str, Any]] = []
    for node in cluster.nodes.by_id.values():
        free = cluster.available.amounts(node.number)
        used = Resources({name: max(units - free.get(name, 0), 0) for name, units in node.total.items()})
        nodes.append(
            {
                "vnode_id": node.node_id,
                "node_id": node.node_id,
                "parent": None,
                "fixed": True,
                "labels": {**node.labels, VNODE_LABEL: node.node_id, VCLUSTER_LABEL: ROOT},
                "total": node.total.to_dict(),
                "used": used.to_dict(),
            }
        )
    return {
        "cluster_id": ROOT,
        "parent": None,
        "job_id": "",
        "state": READY,
        "spec": {},
        "total": _sum(node["total"] for node in nodes),
        "used": _sum(node["used"] for node in nodes),
        "max": {},
        "lowering": {},
        "nodes": nodes,
    }


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total = Resources()
    for part in parts:
        total += Resources.parse(part)
    return total.to_dict()
