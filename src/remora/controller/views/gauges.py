"""How things are, in numbers with labels: what ``metric_names`` lists as gauges."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remora.controller.controller import Controller
from remora.controller.views.overview import waiting_kinds
from remora.controller.views.tree_view import tree
from remora.kernel.explaining.explain import AFFINITY, BOTH, FITS, NODES, RESOURCES
from remora.kernel.state.cluster_tree import QUEUED

Labels = tuple[str, ...]
Gauges = dict[str, dict[Labels, float]]

MOST_CLUSTERS = 100
MOST_RESOURCES = 8

_REASONS = {
    AFFINITY: "affinity",
    RESOURCES: "resources",
    BOTH: "affinity and resources",
    NODES: "labels, taints or size",
    FITS: "about to start",
}
_OTHER = "other"


def gauges(controller: Controller) -> Gauges:
    """Return every gauge, each with its values by labels."""
    nodes = Counter("yes" if node.taints else "no" for node in controller.cluster.nodes.by_id.values())
    waiting: Counter[str] = Counter()
    for row in waiting_kinds(controller):
        waiting[_REASONS.get(row["case"], _OTHER)] += row["count"]
    records = [record for record in controller.registry.records.values() if record.group is None]
    leases = Counter("placed" if lease.workload.placed else "waiting" for lease in controller.leases.by_slot.values())
    found: Gauges = {
        "remora_nodes": {(each,): nodes[each] for each in ("yes", "no")},
        "remora_waiting": {(each,): waiting[each] for each in (*_REASONS.values(), _OTHER)},
        "remora_queued_clusters": {(): sum(record.state == QUEUED for record in records)},
        "remora_leases": {(each,): leases[each] for each in ("placed", "waiting")},
        "remora_shares": {(): sum(1 for record in records for _ in record.vcluster.vnodes())},
        "remora_classes": {(): len(controller.roster.offered)},
        "remora_fenced_nodes": {(): len({*controller.fences.fenced_nodes(), *controller.fences.full_nodes()})},
        "remora_set_aside": {(): len(controller.context.aside.rows())},
        "remora_generation": {(): controller.generation},
        "remora_cluster_queued_seconds": {},
    }
    for record in records[:MOST_CLUSTERS]:
        seconds = controller.now() - record.made_at if record.state == QUEUED else 0.0
        found["remora_cluster_queued_seconds"][record.cluster_id,] = seconds
    return found | _shares(tree(controller, labels=False)[:MOST_CLUSTERS])


def _shares(rows: list[dict[str, Any]]) -> Gauges:
    names = Counter(name for row in rows for name in {*row["total"], *row["min"], *row["max"]})
    shown = {name for name, _ in names.most_common(MOST_RESOURCES)}
    found: Gauges = {f"remora_cluster_{kind}": {} for kind in ("used", "reserved", "borrowed", "maximum")}
    for row in rows:
        for name in sorted(shown & {*row["total"], *row["min"], *row["max"]}):
            labels = (row["cluster_id"], name)
            has, reserved = row["total"].get(name, 0.0), row["min"].get(name, 0.0)
            found["remora_cluster_used"][labels] = row["used"].get(name, 0.0)
            found["remora_cluster_reserved"][labels] = reserved
            found["remora_cluster_borrowed"][labels] = max(has - reserved, 0.0)
            if name in row["max"]:
                found["remora_cluster_maximum"][labels] = row["max"][name]
    return found
