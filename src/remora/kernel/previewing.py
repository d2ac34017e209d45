"""What would happen if a node had other labels and taints: which of what waits would start, and which would find no node.

Both sides are tried on copies of the cluster, by the same decisions: as it is, and with the change made.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

from remora.kernel.placing.group_fit import attempt, space_of
from remora.kernel.placing.placement import decide, feasible
from remora.kernel.placing.reserving import reserve
from remora.kernel.provisioning.demands import Demand, Waiting
from remora.kernel.rules import Query
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY
from remora.kernel.state.twin import twin_of
from remora.kernel.state.workloads import Group, Workload
from remora.model.labels import Labels
from remora.model.requests import NodeClass

_MOST = 500
"""So many of what waits are tried, of each kind a few and then more: a preview takes no longer for a thousand times as many."""


@dataclass(frozen=True)
class Marks:
    """What would be set on a node, and taken away."""

    labels: Labels = ()
    drop_labels: tuple[str, ...] = ()
    taints: Labels = ()
    drop_taints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """``starts`` is how many more of each demand would start, by its key; ``no_node`` are keys of demands of which no node
    could hold one any more. ``groups`` and ``clusters`` would start or be reserved. ``more``: more waits than was tried."""

    starts: dict[Hashable, int]
    no_node: tuple[Hashable, ...]
    groups: tuple[str, ...]
    clusters: tuple[str, ...]
    more: bool


def preview(cluster: Cluster, waiting: Waiting, node_id: str, marks: Marks) -> Outcome:
    """Return what a change of one node would do to what waits. Changes nothing."""
    before, after = twin_of(cluster), twin_of(cluster)
    node = after.nodes.own(node_id)
    after.nodes.relabel(node, marks.labels, marks.drop_labels)
    after.nodes.retaint(node, marks.taints, marks.drop_taints)
    so_far, then = _start(before, waiting), _start(after, waiting)
    starts = {key: more for key, now in then.work.items() if (more := now - so_far.work.get(key, 0)) > 0}
    no_node = [each.key for each in waiting.work if _could_run(before, each) and not _could_run(after, each)]
    return Outcome(
        starts,
        tuple(no_node),
        tuple(sorted(then.groups - so_far.groups)),
        tuple(sorted(then.clusters - so_far.clusters)),
        then.more or so_far.more,
    )


def accepts(cluster: Cluster, node_id: str, marks: Marks, choices: tuple[NodeClass, ...]) -> tuple[bool, bool]:
    """Return whether a node accepts a class now, and whether it would with other marks."""
    node = cluster.nodes.get(node_id)
    labels = {key: each for key, each in {**node.labels, **dict(marks.labels)}.items() if key not in marks.drop_labels}
    taints = {key: each for key, each in {**node.taints, **dict(marks.taints)}.items() if key not in marks.drop_taints}

    def accepted(labels: dict[str, str], taints: dict[str, str]) -> bool:
        return any(
            choice.selector.matches(labels)
            and all(any(term.matches(labels) for term in terms) for terms in choice.any_of)
            and choice.tolerations.tolerates(taints)
            for choice in choices
        )

    return accepted(node.labels, node.taints), accepted(labels, taints)


@dataclass
class _Started:
    work: dict[Hashable, int]
    groups: set[str]
    clusters: set[str]
    more: bool = False


def _start(twin: Cluster, waiting: Waiting) -> _Started:
    """Start on a copy whatever can start, in the order in which the scheduler would try it."""
    found = _Started({}, set(), set())
    for vcluster in (*waiting.degraded, *waiting.clusters):
        copy = twin.tree.clusters.get(vcluster.cluster_id)
        if copy is not None and (copy.parent is None or copy.parent.state == READY) and reserve(twin, copy):
            found.clusters.add(copy.cluster_id)
    for original in waiting.groups:
        group = Group(original.group_id, original.request)
        space = space_of(twin, group)
        if space is not None and space.state != READY:
            continue
        for option in range(len(group.request.options)):
            hosts = attempt(twin, space, group, option, [None] * len(group.request.options[option])).place()
            if hosts is not None:
                twin.place_group(group, option, hosts)
                found.groups.add(group.group_id)
                break
    numbers, tried = count(1), 0
    for demand in waiting.work:
        placed = 0
        while placed < demand.count:
            if tried == _MOST:
                found.more = True
                return found
            tried += 1
            workload = Workload(demand.workload_id or f"preview {next(numbers)}", demand.request, demand.labels)
            host = decide(twin, workload.request, workload.labels, workload.workload_id) if _is_open(twin, demand) else None
            if host is None:
                break
            twin.place(workload, host)
            placed += 1
        if placed:
            found.work[demand.key] = found.work.get(demand.key, 0) + placed
    return found


def _is_open(twin: Cluster, demand: Demand) -> bool:
    cluster_id = demand.request.cluster
    return cluster_id is None or cluster_id in twin.tree.clusters


def _could_run(twin: Cluster, demand: Demand) -> bool:
    if not _is_open(twin, demand):
        return False
    choices = demand.request.choices
    return any(feasible(twin, Query(demand.request, choice, demand.labels, demand.workload_id)) for choice in choices)
