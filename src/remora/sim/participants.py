"""Who is in a run: each workload, group and virtual cluster with its handle in the cluster and its history."""

from __future__ import annotations

from typing import Any

from remora.errors import InvalidInputError
from remora.model.resources import Resources
from remora.sim.entries import ClusterOptions, Entry
from remora.sim.history import FINISHED, RUNNING, WAITING, ClusterHistory, History, Run, Stay, Wait
from remora.sim.sim_cluster import SimGroup, SimVirtualCluster, SimWorkload

Held = tuple[tuple[str, Resources], ...]
"""What something holds: node and resources."""


class Tracked:
    """One workload or group. ``turn`` tells the end of this stay from that of an earlier one."""

    __slots__ = ("entry", "handle", "held", "history", "turn")

    def __init__(self, entry: Entry[Any], handle: SimWorkload | SimGroup, history: History) -> None:
        self.entry = entry
        self.handle = handle
        self.history = history
        self.held: Held = ()
        self.turn = 0

    def holding(self) -> Held:
        """What it holds now, as the cluster says. A group that lost a node keeps its other bundles while it waits."""
        if isinstance(self.handle, SimWorkload):
            resources = self.handle._work.request.resources
            self.history.resources = (resources,)
            return ((self.handle.node, resources),) if self.handle.node is not None else ()
        inner, nodes = self.handle._inner, self.handle._sim.scheduler.cluster.nodes
        bundles = self.history.resources = tuple(bundle.resources for bundle in inner.bundles)
        pairs = zip(inner.hosts, bundles, strict=False)  # no hosts at all before it is first placed
        return tuple((nodes.at(host.node).node_id, resources) for host, resources in pairs if host is not None)


class TrackedCluster:
    """One virtual cluster, and what runs in it."""

    def __init__(self, entry: Entry[ClusterOptions], handle: SimVirtualCluster, history: ClusterHistory) -> None:
        self.entry = entry
        self.handle = handle
        self.history = history
        self.members: dict[int, Tracked] = {}
        self.children: list[TrackedCluster] = []

    def subtree(self) -> list[TrackedCluster]:
        return [self, *(below for child in self.children for below in child.subtree())]


class Roster:
    """Everyone by id and by name. Writes the histories as they go in and out; ``touched`` are the virtual clusters that
    may look different since somebody looked, ``version`` changes with whatever could change a reason."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.work: dict[str, Tracked] = {}
        self.groups: dict[str, Tracked] = {}
        self.clusters: dict[str, TrackedCluster] = {}
        self.cluster_ids: dict[str, TrackedCluster] = {}
        self.newly_waiting: list[Tracked] = []
        self.touched: dict[str, TrackedCluster] = {}
        self.version = 0
        self._named: dict[tuple[str, str], Tracked] = {}
        self._latest: dict[str, Tracked] = {}

    # By name

    def add(self, tracked: Tracked) -> None:
        history = tracked.history
        if isinstance(tracked.handle, SimWorkload):
            self.work[tracked.handle.workload_id] = tracked
            self._named[history.namespace, history.name] = self._latest[history.name] = tracked
        else:
            self.groups[history.name] = tracked
        if history.cluster is not None:
            self.clusters[history.cluster].members[id(tracked)] = tracked

    def find(self, name: str, namespace: str | None = None) -> Tracked:
        """The workload of that name that came last, in the namespace if there is one there."""
        tracked = self._named.get((namespace, name)) if namespace is not None else None
        tracked = tracked or self._latest.get(name)
        if tracked is None:
            raise InvalidInputError(f"{name} has not arrived yet")
        return tracked

    def cluster(self, name: str | None) -> SimVirtualCluster | None:
        if name is None:
            return None
        tracked = self.clusters.get(name)
        if tracked is None:
            refused = any(cluster.name == name and cluster.refusal for cluster in self.run.clusters)
            raise InvalidInputError(f"the virtual cluster {name} {'was refused' if refused else 'has not been created yet'}")
        if tracked.history.ended is not None:
            raise InvalidInputError(f"the virtual cluster {name} ended at {tracked.history.ended:g} s")
        return tracked.handle

    # In and out

    def place(self, tracked: Tracked, now: float) -> None:
        history = tracked.history
        if history.waits and history.waits[-1].end is None:
            self._end_wait(history, now)
        self._hold(tracked, now, tracked.holding())
        history.stays.append(Stay(tuple(node for node, _ in tracked.held), now))
        history.state = RUNNING
        tracked.turn += 1

    def wait(self, tracked: Tracked, now: float) -> None:
        tracked.history.waits.append(Wait(now))
        tracked.history.state = WAITING
        self.run.waiting.add(now, 1)
        self.newly_waiting.append(tracked)

    def put_back(self, tracked: Tracked, now: float, outcome: str) -> None:
        """It was lost where it was, or lost more while it waits already."""
        self._hold(tracked, now, tracked.holding())
        self._end_stay(tracked, now, outcome)
        if tracked.history.state != WAITING:
            self.wait(tracked, now)

    def _end_stay(self, tracked: Tracked, now: float, outcome: str) -> None:
        """A stay of no length never was."""
        stays = tracked.history.stays
        if stays and stays[-1].end is None:
            stays[-1].end, stays[-1].outcome = now, outcome
            if stays[-1].start == now:
                stays.pop()

    def close(self, tracked: Tracked, now: float, outcome: str) -> None:
        """It is over, wherever it stood."""
        history = tracked.history
        self._hold(tracked, now, ())
        self._end_stay(tracked, now, outcome)
        if history.state == WAITING:
            self._end_wait(history, now)
        history.state = FINISHED
        if isinstance(tracked.handle, SimWorkload):
            del self.work[tracked.handle.workload_id]
        else:
            del self.groups[history.name]
        if history.cluster is not None:
            self.clusters[history.cluster].members.pop(id(tracked), None)

    def touch(self, cluster: str | None) -> None:
        """The shares of a virtual cluster may look different now, and those of everything above it."""
        while cluster is not None:
            self.touched[cluster] = self.clusters[cluster]
            cluster = self.clusters[cluster].history.parent

    def _hold(self, tracked: Tracked, now: float, held: Held) -> None:
        self.version += 1
        for node, resources in tracked.held:
            self.run.nodes[node].add(now, resources, -1)
        for node, resources in held:
            self.run.nodes[node].add(now, resources, 1)
        tracked.held = held
        self.touch(tracked.history.cluster)

    def _end_wait(self, history: History, now: float) -> None:
        self.run.waiting.add(now, -1)
        if history.waits[-1].start == now:
            history.waits.pop()  # nobody saw it wait
        else:
            history.waits[-1].end = now
