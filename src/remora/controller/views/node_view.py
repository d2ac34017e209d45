"""One node in depth: what runs there, as far as it is attached, and its tokens in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remora.controller.controller import Controller
from remora.controller.leases.lease_table import wants
from remora.controller.views.status import node_row
from remora.model.labels import show_labels
from remora.model.requests import NodeClass
from remora.model.resources import show_amounts
from remora.model.selectors import LabelSelector
from remora.model.strategies import ACTOR
from remora.wire.classes import ClassSpec
from remora.wire.owners import share_in
from remora.wire.tokens import ACTORS, GROUPS, KEEP, TAKEN, class_of_token, is_token, slot_of_token

_TAKERS = {ACTORS: "actor", GROUPS: "placement group"}


@dataclass(frozen=True)
class Running:
    """``count`` of something on a node; ``choices`` are the nodes where it may be, where that is known. ``work_id`` is that of
    an actor or task that was placed by itself."""

    kind: str
    what: str
    count: int
    choices: tuple[NodeClass, ...] | None
    work_id: str = ""
    name: str = ""
    labels: str = ""
    cluster_id: str = ""
    resources: str = ""


def running_on(controller: Controller, node_id: str) -> list[Running]:
    """Return what is on a node: actors and tasks with leases, one by one; the rest by its class. Work of jobs that are not
    attached is known to Ray alone."""
    number = controller.cluster.nodes.get(node_id).number
    found = []
    for lease in controller.leases.on_node(number):
        request = lease.ask.request
        known = controller.leases.actors.get(lease.actor_id)
        found.append(
            Running(
                kind="actor" if request.kind == ACTOR else "task",
                what=lease.actor_id or lease.slot,
                count=1,
                choices=request.choices,
                work_id=lease.actor_id,
                name=known.name if known is not None else "",
                labels=show_labels(dict(lease.ask.labels)),
                cluster_id=lease.cluster_id or "",
                resources=show_amounts(request.resources),
            )
        )
    view = controller.picture.views[node_id]
    for name, total in view.total.items():
        class_id = class_of_token(name)
        if class_id is None:
            continue
        taken = total - view.available.get(name, 0.0) - controller.book.held(node_id, name)
        count = round(taken / TAKEN)
        spec = controller.roster.classes.get(class_id)
        if count > 0:
            what = (_asks(spec) or "any node") if spec is not None else "a class of before"
            kind = _TAKERS.get(spec.takers, "task") if spec is not None else "task"
            cluster_id = (spec.cluster or "") if spec is not None else ""
            found.append(Running(kind, what, count, spec.choices if spec is not None else None, cluster_id=cluster_id))
    return found


def describe_node(controller: Controller, node_id: str) -> dict[str, Any]:
    """Return the row of the node, ``running`` and ``tokens``, both as people read them."""
    node = controller.cluster.nodes.get(node_id)
    return {
        **node_row(controller, controller.picture.views[node.node_id]),
        "running": [
            {
                "kind": each.kind,
                "what": each.what,
                "count": each.count,
                "id": each.work_id,
                "name": each.name,
                "labels": each.labels,
                "cluster_id": each.cluster_id,
                "resources": each.resources,
            }
            for each in running_on(controller, node_id)
        ],
        "tokens": _tokens(controller, node_id),
    }


def _tokens(controller: Controller, node_id: str) -> list[dict[str, Any]]:
    """Return each token that stands there with what it says, how much of it is in use, and whether it is fenced or held."""
    view = controller.picture.views[node_id]
    fenced = controller.fences.classes(node_id)
    rows = []
    for name, total in sorted(view.total.items()):
        if not is_token(name):
            continue
        held = controller.book.held(node_id, name)
        used = max(total - view.available.get(name, 0.0) - held, 0.0)
        rows.append({"token": name, "text": _in_words(controller, name, total, used), "fenced": class_of_token(name) in fenced})
    return rows


def _in_words(controller: Controller, name: str, total: float, used: float) -> str:
    class_id, slot, share = class_of_token(name), slot_of_token(name), share_in(name)
    if class_id is not None:
        spec = controller.roster.classes.get(class_id)
        asks = _asks(spec) if spec is not None else "a class of before"
        whose = f"work of {spec.cluster}" if spec is not None and spec.cluster is not None else "work"
        what = f"{whose} that asks for {asks}" if asks else f"{whose} that asks for no labels and tolerates no taint"
        running = round(used / TAKEN)
        return f"{what} may run here" + (f", and {running:,} of it {'does' if running == 1 else 'do'}" if running else "")
    if slot is not None:
        lease = controller.leases.by_slot.get(slot)
        whose = (lease.actor_id or f"slot {slot}") if lease is not None else f"slot {slot}, which has ended"
        asked = wants(lease.ask.request) if lease is not None else ""
        return f"decided for {whose}" + (f" ({asked})" if asked else "")
    if share is not None:
        part = " (a part that a class selects)" if share.owner.is_part else ""
        return f"{share.owner.account} may use {total:g} {share.resource} here{part}, and uses {used:g}"
    return "the machine is kept: something was promised here" if name == KEEP else name


def _asks(spec: ClassSpec) -> str:
    """Return what a class asks for; empty where any node will do."""
    said = spec.describe()
    return "" if said == str(LabelSelector()) else said
