"""What would be started for something that nobody has submitted, beside all that waits: tried on a copy, nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remora.controller.controller import Controller
from remora.errors import ControllerError
from remora.kernel.provisioning.demands import Demand
from remora.kernel.provisioning.planning import plan
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.twin import twin_of
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.asks import Ask

_ID = "the virtual cluster"
_HAS_ROOM = "has room on the nodes that are there"


def plan_for(controller: Controller, spec: VirtualCluster | None, priority: int, work: list[tuple[Ask, int]]) -> dict[str, Any]:
    """Return the plan with these beside what waits now, and under ``asked`` what it says of each of them."""
    scaling = controller.scaling
    table = scaling.machines.table
    if table is None:
        why = scaling.machines.problem or "it has no autoscaler"
        raise ControllerError(
            f"what this cluster can start is not known ({why}); without it name the types: remora plan --node-types types.yaml"
        )
    twin = twin_of(controller.cluster)
    waiting = scaling.waiting
    if spec is not None:
        vcluster = VCluster(_ID, spec, None, priority, controller.scheduler.next_order(), Tolerations())
        twin.tree.add(vcluster)
        before = [each for each in waiting.clusters if each.priority >= priority]
        waiting = replace(waiting, clusters=(*before, vcluster, *(each for each in waiting.clusters if each not in before)))
    demands = tuple(
        Demand(("unsubmitted", number), f"{count:,} {'task' if count == 1 else 'tasks'}", ask.request, count, ask.labels)
        for number, (ask, count) in enumerate(work)
    )
    waiting = replace(waiting, work=(*waiting.work, *demands))
    found = plan(twin, waiting, table, scaling.machines.coming, scaling.machines.doubtful)
    keys = {("cluster", _ID), *(demand.key for demand in demands)}
    asked = [{**answer.to_dict(), "words": answer.words or _HAS_ROOM} for answer in found.answers if answer.party.key in keys]
    return {**found.to_dict(), "asked": asked}
