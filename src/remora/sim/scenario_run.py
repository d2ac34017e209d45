"""The run of a scenario: a heap of moments over a SimCluster. No clock but the virtual one.

1. take the next thing that happens; of one moment: ends, events, virtual clusters, placement groups, arrivals
2. tell the cluster, which decides everything pending again and reports what moved
3. write down who moved; whoever was placed gets a moment at which it ends
4. when the moment is over: look why things wait, and how the virtual clusters stand; with node types, machines come and go

What the cluster refuses (a name in use, a virtual cluster that can never fit) is an outcome, not an error: it is reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from remora.errors import InvalidInputError
from remora.kernel.provisioning.plans import CLUSTER, Party
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.workloads import Group, Workload
from remora.model.strategies import ActorAffinitySchedulingStrategy, actor_affinity, affinity, anti_affinity
from remora.sim.autoscaling import Autoscaler
from remora.sim.entries import ClusterOptions, Entry, GroupOptions, NodeSpec, WorkOptions
from remora.sim.history import GROUP, REFUSED, RUNNING, WAITING, ClusterHistory, Happening, History, NodeHistory, Run
from remora.sim.onlooker import Onlooker
from remora.sim.participants import Roster, Tracked, TrackedCluster
from remora.sim.scenario import Event, Scenario
from remora.sim.sim_cluster import SimCluster, SimWorkload
from remora.sim.strategies_yaml import Mates

Progress = Callable[[int, int], None]

# The order within one moment: what is given back is there for whoever comes.
_END, _EVENT, _CLUSTER, _GROUP, _ARRIVAL, _SCALE = range(6)
_REPORT_EVERY = 256


def run_scenario(scenario: Scenario, progress: Progress | None = None, *, check: bool = False) -> Run:
    """Play a scenario to its end; ``check`` recounts the cluster when it is over."""
    player = _Player(scenario)
    player.play(progress or (lambda done, total: None))
    if check:
        player.sim.validate()
    return player.run


def play_at_once(scenario: Scenario) -> tuple[SimCluster, Run]:
    """Play what happens at the first moment, and return the cluster as it is then: no machine has been started yet."""
    player = _Player(scenario)
    player.play(lambda done, total: None)
    return player.sim, player.run


class _Player:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.sim = SimCluster(seed=scenario.seed)
        self.sim.scheduler.on_change = self._changed
        self.run = Run(scenario.name, scenario.description, scenario.seed)
        self.roster = Roster(self.run)
        self.onlooker = Onlooker(self.sim, self.roster, scenario.until)
        self.now = 0.0
        self._cause = ""
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0
        self._changes = 0
        self.machines: Autoscaler | None = None
        if scenario.types is not None:
            self.machines = Autoscaler(self.sim, self.run, scenario.types, self._join, self._leave)
            self.machines.name_of = self._name_of
            self.onlooker.machines = self.machines

    def play(self, progress: Progress) -> None:
        total = self._schedule()
        for node in self.scenario.nodes:
            self._join(node)
        self._scale_soon()
        until = self.scenario.until
        while self._heap and (until is None or self._heap[0][0] <= until):
            self.now, _, _, action, args = heapq.heappop(self._heap)
            action(*args)
            self.run.events += 1
            self._changes += action != self._scale
            if not self._heap or self._heap[0][0] > self.now:
                self.onlooker.look(self.now)
                self._scale_soon()
            if self.run.events % _REPORT_EVERY == 0:
                progress(min(self.run.events, total), total)
        self.run.ended = self.now = self.now if until is None else until
        self.onlooker.look_last(self.now)
        progress(total, total)

    # What will happen

    def _schedule(self) -> int:
        """Everything that the file names; and how many happenings that makes, ends included."""
        expected = len(self.scenario.events)
        for event in self.scenario.events:
            self._push(event.at, _EVENT, self._happen, event)
        entries: list[tuple[int, Callable[..., None], tuple[Entry[Any], ...]]] = [
            (_CLUSTER, self._create_cluster, self.scenario.virtual_clusters),
            (_GROUP, self._create_group, self.scenario.placement_groups),
            (_ARRIVAL, self._arrive, self.scenario.arrivals),
        ]
        for rank, action, listed in entries:
            for entry in listed:
                expected += entry.count * (1 if entry.lasts is None else 2)
                for index in range(entry.count):
                    self._push(entry.time_of(index), rank, action, entry, index)
        return expected

    def _push(self, at: float, rank: int, action: Callable[..., None], *args: Any) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, rank, self._pushed, action, args))

    # Nodes

    def _join(self, node: NodeSpec, node_type: str = "") -> None:
        if node.node_id in self.sim.scheduler.cluster.nodes.by_id:
            raise InvalidInputError(f"there is a node {node.node_id!r} already")
        # Known first: what waits is placed on it inside add_node().
        history = self.run.nodes.setdefault(node.node_id, NodeHistory(node.node_id, node.resources))
        history.join(self.now, node.resources)
        self.sim.add_node(node.node_id, node.resources, node.labels, node.taints, node_type=node_type)
        self.roster.version += 1

    def _leave(self, node_id: str) -> None:
        self._cause = "lost its node"
        self.sim.remove_node(node_id)
        up = self.run.nodes[node_id].up
        up[-1] = (up[-1][0], self.now)
        self.roster.version += 1
        self.roster.touched.update(self.roster.clusters)

    # Machines

    def _scale_soon(self) -> None:
        """Have the machines looked at, once what has just happened has stood for a while."""
        if self.machines is not None and self.machines.seen != self._changes:
            self._scale_at(self.now + self.scenario.scale_every)

    def _scale_at(self, at: float) -> None:
        assert self.machines is not None
        if self.machines.due is None or at < self.machines.due:
            self.machines.due = at
            self._push(at, _SCALE, self._scale, at)

    def _scale(self, at: float) -> None:
        machines = self.machines
        assert machines is not None
        if machines.due != at:
            return  # it was looked at before that
        machines.due = None
        for name, seconds in machines.look(self.now):
            self._push(self.now + seconds, _EVENT, self._arrive_machine, name)
        machines.seen = self._changes
        self.roster.version += 1  # what waits may be told of machines now
        next_end = machines.next_end()
        if next_end is not None:
            self._scale_at(max(next_end, self.now + self.scenario.scale_every))

    def _name_of(self, party: Party) -> str:
        """What the scenario calls it."""
        return self.roster.cluster_ids[party.name].history.name if party.kind == CLUSTER else party.name

    def _arrive_machine(self, name: str) -> None:
        assert self.machines is not None
        self.machines.arrive(name, self.now)

    def _happen(self, event: Event) -> None:
        happening = Happening(self.now, _tell(event))
        self.run.happenings.append(happening)
        self.roster.version += 1
        self._cause = "failed" if event.action == "fail" else "lost its node"
        try:
            self._apply(event)
        except InvalidInputError as error:
            happening.refusal = str(error)
        self.roster.touched.update(self.roster.clusters)

    def _apply(self, event: Event) -> None:
        sim, subject = self.sim, event.subject
        if event.action == "fail":
            tracked = self.roster.find(subject)
            if tracked.history.state == WAITING:
                raise InvalidInputError(f"{subject} waits, so there is nothing to fail")
            assert isinstance(tracked.handle, SimWorkload)
            sim.fail(tracked.handle)
        elif event.node is not None:
            self._join(event.node)
        elif event.action == "remove_node":
            if self.machines is not None:
                self.machines.lost(subject, self.now)
            sim.remove_node(subject)
            up = self.run.nodes[subject].up
            up[-1] = (up[-1][0], self.now)
        elif event.action == "taint":
            sim.taint(subject, dict(event.labels))
        elif event.action == "untaint":
            sim.untaint(subject, event.keys)
        elif event.action == "label":
            sim.label(subject, dict(event.labels))
        else:
            sim.unlabel(subject, event.keys)

    # Work

    def _arrive(self, entry: Entry[WorkOptions], index: int) -> None:
        options = entry.options(index)
        history = History(entry.name_of(index), options.kind, self.now, options.namespace, options.virtual_cluster)
        self.run.work.append(history)
        try:
            mates = [self._mates(options, mates) for mates in options.strategies.mates]
            handle = self.sim.submit(
                options.kind,
                name=history.name,
                resources=options.resources,
                labels=options.labels,
                namespace=options.namespace,
                label_selector=options.label_selector,
                fallback_strategy=options.fallback_strategy,
                tolerations=options.tolerations,
                scheduling_strategy=options.strategies.scheduling_strategy,
                affinity=[*options.strategies.affinity, *mates],
                virtual_cluster=self.roster.cluster(options.virtual_cluster),
            )
        except InvalidInputError as error:
            history.state, history.refusal = REFUSED, str(error)
            return
        self._enter(Tracked(entry, handle, history))

    def _create_group(self, entry: Entry[GroupOptions], index: int) -> None:
        options = entry.options(index)
        history = History(entry.name_of(index), GROUP, self.now, cluster=options.virtual_cluster)
        self.run.work.append(history)
        try:
            handle = self.sim.placement_group(
                options.bundles,
                options.strategy,
                name=history.name,
                bundle_label_selector=options.bundle_label_selector,
                tolerations=options.tolerations,
                fallback_strategy=options.fallback_strategy,
                virtual_cluster=self.roster.cluster(options.virtual_cluster),
            )
        except InvalidInputError as error:
            history.state, history.refusal = REFUSED, str(error)
            return
        self._enter(Tracked(entry, handle, history))

    def _mates(self, options: WorkOptions, mates: Mates) -> ActorAffinitySchedulingStrategy:
        handles = [self.roster.find(name, options.namespace).handle for name in mates.names]
        return actor_affinity((anti_affinity if mates.away else affinity)(handles, mates.soft))

    def _enter(self, tracked: Tracked) -> None:
        self.roster.add(tracked)
        if tracked.holding():
            self._placed(tracked)
        else:
            self.roster.wait(tracked, self.now)

    # What moves

    def _changed(self, item: Workload | Group | VCluster) -> None:
        """The kernel placed it, made it ready, or put it back."""
        if isinstance(item, VCluster):
            cluster = self.roster.cluster_ids.get(item.cluster_id)
            if cluster is not None:
                self._settled(cluster)
            return
        roster = self.roster
        tracked = roster.work[item.workload_id] if isinstance(item, Workload) else roster.groups[item.group_id]
        if item.placed:
            self._placed(tracked)
        else:
            roster.put_back(tracked, self.now, self._cause)

    def _placed(self, tracked: Tracked) -> None:
        self.roster.place(tracked, self.now)
        if tracked.entry.lasts is not None:
            self._push(self.now + tracked.entry.lasts, _END, self._end, tracked, tracked.turn)

    def _end(self, tracked: Tracked, turn: int) -> None:
        """It has run for as long as it runs, unless it was placed anew since or is over already."""
        if tracked.turn != turn or tracked.history.state != RUNNING:
            return
        # Closed first: what it gives back is taken by others inside finish().
        self.roster.close(tracked, self.now, "finished")
        self.sim.finish(tracked.handle)

    # Virtual clusters

    def _create_cluster(self, entry: Entry[ClusterOptions], index: int) -> None:
        options = entry.options(index)
        history = ClusterHistory(entry.name_of(index), "", options.parent, options.priority, self.now)
        self.run.clusters.append(history)
        try:
            parent = self.roster.cluster(options.parent)
            handle = self.sim.create_virtual_cluster(options.spec, parent, options.priority, tolerations=options.tolerations)
        except InvalidInputError as error:
            history.refusal = str(error)
            return
        history.cluster_id = handle.cluster_id
        tracked = TrackedCluster(entry, handle, history)
        self.roster.clusters[history.name] = self.roster.cluster_ids[handle.cluster_id] = tracked
        if options.parent is not None:
            self.roster.clusters[options.parent].children.append(tracked)
        self._settled(tracked)

    def _settled(self, tracked: TrackedCluster) -> None:
        self.roster.version += 1
        self.roster.touch(tracked.history.name)
        if tracked.handle.state == READY and tracked.history.ready is None:
            tracked.history.ready = self.now
            if tracked.entry.lasts is not None:
                self._push(self.now + tracked.entry.lasts, _END, self._destroy, tracked)

    def _destroy(self, tracked: TrackedCluster) -> None:
        if tracked.history.ended is not None:
            return
        # Closed last: inside destroy() the kernel may still move what is in it.
        tracked.handle.destroy()
        for cluster in tracked.subtree():
            for member in list(cluster.members.values()):
                self.roster.close(member, self.now, "ended with its virtual cluster")
            if cluster.history.ended is None:
                cluster.history.ended = self.now
            self.roster.touch(cluster.history.name)


def _tell(event: Event) -> str:
    """The event as a person would say it."""
    subject = event.subject
    pairs = ", ".join(f"{key}={value}" for key, value in event.labels)
    keys = ", ".join(event.keys)
    return {
        "add_node": f"{subject} joins",
        "remove_node": f"{subject} is lost",
        "taint": f"{subject} gets the taint {pairs}",
        "untaint": f"{subject} loses the taint {keys}",
        "label": f"{subject} gets the label {pairs}",
        "unlabel": f"{subject} loses the label {keys}",
        "fail": f"{subject} fails",
    }[event.action]
