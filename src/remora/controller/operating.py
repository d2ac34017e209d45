"""What operators ask for besides labels and taints: look often, try a change without making it, and change virtual clusters."""

from __future__ import annotations

from typing import Any

from remora.controller.answering import Pending, Reply, answers, value
from remora.controller.clusters.records import CLOSED, Record
from remora.controller.controller import Controller
from remora.controller.views.node_view import describe_node
from remora.controller.views.overview import overview
from remora.controller.views.preview_words import preview
from remora.controller.views.tree_view import describe
from remora.errors import ConflictError, InvalidVirtualClusterError
from remora.kernel.state.cluster_tree import QUEUED
from remora.model.resources import Resources, show_amount
from remora.wire import calls

_MOST_ASKS = 8
"""Of so many of the last changes of a virtual cluster it is known for which question each was made."""


@answers(calls.GetOverview)
def _overview(controller: Controller, call: calls.GetOverview) -> Pending:
    return value(overview(controller, call.since))


@answers(calls.GetNode)
def _node(controller: Controller, call: calls.GetNode) -> Pending:
    return value(describe_node(controller, call.node_id))


@answers(calls.PreviewNode)
def _preview(controller: Controller, call: calls.PreviewNode) -> Pending:
    return value(preview(controller, call))


@answers(calls.ResizeCluster)
def _resize(controller: Controller, call: calls.ResizeCluster) -> Pending:
    record = _open(controller, call.cluster_id)
    if not call.most:
        raise InvalidVirtualClusterError("say which maximum: a resource and how much of it, for example {'CPU': 8}")
    named = {name: amount for name, amount in call.most.items() if amount is not None}
    parsed = Resources.parse(named, of="the maximum")
    limits = {name: parsed.get(name, 0) if name in named else None for name in call.most}
    if not _is_done(record, call.ask):
        _check_children(record, limits)
        controller.registry.resize(record, limits)
        _note(controller, record, f"its maximum is now {_shown(limits)}", call.ask, call.by)
    return _once_saved(controller, record)


@answers(calls.SetPriority)
def _prioritize(controller: Controller, call: calls.SetPriority) -> Pending:
    record = _open(controller, call.cluster_id)
    if not _is_done(record, call.ask):
        _check_queued(record)
        controller.registry.prioritize(record, call.priority)
        _note(controller, record, f"its priority is now {call.priority}", call.ask, call.by)
    return _once_saved(controller, record)


@answers(calls.EndCluster)
def _end(controller: Controller, call: calls.EndCluster) -> Pending:
    registry = controller.registry
    if registry.was_ended(call.ask):
        return _once_ended(controller, call.cluster_id)
    record = registry.get(call.cluster_id)
    if record.group is not None:
        raise _no_group(record)
    if call.queued:
        _check_queued(record)
    if record.state != CLOSED:
        what = "withdrawn from the queue" if record.state == QUEUED else "closed: what runs in it finishes"
        controller.context.note("cluster", call.cluster_id, what, call.by)
        registry.end(call.cluster_id, call.ask, _told(what.partition(":")[0], call.by))
        for each in registry.close(call.cluster_id):
            controller.growing.close(each, unused=False)
        controller.shares.refresh()
    return _once_ended(controller, call.cluster_id)


# The rest


def _open(controller: Controller, cluster_id: str) -> Record:
    record = controller.registry.get(cluster_id)
    if record.group is not None:
        raise _no_group(record)
    if record.state == CLOSED:
        raise ConflictError(f"the virtual cluster {cluster_id!r} is closed: what is left of it ends with its work")
    return record


def _no_group(record: Record) -> ConflictError:
    return ConflictError(f"{record.cluster_id!r} is the share of a placement group: it ends with the group; remove that")


def _check_queued(record: Record) -> None:
    if record.state != QUEUED:
        raise ConflictError(
            f"the virtual cluster {record.cluster_id!r} does not wait any more, it is {record.state}: only one in the queue "
            "has a place there; for example close it instead"
        )


def _check_children(record: Record, limits: dict[str, int | None]) -> None:
    """Refuse a maximum that is below what was promised inside."""
    for name, limit in limits.items():
        promised = {
            child.cluster_id: child.spec.flexible_resource_min.get(name, 0)
            for child in record.vcluster.children.values()
            if child.state != QUEUED
        }
        if limit is not None and sum(promised.values()) > limit:
            raise ConflictError(
                f"the maximum of {show_amount(limit)} {name} is below what is reserved in {record.cluster_id}, "
                f"{show_amount(sum(promised.values()))} {name} for {', '.join(each for each in promised if promised[each])}: "
                "give it more, or close those first"
            )


def _is_done(record: Record, ask: str) -> bool:
    return bool(ask) and ask in record.asks


def _note(controller: Controller, record: Record, text: str, ask: str, by: calls.By | None) -> None:
    if ask:
        record.asks = [*record.asks, ask][-_MOST_ASKS:]
    controller.registry.changed(record)
    controller.context.note("cluster", record.cluster_id, text, by)
    controller.round()


def _once_saved(controller: Controller, record: Record) -> Pending:
    cluster_id = record.cluster_id
    controller.registry.save([cluster_id])

    def poll() -> Reply | None:
        if controller.registry.records.get(cluster_id) is not record:
            return Reply({"cluster_id": cluster_id, "state": CLOSED})
        return Reply(describe(controller, record)) if controller.registry.is_saved(cluster_id) else None

    return Pending(poll)


def _once_ended(controller: Controller, cluster_id: str) -> Pending:
    answer: dict[str, Any] = {"cluster_id": cluster_id, "state": CLOSED}
    return Pending(lambda: Reply(answer) if controller.registry.is_saved(cluster_id) else None)


def _told(what: str, by: calls.By | None) -> str:
    """Return what whoever waited for a cluster is told."""
    who = f" by {by.who}" if by is not None and by.who else ""
    return f"was {what}{who}{f': {by.reason}' if by is not None and by.reason else ''}"


def _shown(limits: dict[str, int | None]) -> str:
    return ", ".join(f"{show_amount(units)} {name}" if units is not None else f"any {name}" for name, units in limits.items())
