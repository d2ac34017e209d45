"""The cluster as the controller sees it, in plain values: nodes with their marks and use, and what waits and why."""

from __future__ import annotations

from typing import Any

from remora.controller.controller import Controller
from remora.controller.picture import real
from remora.controller.views.evenness_view import spread_rows
from remora.controller.views.machine_words import machines
from remora.controller.views.reasons import why_waiting
from remora.model.resources import from_units
from remora.port.contract import Demand, NodeView

_NOISE = ("node:", "memory", "object_store_memory")


def status(controller: Controller) -> dict[str, Any]:
    """Return ``nodes``, ``waiting``, ``spreads`` and ``set_aside``, and where there is an autoscaler ``machines``; no token is
    shown."""
    aside = controller.context.aside.rows()
    found = {"nodes": _nodes(controller), "waiting": _waiting(controller), "set_aside": aside}
    found["spreads"] = spread_rows(controller.cluster)
    planned = machines(controller)
    return found if planned is None else {**found, "machines": planned}


def _nodes(controller: Controller) -> list[dict[str, Any]]:
    return [node_row(controller, view) for view in controller.picture.views.values()]


def node_row(controller: Controller, view: NodeView) -> dict[str, Any]:
    """Return one node. ``outside`` is what work in no virtual cluster uses, attached or not; the rest of ``used`` they use."""
    node_id = view.node_id
    node = controller.cluster.nodes.get(node_id)
    names = [name for name in node.total if not name.startswith(_NOISE)]
    shared, running = controller.use.taken(node_id)
    outside = controller.use.outside(node.number)
    return {
        "node_id": node_id,
        "name": view.name,
        "address": view.address,
        "head": view.is_head,
        "labels": {key: value for key, value in sorted(node.labels.items()) if key != "ray.io/node-id"},
        "taints": dict(sorted(node.taints.items())),
        "total": {name: from_units(node.total[name]) for name in names},
        "used": {name: from_units(outside.get(name, 0) + running.get(name, 0)) for name in names},
        "outside": {name: from_units(outside[name]) for name in names if outside.get(name)},
        "virtual_clusters": {
            name: {"has": from_units(shared[name]), "used": from_units(running.get(name, 0))}
            for name in names
            if shared.get(name)
        },
    }


def _waiting(controller: Controller) -> list[dict[str, Any]]:
    """What waits alike is one row: each actor with affinity asks for a token of its own, and is a demand of its own."""
    rows: dict[str, dict[str, Any]] = {}
    for demand in controller.picture.demands:
        row = {**waiting_row(controller, demand), "count": 0}
        rows.setdefault(repr(row), row)["count"] += demand.count
    return list(rows.values())


def waiting_row(controller: Controller, demand: Demand) -> dict[str, Any]:
    """Return one kind of work that waits, and why."""
    kind = "placement group" if demand.bundles else "task or actor"
    resources = [real(shape).to_dict() for shape in demand.shapes]
    why = why_waiting(controller, demand.shapes, demand.strategy)
    return {"kind": kind, "count": demand.count, "resources": resources, **why}
