"""Why work waits, in plain values: what the kernel says about the class whose token it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remora.controller.clusters.records import Record
from remora.controller.controller import Controller
from remora.controller.leases.lease_table import Lease, handles, wants
from remora.controller.picture import real
from remora.controller.scaling.waits import work_key
from remora.controller.views.machine_words import suggestions_for, with_machines
from remora.kernel.explaining.explain import FITS, RESOURCES, Explanation
from remora.kernel.explaining.explain_clusters import explain_request
from remora.kernel.explaining.explain_groups import explain_group
from remora.kernel.placing.group_fit import first_possible
from remora.kernel.placing.placement import feasible
from remora.kernel.provisioning.demands import key_of_work
from remora.kernel.rules import Query
from remora.kernel.state.workloads import Group
from remora.model.groups import Bundle, GroupRequest
from remora.model.ids import short_id
from remora.model.requests import Request
from remora.model.resources import show_amounts
from remora.model.strategies import TASK
from remora.port.contract import CANCELLED, ENDED, GROUP, RUNNING, Work
from remora.wire.asks import LEASE_LABEL
from remora.wire.classes import ClassSpec
from remora.wire.tokens import class_of_token, is_in_group, slot_of_token

Shape = Mapping[str, float]

_NOT_ATTACHED = "submitted by a job that is not attached: Ray decides by resources alone"
_STEPS = {
    "PENDING_ARGS_AVAIL": "its arguments are not there yet",
    "DEPENDENCIES_UNREADY": "the arguments of its constructor are not there yet",
    "PENDING_ARGS_FETCH": "its arguments are being brought to its node",
    "PENDING_OBJ_STORE_MEM_AVAIL": "its node has no room in the object store for its arguments",
}


def why_waiting(controller: Controller, shapes: tuple[Shape, ...], strategy: str = "") -> dict[str, Any]:
    """``wants`` (labels and tolerations), ``reason``, ``suggestions``, ``changes`` (the same for programs), ``refusals``,
    ``case``, ``busy``: whether it only has to wait until something else ends, and ``fits``: whether it need not even that."""
    lease = next((found for shape in shapes for name in shape if (found := _lease(controller, name)) is not None), None)
    if lease is not None:
        return _why_leased(controller, lease)
    share = controller.groups.of_work(name for shape in shapes for name in shape)
    if share is not None:
        return _why_in_cluster(controller, share)
    specs = [_spec(controller, shape) for shape in shapes]
    known = [spec for spec in specs if spec is not None]
    resources = [real(shape) for shape in shapes]
    if len(known) != len(specs):
        return _row("", Explanation(_NOT_ATTACHED), busy=True)
    if strategy:
        bundles = tuple(Bundle(need, spec.choices[0]) for need, spec in zip(resources, known, strict=True))
        group = Group("", GroupRequest((bundles,), strategy, cluster=_living(controller, known[0])))
        asked = "; ".join(dict.fromkeys(spec.describe() for spec in known if spec.describe()))
        key = controller.scaling.waits.key_in_gcs(group.request)
        why = with_machines(controller, explain_group(controller.cluster, group), key)
        busy = first_possible(controller.cluster, group) is not None
        return _row(asked, why, busy=busy, more=suggestions_for(controller, key))
    request = Request(TASK, resources[0], resources[0], known[0].choices, cluster=_living(controller, known[0]))
    busy = any(feasible(controller.cluster, Query(request, choice)) for choice in request.choices)
    key = work_key(known[0].class_id, resources[0])
    why = with_machines(controller, explain_request(controller.cluster, request), key)
    return _row(known[0].describe(), why, busy=busy, more=suggestions_for(controller, key))


def why_work(controller: Controller, work: Work) -> dict[str, Any]:
    """One task, actor or placement group: what it is, where it is, or why it is nowhere yet."""
    row: dict[str, Any] = {
        "kind": work.kind,
        "id": work.work_id,
        "name": work.name,
        "job": work.job_id,
        "state": work.state,
        "detail": work.detail,
        "nodes": list(work.node_ids),
        "resources": [real(shape).to_dict() for shape in work.shapes],
    }
    if work.state == ENDED:
        text = "it was cancelled" if work.detail == CANCELLED else f"it has ended ({work.detail})"
        return row | _row("", Explanation(text))
    if work.state == RUNNING:
        where = f" on {', '.join(node_id[:12] for node_id in work.node_ids)}" if work.node_ids else ""
        what = "it is placed" if work.kind == GROUP else "it runs"
        return row | _row("", Explanation(f"{what}{where}"))
    if work.detail in _STEPS:
        return row | _row("", Explanation(_STEPS[work.detail]))
    if any(is_in_group(name) for shape in work.shapes for name in shape):
        return row | _row("", Explanation("its placement group has no room for it yet, or is not placed yet"))
    slot = work.labels.get(LEASE_LABEL)
    if slot is not None and slot in controller.leases.by_slot:
        return row | _why_leased(controller, controller.leases.by_slot[slot])
    why = why_waiting(controller, work.shapes, work.strategy)
    if work.detail == "RESCHEDULING" and why["fits"]:
        # GCS looks at a group that fits nowhere when a node joins, and never again because of a token.
        text = "it has lost a node; there is room for it, and Ray tries it there now or when the next node joins"
        why |= _row(why["wants"], Explanation(text), busy=True)
    return row | why


def _lease(controller: Controller, name: str) -> Lease | None:
    slot = slot_of_token(name)
    return controller.leases.by_slot.get(slot) if slot is not None else None


def _why_leased(controller: Controller, lease: Lease) -> dict[str, Any]:
    asked = wants(lease.ask.request)
    node_id = controller.leases.node_of(lease)
    if node_id is not None:
        lacks = controller.leases.unstarted.lacks(lease, controller.picture.views.get(node_id))
        what = f"and waits there until others give back {show_amounts(lacks)}" if lacks else "it is about to start there"
        return _row(asked, Explanation(f"decided {node_id[:12]}, {what}", case=RESOURCES if lacks else ""), busy=True)
    if lease.unplaced:
        return _row(
            asked,
            Explanation(f"Ray has yet to place the actor {short_id(min(lease.unplaced))}, which it keeps away from"),
            busy=True,
        )
    why = _with_the_ended(controller, lease, controller.scheduler.explain(lease.workload))
    key = key_of_work(lease.workload, controller.scaling.keys)
    more = suggestions_for(controller, key)
    return _row(asked, with_machines(controller, why, key), busy=why.case in (RESOURCES, FITS), more=more)


def _with_the_ended(controller: Controller, lease: Lease, why: Explanation) -> Explanation:
    """Return why an actor waits; where it is to be near to one that has ended, that is said: it will wait for ever."""
    leases = controller.leases
    near = (actor_id for term in handles(lease.ask.request) if term.positive for actor_id in term.values)
    ended = [
        short_id(each)
        for each in near
        if each not in leases.actors and each not in leases.by_actor and each not in leases.bystanders
    ]
    if not ended:
        return why
    if why.reason.endswith("is placed nowhere"):
        return replace(why, reason=f"{why.reason}: it has ended")
    return replace(why, reason=f"{why.reason}; the actor {' and '.join(ended)} has ended")


def _why_in_cluster(controller: Controller, record: Record) -> dict[str, Any]:
    """A placement group in a virtual cluster that waits in GCS."""
    vcluster = record.vcluster
    if vcluster.whole or vcluster.group is None:
        nodes = dict.fromkeys(controller.cluster.nodes.at(vnode.node).node_id[:12] for vnode in vcluster.vnodes())
        if record.group is not None and record.group.reserved:
            text = f"it has lost a node: {', '.join(nodes)} is decided, and Ray tries it there now or when the next node joins"
            return _row("", Explanation(text), busy=True)
        return _row("", Explanation(f"decided {', '.join(nodes)}: Ray has yet to place it there", case=FITS), busy=True)
    group = Group("", vcluster.group)
    group.hosts = [vnode.host if vnode is not None else None for vnode in vcluster.fixed]
    return _row("", explain_group(controller.cluster, group), busy=True)


def _spec(controller: Controller, shape: Shape) -> ClassSpec | None:
    classes = [class_id for name in shape if (class_id := class_of_token(name)) is not None]
    return controller.roster.classes.get(classes[0]) if classes else None


def _living(controller: Controller, spec: ClassSpec) -> str | None:
    """The virtual cluster that a class belongs to, if it is still there."""
    return spec.cluster if spec.cluster in controller.registry.records else None


def _row(asked: str, why: Explanation, *, busy: bool = False, more: Iterable[str] = ()) -> dict[str, Any]:
    found = why.to_dict()
    found["changes"] = [[change.to_dict() for change in each.changes] for each in why.suggestions]
    found["suggestions"] = [*(str(each) for each in why.suggestions), *more]
    return {"wants": asked, **found, "busy": busy, "fits": why.case == FITS}
