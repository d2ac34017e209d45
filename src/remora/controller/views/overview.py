"""Everything that is shown at a glance, for those who look every second: as it was last seen, and quick to make.

A row is made anew when something of it may have changed. What waits is shown by kinds, and of each kind one is explained; a few
explanations are made for each look, and kept for a moment.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from remora.controller.controller import Controller
from remora.controller.picture import real
from remora.controller.views.machine_words import machines
from remora.controller.views.status import node_row, waiting_row
from remora.controller.views.tree_view import tree
from remora.kernel.state.cluster_tree import READY
from remora.port.contract import Demand
from remora.wire.fences import ROOT
from remora.wire.tokens import slot_of_token

MOST_KINDS = 200
"""So many kinds of what waits are shown, the most numerous first."""

_MOST_EXPLAINED = 8
_KEPT_SECONDS = 5.0
_SOON = "it has just begun to wait: why is said in a moment"


_ROOT: dict[str, Any] = {
    "cluster_id": ROOT,
    "parent": None,
    "job_id": "",
    "state": READY,
    "spec": {},
    "min": {},
    "max": {},
    "lowering": {},
}
"""What it has and uses is the sum over the nodes, which are there too."""


@dataclass
class _Glance:
    """What was shown last, with what it depended on."""

    nodes: dict[str, tuple[object, dict[str, Any]]] = field(default_factory=dict)
    why: dict[Hashable, tuple[float, dict[str, Any]]] = field(default_factory=dict)


_glances: WeakKeyDictionary[Controller, _Glance] = WeakKeyDictionary()


def overview(controller: Controller, since: int) -> dict[str, Any]:
    """Return ``nodes``, ``waiting`` by kinds (``kinds_left_out``: how many kinds are not shown), ``virtual_clusters`` with the
    root, ``events`` after ``since``, ``number`` of the last of them, ``set_aside``, ``generation`` and ``now``, and where there
    is an autoscaler ``machines``."""
    glance = _glances.setdefault(controller, _Glance())
    journal = controller.context.journal
    waiting = _waiting(controller, glance)
    found = {
        "nodes": _nodes(controller, glance),
        "waiting": waiting[:MOST_KINDS],
        "kinds_left_out": len(waiting[MOST_KINDS:]),
        "virtual_clusters": [_ROOT, *tree(controller, labels=False)],
        "events": journal.entries(since),
        "number": journal.number,
        "set_aside": controller.context.aside.rows(),
        "generation": controller.generation,
        "now": controller.now(),
    }
    planned = machines(controller)
    return found if planned is None else {**found, "machines": planned}


def waiting_kinds(controller: Controller) -> list[dict[str, Any]]:
    """Return what waits by kinds, as it is shown at a glance."""
    return [row for row in _waiting(controller, _glances.setdefault(controller, _Glance())) if row]


def _nodes(controller: Controller, glance: _Glance) -> list[dict[str, Any]]:
    kept: dict[str, tuple[object, dict[str, Any]]] = {}
    for node_id, view in controller.picture.views.items():
        known = glance.nodes.get(node_id)
        stamp = (controller.picture.counted(node_id), controller.cluster.nodes.version)
        if known is None or known[0] != stamp:
            known = (stamp, node_row(controller, view))
        kept[node_id] = known
    glance.nodes = kept
    return [row for _, row in kept.values()]


def _waiting(controller: Controller, glance: _Glance) -> list[dict[str, Any]]:
    """Return a row for each kind of work that waits, the most numerous first. Each lease is a kind of its own to Ray; here
    those with the same request are one."""
    kinds: dict[Hashable, tuple[Demand, int]] = {}
    for demand in controller.picture.demands:
        key = _kind_of(controller, demand)
        first, count = kinds.get(key, (demand, 0))
        kinds[key] = first, count + demand.count
    now, left = controller.now(), _MOST_EXPLAINED
    why: dict[Hashable, tuple[float, dict[str, Any]]] = {}
    rows = []
    for key, (demand, count) in sorted(kinds.items(), key=lambda item: -item[1][1])[:MOST_KINDS]:
        known = glance.why.get(key)
        if left > 0 and (known is None or now - known[0] >= _KEPT_SECONDS):
            left -= 1
            known = now, waiting_row(controller, demand)
        if known is None:
            row = {"kind": "", "resources": [real(shape).to_dict() for shape in demand.shapes], "reason": _SOON}
            rows.append({**row, "count": count, "wants": "", "case": "", "suggestions": [], "changes": [], "refusals": []})
            continue
        why[key] = known
        rows.append({**known[1], "count": count})
    glance.why = why
    return rows + [{}] * max(len(kinds) - MOST_KINDS, 0)


def _kind_of(controller: Controller, demand: Demand) -> Hashable:
    for name in demand.shape:
        slot = slot_of_token(name)
        lease = controller.leases.by_slot.get(slot) if slot is not None else None
        if lease is not None:
            return "lease", lease.workload.request, lease.workload.placed, bool(lease.unplaced)
    return tuple(tuple(sorted(shape.items())) for shape in demand.shapes), demand.strategy
