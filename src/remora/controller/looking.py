"""What introspection shows: the tree of virtual clusters with the physical cluster as its root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remora.kernel.cluster import Cluster
from remora.kernel.tree import READY
from remora.model.resources import Resources
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL
from remora.wire.fences import ROOT


def root_row(cluster: Cluster) -> dict[str, Any]:
    """As ``Sharing.describe``, for the whole cluster. What its virtual clusters have counts as used, idle or not."""
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
        "nodes": nodes,
    }


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total = Resources()
    for part in parts:
        total += Resources.parse(part)
    return total.to_dict()
