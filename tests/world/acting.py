"""The actions of a script, done to the world. What refers to something that is not there (any more) does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from tests.world import faults, script
from tests.world.autoscaler import Autoscaler
from tests.world.owning import Run
from tests.world.processes import Driver, Process
from tests.world.submitting import Scope, create_actor, create_group, end_group, enter, leave, submit_task
from tests.world.world import node_id_of, short

from remora.errors import InvalidVirtualClusterError
from remora.model.node_types import NodeType, NodeTypes
from remora.model.resources import UNIT, Resources
from remora.model.taints import split_taints
from remora.wire.calls import DropObject, LabelNode, PutObject, ResizeCluster, SetPriority, TaintNode

if TYPE_CHECKING:
    from tests.world.world import World

ADMIN = "admin"


class Acting:
    def __init__(self, world: World) -> None:
        self.world = world
        self.admin: Driver | None = None
        self.drivers: dict[str, Driver] = {}
        self._opening: dict[str, list[Callable[[Scope], None]]] = {}  # what is to be done in a cluster once it is open
        self.opening: dict[str, script.OpensCluster] = {}
        self._commands: dict[str, list[Any]] = {}  # by node: one after the other
        self.unanswered = 0  # commands

    def act(self, action: script.Action) -> None:
        self.world.note("* {}", action)
        _ACT[type(action)](self, action)

    # Nodes and jobs

    def _has_autoscaler(self, action: script.HasAutoscaler) -> None:
        self.world.autoscaler = Autoscaler(self.world, NodeTypes(tuple(map(_type_of, action.machines)), action.most))

    def _machine_dies(self, action: script.MachineDies) -> None:
        machines = sorted(self.world.autoscaler.machines()) if self.world.autoscaler is not None else []
        if machines:
            self.world.node_dies(short(machines[int(action.turn * len(machines)) % len(machines)]))

    def _node_joins(self, action: script.NodeJoins) -> None:
        raylet = self.world.join(action.node, dict(action.resources), dict(action.labels))
        if raylet.is_head:
            self.admin = self.world.driver(ADMIN, raylet.node_id)
            self.world.host.start()

    def _node_dies(self, action: script.NodeDies) -> None:
        self.world.node_dies(action.node)

    def _job_begins(self, action: script.JobBegins) -> None:
        node_id = node_id_of(action.node)
        if node_id in self.world.raylets:
            self.drivers[action.job] = self.world.driver(action.job, node_id)

    def _job_ends(self, action: script.JobEnds) -> None:
        driver = self.drivers.get(action.job)
        if driver is not None:
            self.world.kill(driver, "it is done")

    # Virtual clusters

    def _opens_cluster(self, action: script.OpensCluster) -> None:
        self._inside(action.job, action.parent, lambda driver, parent: self._open(action, driver, parent), action.name)

    def _open(self, action: script.OpensCluster, driver: Driver, parent: Scope | None) -> None:
        waiting = self._opening.setdefault(action.name, [])
        self.opening[action.name] = action

        def opened(scope: Scope | None, _: Exception | None) -> None:
            del self._opening[action.name], self.opening[action.name]
            for each in waiting if scope is not None else ():
                assert scope is not None
                each(scope)

        driver.run(
            lambda _: enter(
                driver,
                action.name,
                parent,
                action.spec,
                timeout=action.timeout,
                priority=action.priority,
                idle_seconds=action.idle_seconds,
            ),
            opened,
        )

    def _closes_cluster(self, action: script.ClosesCluster) -> None:
        def close(scope: Scope) -> None:
            driver = self.drivers.get(scope.job_id)
            if driver is not None and driver.alive and not scope.closed:
                driver.run(lambda _: leave(scope))

        if action.name in self._opening:
            self._opening[action.name].append(close)
        elif action.name in self.world.scopes:
            close(self.world.scopes[action.name])

    def _resizes(self, action: script.Resizes) -> None:
        """What is lowered may be used for as long as its work runs; what is raised has room once that is answered."""
        scope = self.world.scopes.get(action.name)
        try:
            wanted = scope.spec.with_maximum({"CPU": round(action.cpus * UNIT)}) if scope is not None else None
        except InvalidVirtualClusterError:
            return  # below its minimum: the tests of the controller see that this is refused
        if scope is None or wanted is None or scope.closed or self.admin is None:
            return
        before, is_lower = scope.cap("CPU"), (scope.cap("CPU") or inf) > action.cpus
        scope.allows(wanted)
        if is_lower:
            scope.spec = wanted
        self.unanswered += 1

        def then(_: Any, error: Exception | None) -> None:
            self.unanswered -= 1
            if error is None and not is_lower:
                scope.spec = wanted
            self.world.note("{} may have {} CPU, after {}: {}", action.name, action.cpus, before, error)

        self.world.host.send(self.admin, ResizeCluster(scope.cluster_id, {"CPU": action.cpus}, self.world.new_ask("")), then)

    def _prioritizes(self, action: script.Prioritizes) -> None:
        opening = self.opening.get(action.name)
        scope = self.world.scopes.get(action.name)
        cluster_id = next(iter(self.world.cluster_ids.values()), None) if opening is not None else None
        cluster_id = scope.cluster_id if scope is not None else cluster_id
        if cluster_id is None or self.admin is None:
            return
        self.unanswered += 1

        def then(_: Any, __: Exception | None) -> None:
            self.unanswered -= 1

        self.world.host.send(self.admin, SetPriority(cluster_id, action.priority, self.world.new_ask("")), then)

    def _inside(self, job: str, cluster: str, then: Callable[[Driver, Scope | None], None], name: str = "") -> None:
        """Do it in a virtual cluster: once that is open, and not where it never opens."""
        driver = self.drivers.get(job)
        if driver is None or not driver.alive:
            return

        def inside(scope: Scope | None) -> None:
            if driver.alive and (scope is None or not scope.closed):
                then(driver, scope)

        if not cluster:
            inside(None)
        elif cluster in self._opening:
            if name:
                self._opening.setdefault(name, [])  # it will be
            self._opening[cluster].append(inside)
        elif cluster in self.world.scopes:
            inside(self.world.scopes[cluster])

    # Work

    def _submits(self, action: script.Submits) -> None:
        def submit(driver: Driver, scope: Scope | None) -> None:
            driver.run(lambda thread: submit_task(driver, scope, action.task, thread))

        self._inside(action.job, action.cluster, submit)

    def _streams(self, action: script.Streams) -> None:
        def begin(driver: Driver, scope: Scope | None) -> None:
            for lane in range(action.width):
                self._stream(driver, scope, replace(action.task, name=f"{action.task.name}-{lane}"), 0)

        self._inside(action.job, action.cluster, begin)

    def _stream(self, driver: Driver, scope: Scope | None, task: script.Task, number: int) -> None:
        def submitted(run: Run | None, _: Exception | None) -> None:
            if run is not None and not run.is_over:
                run.when_over.append(lambda: self._stream(driver, scope, task, number + 1))

        if driver.alive and (scope is None or not scope.closed):
            spec = replace(task, name=f"{task.name}-{number}")
            driver.run(lambda thread: submit_task(driver, scope, spec, thread), submitted)

    def _creates(self, action: script.Creates) -> None:
        def create(driver: Driver, scope: Scope | None) -> None:
            driver.run(lambda thread: create_actor(driver, scope, action.actor, thread), self._created)

        self._inside(action.job, action.cluster, create)

    def _created(self, entry: Any, _: Exception | None) -> None:
        if entry is not None and entry.spec.seconds is not None:
            self.world.after(entry.spec.seconds, self._end_actor, entry.spec.name)

    def _ends_actor(self, action: script.EndsActor) -> None:
        self._end_actor(action.actor)

    def _end_actor(self, name: str) -> None:
        entry = self.world.gcs.actors.get(f"actor-{name}")
        if entry is not None:
            self.world.gcs.end_actor(entry, "its user ended it")

    def _puts_object(self, action: script.PutsObject) -> None:
        driver = self.drivers.get(action.job)
        if driver is None or not driver.alive:
            return
        object_id = f"object-{action.name}"
        self.world.checks.object_put(object_id, dict(action.labels), driver)
        self.world.host.send(driver, PutObject(object_id, action.labels, driver.node_id, "tests", action.job))

        def drop() -> None:
            self.world.checks.ended(object_id)
            if driver.alive:
                self.world.host.send(driver, DropObject(object_id))

        self.world.after(action.seconds, drop)

    def _creates_group(self, action: script.CreatesGroup) -> None:
        def create(driver: Driver, scope: Scope | None) -> None:
            driver.groups.add(action.name)
            driver.run(lambda _: create_group(driver, scope, action))

        self._inside(action.job, action.cluster, create)

    def _removes_group(self, action: script.RemovesGroup) -> None:
        self.end_group(action.name)

    def end_group(self, name: str) -> None:
        """By a driver of its job, if one lives."""
        group_id = self.world.group_ids.get(name)
        job_id = next((driver.job_id for driver in self.drivers.values() if group_id and name in driver.groups), "")
        driver = self.drivers.get(job_id)
        if driver is not None and driver.alive:
            driver.run(lambda _: end_group(driver, name))

    # Commands of people

    def _labels(self, action: script.Labels) -> None:
        changes: dict[str, str | None] = {**dict(action.set_), **dict.fromkeys(action.drop)}
        node_id = node_id_of(action.node)
        self._command(node_id, LabelNode(node_id, action.set_, list(action.drop), self.world.new_ask(action.node)), changes, {})

    def _taints(self, action: script.Taints) -> None:
        changes: dict[str, str | None] = {**dict(action.set_), **dict.fromkeys(action.drop)}
        node_id = node_id_of(action.node)
        self._command(node_id, TaintNode(node_id, action.set_, list(action.drop), self.world.new_ask(action.node)), {}, changes)

    def _command(self, node_id: str, call: Any, labels: dict[str, str | None], taints: dict[str, str | None]) -> None:
        if node_id in self.world.gcs.views:
            line = self._commands.setdefault(node_id, [])
            line.append((call, labels, taints))
            if len(line) == 1:
                self._next_command(node_id)

    def _next_command(self, node_id: str) -> None:
        call, labels, taints = self._commands[node_id][0]
        assert self.admin is not None
        answered = self.world.checks.changes(node_id, labels, taints)
        self.unanswered += 1

        def then(_: Any, __: Exception | None) -> None:
            self.unanswered -= 1
            answered()
            self._commands[node_id].pop(0)
            if self._commands[node_id]:
                self._next_command(node_id)

        self.world.host.send(self.admin, call, then)

    # What goes wrong

    def _process_dies(self, action: faults.ProcessDies) -> None:
        process = self._process_of(action.whose)
        if process is None or not process.alive:
            return
        if action.steps:
            process.dies_at = process.steps + action.steps
        else:
            self.world.kill(process, "it was killed")

    def _process_stops(self, action: faults.ProcessStops) -> None:
        process = self._process_of(action.whose)
        if process is not None:
            process.stops_at = process.steps + action.steps, action.seconds

    def _process_of(self, name: str) -> Process | None:
        if name in self.drivers:
            return self.drivers[name]
        run = self.world.runs.get(name)
        if run is not None:
            return run.worker
        entry = self.world.gcs.actors.get(f"actor-{name}")
        return entry.worker if entry is not None else None

    def _controller_dies(self, action: faults.ControllerDies) -> None:
        self.world.host.die_after(action.effects, told=action.told, answers=action.answers)

    def _weather(self, action: faults.Weather) -> None:
        self.world.weather[action.kind] = max(self.world.weather.get(action.kind, 0.0), self.world.now + action.seconds)


def _type_of(machine: script.Machine) -> NodeType:
    resources = Resources.parse({"CPU": machine.cpus, **({"GPU": machine.gpus} if machine.gpus else {})})
    labels, taints = split_taints(dict(machine.labels))
    return NodeType(
        machine.name, resources, tuple(sorted(labels.items())), tuple(sorted(taints.items())), machine.least, machine.most
    )


_ACT: dict[type, Callable[..., None]] = {
    script.HasAutoscaler: Acting._has_autoscaler,
    script.MachineDies: Acting._machine_dies,
    script.NodeJoins: Acting._node_joins,
    script.NodeDies: Acting._node_dies,
    script.JobBegins: Acting._job_begins,
    script.JobEnds: Acting._job_ends,
    script.OpensCluster: Acting._opens_cluster,
    script.ClosesCluster: Acting._closes_cluster,
    script.Resizes: Acting._resizes,
    script.Prioritizes: Acting._prioritizes,
    script.Submits: Acting._submits,
    script.Streams: Acting._streams,
    script.Creates: Acting._creates,
    script.CreatesGroup: Acting._creates_group,
    script.RemovesGroup: Acting._removes_group,
    script.EndsActor: Acting._ends_actor,
    script.PutsObject: Acting._puts_object,
    script.Labels: Acting._labels,
    script.Taints: Acting._taints,
    faults.ProcessDies: Acting._process_dies,
    faults.ProcessStops: Acting._process_stops,
    faults.ControllerDies: Acting._controller_dies,
    faults.Weather: Acting._weather,
}
