"""The cluster as the controller sees it, in plain values: nodes with their marks and use, and what waits and why."""

from __future__ import annotations

from typing import Any

from remora.controller.core import Controller
from remora.kernel.explain import explain
from remora.model.requests import Request
from remora.model.resources import UNIT, Resources, from_units
from remora.model.strategies import TASK
from remora.wire.tokens import class_of_token, is_token

_NOISE = ("node:", "memory", "object_store_memory")


def status(controller: Controller) -> dict[str, Any]:
    """``nodes`` and ``waiting``; no token is shown."""
    return {"nodes": _nodes(controller), "waiting": _waiting(controller)}


def _nodes(controller: Controller) -> list[dict[str, Any]]:
    rows = []
    for node_id, view in controller.nodes.items():
        node = controller.cluster.nodes.get(node_id)
        names = [name for name in node.total if not name.startswith(_NOISE)]
        free = controller.cluster.available.amounts(node.number)
        rows.append(
            {
                "node_id": node_id,
                "address": view.address,
                "head": view.is_head,
                "labels": {key: value for key, value in sorted(node.labels.items()) if key != "ray.io/node-id"},
                "taints": dict(sorted(node.taints.items())),
                "total": {name: from_units(node.total[name]) for name in names},
                "used": {name: from_units(node.total[name] - free.get(name, 0)) for name in names},
            }
        )
    return rows


def _waiting(controller: Controller) -> list[dict[str, Any]]:
    rows = []
    for demand in controller.demands:
        classes = [class_id for name in demand.shape if (class_id := class_of_token(name)) is not None]
        spec = controller.memory.classes.get(classes[0]) if classes else None
        resources = Resources({name: round(amount * UNIT) for name, amount in demand.shape.items() if not is_token(name)})
        row: dict[str, Any] = {"count": demand.count, "resources": resources.to_dict()}
        if spec is None:
            row |= {"wants": "", "reason": "a job that is not attached: Ray decides by resources alone", "suggestions": []}
        else:
            why = explain(controller.cluster, Request(TASK, resources, resources, spec.choices))
            row |= {"wants": spec.describe(), "reason": why.reason, "suggestions": [str(each) for each in why.suggestions]}
        rows.append(row)
    return rows
