"""What a change of a node would do, in plain values and in one line: ``3 waiting tasks would start; 2 running stay``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from remora.controller.controller import Controller
from remora.controller.views.node_view import Running, running_on
from remora.kernel.previewing import Marks, Outcome, accepts
from remora.kernel.previewing import preview as tried
from remora.kernel.provisioning.demands import Demand, waiting_of
from remora.wire import calls
from remora.wire.tokens import ACTORS, GROUPS


def preview(controller: Controller, call: calls.PreviewNode) -> dict[str, Any]:
    """Return ``starts``, ``stays`` and ``no_node``, each with a row for each kind, and ``text``."""
    controller.cluster.nodes.get(call.node_id)
    marks = Marks(call.labels, tuple(call.drop_labels), call.taints, tuple(call.drop_taints))
    demands, groups = controller.scaling.waits.of_report(controller.picture.demands)
    waiting = waiting_of(controller.scheduler, demands)
    waiting = type(waiting)(waiting.clusters, waiting.degraded, (*waiting.groups, *groups), waiting.work)
    outcome = tried(controller.cluster, waiting, call.node_id, marks)
    by_key = {demand.key: demand for demand in waiting.work}
    starts = [
        {"what": by_key[key].name, "kind": _kind(controller, by_key[key]), "count": count}
        for key, count in outcome.starts.items()
    ]
    starts += [{"what": each, "kind": "placement group", "count": 1} for each in outcome.groups]
    starts += [{"what": each, "kind": "virtual cluster", "count": 1} for each in outcome.clusters]
    stays = [
        {"what": each.what, "kind": each.kind, "count": each.count}
        for each in running_on(controller, call.node_id)
        if _stays(controller, call.node_id, marks, each)
    ]
    no_node = [_row(controller, by_key[key], by_key[key].count) for key in outcome.no_node]
    return {
        "node_id": call.node_id,
        "starts": starts,
        "stays": stays,
        "no_node": no_node,
        "more": outcome.more,
        "text": _text(outcome, starts, stays, no_node),
    }


def _stays(controller: Controller, node_id: str, marks: Marks, each: Running) -> bool:
    """Return whether something runs there that could not start there any more after the change, and goes on."""
    if each.choices is None:
        return False
    now, then = accepts(controller.cluster, node_id, marks, each.choices)
    return now and not then


def _row(controller: Controller, demand: Demand, count: int) -> dict[str, Any]:
    return {"what": demand.name, "kind": _kind(controller, demand), "count": count}


def _kind(controller: Controller, demand: Demand) -> str:
    key: Hashable = demand.key
    if isinstance(key, tuple) and key and key[0] == "class":
        spec = controller.roster.classes.get(key[1])
        takers = spec.takers if spec is not None else ""
        return {ACTORS: "actor", GROUPS: "placement group"}.get(takers, "task")
    return str(demand.request.kind)


def _text(outcome: Outcome, starts: list[dict[str, Any]], stays: list[dict[str, Any]], no_node: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for row in starts:
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["count"]
    parts = [f"{n:,} waiting {kind if n == 1 else kind + 's'}" for kind, n in counts.items()]
    least = "at least " if outcome.more else ""
    said = [f"{least}{' and '.join(parts)} would start" if parts else "nothing that waits would start"]
    lost = sum(row["count"] for row in no_node)
    if lost:
        said.append(f"{lost:,} waiting would have no node left that could run {'it' if lost == 1 else 'them'}")
    left = sum(row["count"] for row in stays)
    if left:
        said.append(f"{left:,} running {'stays' if left == 1 else 'stay'}")
    return "; ".join(said)
