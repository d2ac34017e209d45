"""The world: its parts, the time, and what passes between them."""

from __future__ import annotations

from typing import Any

from tests.world import bodies
from tests.world.autoscaler import Autoscaler
from tests.world.brain import Make, Recovered
from tests.world.checks import Checks
from tests.world.clients import Submitter
from tests.world.faults import REPORTS, WORKERS_SLOW
from tests.world.gcs import ActorEntry, Gcs
from tests.world.groups import GroupEntry
from tests.world.host import Host
from tests.world.keeper import GroupSteps
from tests.world.owning import Run
from tests.world.processes import Driver, Process, Worker
from tests.world.raylet import Raylet, Request, to_units
from tests.world.submitting import Scope
from tests.world.timeline import BEGIN, Chance, Timeline

from remora.port.contract import Work
from remora.wire.fences import Fence

PREFIX = "f" * 16
"""Ids of nodes may begin alike, as those of Ray's fake provider do."""


class World:
    def __init__(self, seed: int, make: Make = Recovered) -> None:
        self.timeline = Timeline()
        self.chance = Chance(seed)
        self.story: list[tuple[float, str, tuple[Any, ...]]] = []
        self.patience = 1.0  # how much more seldom rounds are made when nothing happens any more
        self.weather: dict[str, float] = {}  # until when
        self.raylets: dict[str, Raylet] = {}
        self.fences: dict[str, tuple[float, Fence]] = {}
        self.markers: dict[str, dict[str, Process]] = {}
        self.workers_made: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self.runs: dict[str, Run] = {}
        self.scopes: dict[str, Scope] = {}
        self.cluster_ids: dict[str, str] = {}  # by the question that made them
        self.group_ids: dict[str, str] = {}
        self.group_scopes: dict[str, Scope | None] = {}
        self.signals: set[str] = set()  # that were left in GCS for those who wait for a group
        self.checks = Checks(self)
        self.gcs = Gcs(self)
        self.autoscaler: Autoscaler | None = None
        self.host = Host(self, make)
        self._asks: dict[str, int] = {}
        self._actors: dict[str, int] = {}

    # Time, chance and what is told afterwards

    @property
    def now(self) -> float:
        return self.timeline.now

    def after(self, seconds: float, action: Any, *args: Any) -> Any:
        return self.timeline.after(seconds, action, *args)

    def note(self, text: str, *args: Any) -> None:
        self.story.append((self.timeline.now - BEGIN, text, args))

    def is_bad(self, kind: str) -> bool:
        return self.weather.get(kind, 0.0) > self.timeline.now

    def new_ask(self, name: str) -> str:
        count = self._asks[name] = self._asks.get(name, 0) + 1
        return f"ask-{name}-{count}"

    def new_actor_id(self, name: str) -> str:
        """An id that no actor had: what a task makes that is tried again is another one, as Ray's ids tell attempts apart."""
        count = self._actors[name] = self._actors.get(name, 0) + 1
        return f"actor-{name}" if count == 1 else f"actor-{name}-{count}"

    # Nodes

    def join(self, name: str, resources: dict[str, float], labels: dict[str, str], node_type: str = "") -> Raylet:
        node_id = node_id_of(name)
        raylet = Raylet(self, node_id, to_units(resources), labels, is_head=not self.raylets and not self.gcs.views)
        raylet.node_type = node_type
        raylet.others = {other.node_id: (dict(other.total), dict(other.available)) for other in self.raylets.values()}
        self.raylets[node_id] = raylet
        self.checks.node_joined(node_id, labels)
        self.gcs.joined(raylet)
        self.tell_of(raylet)
        return raylet

    def machine_ends(self, raylet: Raylet) -> None:
        """It is idle, and ended in an orderly way: GCS knows at once."""
        self.node_dies(short(raylet.node_id), 0.05)

    def node_dies(self, name: str, within: float = 2.0) -> None:
        raylet = self.raylets.pop(node_id_of(name), None)
        if raylet is None or raylet.is_head:
            if raylet is not None:
                self.raylets[raylet.node_id] = raylet
            return
        raylet.alive = False
        self.note("{} is dead", name)
        for process in [each for each in self.processes.values() if each.node_id == raylet.node_id and each.alive]:
            self.kill(process, "its node is dead")
        self.markers.pop(raylet.node_id, None)
        self.fences.pop(raylet.node_id, None)
        self.after(self.chance.between(f"noticed {name}", 0.1 * within, within), self._node_noticed, raylet)

    def _node_noticed(self, raylet: Raylet) -> None:
        self.note("GCS finds {} dead", raylet.node_id)
        self.gcs.left(raylet)
        for other in self.raylets.values():
            other.heard(raylet.node_id, None, None)
        for request in (*raylet.queue, *raylet.nowhere):
            if not request.ended:
                request.ended = True
                request.owner.lost(request)
        raylet.queue, raylet.nowhere = [], []

    def tell_of(self, raylet: Raylet) -> None:
        """A raylet that has changed tells GCS and the others, a moment later."""
        if not raylet.is_due and raylet.alive:
            raylet.is_due = True
            late = 0.6 if self.is_bad(REPORTS) and self.chance.happens(f"late {raylet.node_id}", 0.5) else 0.12
            self.after(self.chance.between(f"tell {raylet.node_id}", 0.02, late), self._told_of, raylet)

    def _told_of(self, raylet: Raylet) -> None:
        raylet.is_due = False
        if raylet.alive:
            self.gcs.reported(raylet)
            total, available = dict(raylet.total), dict(raylet.available)
            for other in list(self.raylets.values()):
                if other is not raylet:
                    other.heard(raylet.node_id, total, available)

    # Requests, workers

    def send_request(self, request: Request, node_id: str) -> None:
        self.after(self.chance.between(f"request {request.name}", 0.001, 0.02), self._request_arrives, request, node_id)

    def _request_arrives(self, request: Request, node_id: str) -> None:
        raylet = self.raylets.get(node_id)
        if request.ended:
            return
        if raylet is None:
            request.ended = True
            request.owner.lost(request)
        else:
            raylet.ask(request)

    def start_worker(self, raylet: Raylet, request: Request) -> None:
        """A worker for a request that was granted: one that idles, or a new one."""
        worker = None if isinstance(request.key, ActorEntry) else raylet.take_idle(request.owner.job_id)
        wait = 0.002
        if worker is None:
            number = self.workers_made[raylet.node_id] = self.workers_made.get(raylet.node_id, 0) + 1
            worker = Worker(self, f"{short(raylet.node_id)}-w{number}", raylet, "")
            self.processes[worker.worker_id] = worker
            wait = self.chance.between(f"starts {request.name}", 0.01, 1.0 if self.is_bad(WORKERS_SLOW) else 0.1)
        worker.lease(request)
        if isinstance(request.key, ActorEntry):
            self.checks.actor_granted(request.key, worker)
        self.note("{} is granted to {} as {}", request.name, short(raylet.node_id), worker.worker_id)
        self.after(wait, self._granted, request, worker)

    def _granted(self, request: Request, worker: Worker) -> None:
        if worker.alive:
            request.owner.granted(request, worker)
        else:
            self.after(0.0, request.owner.lost, request)

    def begin_task(self, worker: Worker, run: Run) -> None:
        worker.run_now, worker.job_id = run, run.job_id
        self.after(self.chance.between(f"push {run.name}", 0.0005, 0.003), self._run_task, worker, run)

    def _run_task(self, worker: Worker, run: Run) -> None:
        if worker.alive and worker.run_now is run:
            worker.run(
                lambda thread: bodies.task(worker, run, thread),
                lambda _, __: self.after(0.001, self._task_over, worker, run),
                blocks=True,
            )

    def _task_over(self, worker: Worker, run: Run) -> None:
        if worker.alive and worker.run_now is run:
            run.worker = None
            if run.owner.alive:
                run.end(run.error)
            run.owner.owning.finished(run, worker)

    def begin_actor(self, worker: Worker, entry: ActorEntry) -> None:
        worker.job_id = entry.job_id

        def lives(_: Any, error: Exception | None) -> None:
            if worker.alive and error is None and entry.worker is worker:
                self.gcs.actor_lives(entry)

        worker.run(lambda _: bodies.constructor(worker, entry), lives, blocks=True)

    def kill(self, process: Process, why: str) -> None:
        """Its raylet tells GCS of it, then gives away what it held; its owner hears of it a moment later."""
        if not process.alive:
            return
        self.note("{} dies: {}", process.worker_id, why)
        process.die()
        wait = self.chance.between(f"dies {process.worker_id}", 0.005, 0.1)
        if isinstance(process, Worker):
            if process.raylet.alive:
                self.gcs.worker_ended(process)
            else:
                self.after(2.0, self.gcs.worker_ended, process)
                wait += 0.5
            if process in process.raylet.idle:
                process.raylet.idle.remove(process)
            process.raylet.released(process)
            if process.run_now is not None:
                self.checks.ended(process.run_now)
                self.after(wait, process.run_now.owner.owning.worker_died, process.run_now)
                process.run_now.worker = None
            if process.actor is not None:
                self.checks.ended(process.actor)
                self.after(wait, self._actor_failed, process.actor, process)
        else:
            self.after(wait, self.gcs.job_ended, process.job_id)
        for run in process.owning.process_died():
            if run.worker is not None:
                self.after(wait, self.kill, run.worker, "its owner is dead")
        self.after(wait, self._owner_died, process)

    def _owner_died(self, process: Process) -> None:
        self.gcs.owner_died(process)
        for raylet in self.raylets.values():
            raylet.forget_ended()

    def end_workers_of(self, job_id: str) -> None:
        """The workers of a job end with it, but for actors that outlive it."""
        for process in list(self.processes.values()):
            if isinstance(process, Worker) and process.job_id == job_id and process.alive:
                outlives = process.actor is not None and process.actor.spec.detached
                if not outlives:
                    self.kill(process, "its job has ended")

    def _actor_failed(self, entry: ActorEntry, worker: Process) -> None:
        if entry.worker is worker:
            self.gcs.actor_failed(entry)

    # What is known under which name

    def make_submitter(self, process: Process) -> Submitter:
        return GroupSteps(self, process)

    def driver(self, job_id: str, node_id: str) -> Driver:
        driver = Driver(self, f"driver-{job_id}", node_id, job_id)
        self.processes[driver.worker_id] = driver
        self.gcs.job_began(job_id)
        return driver

    def register_run(self, run: Run) -> None:
        self.runs[run.name] = run

    def register_actor(self, entry: ActorEntry) -> None:
        self.after(self.chance.between(f"create {entry.actor_id}", 0.001, 0.02), self.gcs.create_actor, entry)

    def actor_id(self, name: str) -> str | None:
        """The id of the actor of a name, if there is one."""
        entry = self.gcs.actors.get(f"actor-{name}")
        return entry.actor_id if entry is not None else None

    def opened(self, scope: Scope) -> None:
        self.note("{} is {}", scope.name, scope.cluster_id)
        self.scopes[scope.name] = scope

    def feed(self, work: Work | None) -> None:
        self.host.feed(work)

    # Groups

    def in_group(self, name: str, real: dict[str, float]) -> dict[str, float]:
        """What work in a group asks for."""
        group_id = self.group_ids[name]
        names = {f"{resource}_group_{group_id}": amount for resource, amount in real.items() if amount}
        return {**names, f"bundle_group_{group_id}": 0.001}

    def group_reserved(self, entry: GroupEntry) -> None:
        self.note("{} is reserved on {}", entry.group_id, [short(node or "") for node in entry.nodes])
        self.checks.group_reserved(entry)

    def end_waiting_in(self, group_id: str) -> None:
        """What waits for a group ends with it."""
        suffix = f"_group_{group_id}"
        for actor in [each for each in self.gcs.actors.values() if any(name.endswith(suffix) for name in each.resources)]:
            actor.is_wanted = False
            if actor.worker is None:
                self.gcs.end_actor(actor, "its placement group was removed")
        for run in [each for each in self.runs.values() if any(name.endswith(suffix) for name in each.shape)]:
            run.retries = 0
            if run.worker is None:
                run.end("its placement group was removed")

    def end_running_in(self, entry: GroupEntry) -> None:
        """What runs in a group ends with it."""
        suffix = f"_group_{entry.group_id}"
        for worker in [each for raylet in self.raylets.values() for each in raylet.workers.values()]:
            if any(name.endswith(suffix) for name, _ in worker.held):
                self.kill(worker, "its placement group was removed")


def node_id_of(name: str) -> str:
    return f"{PREFIX}-{name}"


def short(node_id: str) -> str:
    return node_id.removeprefix(f"{PREFIX}-")
