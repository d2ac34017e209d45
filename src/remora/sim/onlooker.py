"""Looking why things wait and how virtual clusters stand, without spending more on it than on the run itself.

Explaining asks every node, so it is rationed: equal requests wait for the same reason and are looked at once; only while
little waits on few nodes is everything that waits looked at after every moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remora.kernel.explaining.explain import Explanation
from remora.kernel.state.cluster_tree import QUEUED, VCluster
from remora.kernel.state.workloads import Group, Workload
from remora.sim.autoscaling import Autoscaler
from remora.sim.history import WAITING, ClusterStep, Share
from remora.sim.participants import Roster, Tracked, TrackedCluster
from remora.sim.sim_cluster import SimCluster

_CLOSE = 2_000
"""While (kinds of request that wait) x (nodes) is below this, all reasons are looked at after every moment."""
_FEW = 500
"""The most waiting things whose reason is followed that closely."""
_LOOKS = 50
"""Otherwise a kind of request is looked at no oftener than so many times in the whole run."""
_WIDE = 64
"""A virtual cluster of more virtual nodes than this is written down only when its state changes."""


class Onlooker:
    """Looks when a moment is over, and writes what it sees into the histories."""

    def __init__(self, sim: SimCluster, roster: Roster, until: float | None) -> None:
        self.sim = sim
        self.roster = roster
        self.until = until
        self.machines: Autoscaler | None = None
        self._known: dict[Any, tuple[float, int, Explanation]] = {}

    def look(self, now: float) -> None:
        roster, scheduler = self.roster, self.sim.scheduler
        if len(scheduler.queue) * len(roster.run.nodes) <= _CLOSE:
            for queued in scheduler.queue:
                roster.touch(roster.cluster_ids[queued.cluster_id].history.name)
        for cluster in roster.touched.values():
            self._look_at_cluster(cluster, now)
        roster.touched.clear()
        fresh, roster.newly_waiting = roster.newly_waiting, []
        if len(scheduler.waiting) * len(roster.run.nodes) <= _CLOSE and roster.run.waiting.last <= _FEW:
            self._look_at_all(now)
            return
        patience = (self.until or now or 1.0) / _LOOKS
        for tracked in fresh:
            if tracked.history.state == WAITING:
                self._look_at(tracked, now, patience)

    def look_last(self, now: float) -> None:
        """The run is over: whatever still waits is told why."""
        for cluster in self.roster.clusters.values():
            self._look_at_cluster(cluster, now)
        self._look_at_all(now)

    def _look_at_all(self, now: float) -> None:
        roster = self.roster
        for entry, line in self.sim.scheduler.waiting.items():
            if isinstance(entry, Group):
                self._look_at(roster.groups[entry.group_id], now)
            for workload in line:
                self._look_at(roster.work[workload.workload_id], now)

    def _look_at(self, tracked: Tracked, now: float, patience: float = 0.0) -> None:
        explanation = self._explain(tracked, now, patience)
        wait = tracked.history.waits[-1]
        if not wait.reasons or wait.reasons[-1][1] != explanation.reason:
            wait.reasons.append((now, explanation.reason))
        wait.suggestions = tuple(suggestion.text for suggestion in explanation.suggestions)

    def _explain(self, tracked: Tracked, now: float, patience: float) -> Explanation:
        """As seen for an equal request, if nothing changed since or somebody looked just now."""
        inner = tracked.handle._inner
        key: Any = inner.request if isinstance(inner, Workload) else inner
        known = self._known.get(key)
        if known is not None and (known[1] == self.roster.version or now - known[0] < patience):
            return known[2]
        explanation = self._with_machines(tracked.handle.explain(), inner)
        self._known[key] = (now, self.roster.version, explanation)
        return explanation

    def _with_machines(self, explanation: Explanation, item: Workload | Group | VCluster | None) -> Explanation:
        """The same, and which machines are starting for it or why none is."""
        words = self.machines.words(item) if self.machines is not None and item is not None else ""
        return replace(explanation, reason=f"{explanation.reason}; {words}") if words and explanation.reason else explanation

    def _look_at_cluster(self, tracked: TrackedCluster, now: float) -> None:
        handle, steps = tracked.handle, tracked.history.steps
        state = handle.state
        moved = not steps or steps[-1].state != state
        if not moved and len(handle._inner.flex) + len(handle._inner.fixed) > _WIDE:
            return
        explanation = handle.explain() if state == QUEUED or not handle._inner.whole else Explanation("")
        explanation = self._with_machines(explanation, handle._inner)
        tracked.history.suggestions = tuple(suggestion.text for suggestion in explanation.suggestions)
        shares = tuple(
            Share(node.node_id, node.physical_node, node.parent, node.total, node.available) for node in handle.nodes
        )
        if moved or (steps[-1].shares, steps[-1].reason) != (shares, explanation.reason):
            steps.append(ClusterStep(now, state, shares, explanation.reason))
