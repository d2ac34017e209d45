"""GCS: what nodes reported, the tables of actors, jobs and workers, the store, and who is told of changes.

What it knows of a node is what the node told it last. An actor is placed by asking a raylet for a worker, like a task; it is
started again when its worker dies, as often as it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.world.groups import GroupTable
from tests.world.raylet import Raylet, Request, Shape, Units, to_floats

from remora.port.contract import ACTOR, ENDED, JOB, RUNNING, WAITING, WORKER, NodeView, Work

if TYPE_CHECKING:
    from tests.world.processes import Process, Worker
    from tests.world.script import Actor
    from tests.world.submitting import Scope
    from tests.world.world import World

    from remora.wire.classes import ClassSpec
    from remora.wire.rewrite import Rewritten

PENDING, ALIVE, RESTARTING, DEAD = "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"
_STATES = {ALIVE: RUNNING, DEAD: ENDED}


class ActorEntry:
    """One actor. ``resources`` it holds while it lives, ``placement`` must be free where it starts."""

    def __init__(
        self,
        actor_id: str,
        spec: Actor,
        job_id: str,
        owner: Process,
        resources: Units,
        placement: Units,
        labels: Mapping[str, str],
        *,
        cluster: str | None,
        wish: str | None,
        spread: bool,
    ) -> None:
        self.actor_id = actor_id
        self.spec = spec
        self.job_id = job_id
        self.owner = owner
        self.resources = resources
        self.placement = placement
        self.labels = dict(labels)
        self.cluster = cluster
        self.wish = wish
        self.spread = spread
        self.state = PENDING
        self.restarts = spec.max_restarts
        self.is_wanted = True  # until somebody kills it for good
        self.worker: Worker | None = None
        self.request: Request | None = None
        self.waits_since = owner.world.now
        self.asked_at = owner.world.now
        self.has_started = False  # its constructor has passed the guard
        self.scope: Scope | None = None
        self.real: dict[str, float] = {}
        self.rules: Rewritten | None = None
        self.node_class: ClassSpec | None = None
        self.death = ""

    @property
    def node_id(self) -> str | None:
        return self.worker.node_id if self.worker is not None else None

    def work(self, *, whole: bool = True) -> Work:
        """As it stands in the table; what is published of a change has neither its labels nor what it asks for."""
        nodes = (self.node_id,) if self.state == ALIVE and self.node_id is not None else ()
        shapes = (to_floats(self.placement or self.resources),) if whole else ({},)
        labels = self.labels if whole else {}
        state, detail = _STATES.get(self.state, WAITING), self.state
        restarts = self.spec.max_restarts - self.restarts
        return Work(
            ACTOR, self.actor_id, self.spec.name, self.job_id, state, detail, shapes, nodes, "", "tests", labels, restarts
        )


class Gcs:
    job_id = ""  # it asks for workers of any

    def __init__(self, world: World) -> None:
        self.world = world
        self.kv: dict[str, bytes] = {}
        self.views: dict[str, NodeView] = {}
        self.demands: dict[str, dict[Shape, int]] = {}
        self.actors: dict[str, ActorEntry] = {}
        self.jobs: dict[str, bool] = {}  # whether it runs
        self.ended_workers: set[str] = set()
        self.groups = GroupTable(world, self.views)

    # Nodes

    def reported(self, raylet: Raylet) -> None:
        self.views[raylet.node_id] = raylet.view()
        self.demands[raylet.node_id] = raylet.demands()

    def joined(self, raylet: Raylet) -> None:
        self.reported(raylet)
        self.groups.node_joined()
        self.world.feed(None)

    def left(self, raylet: Raylet) -> None:
        """It has found out that a node is dead."""
        self.views.pop(raylet.node_id, None)
        self.demands.pop(raylet.node_id, None)
        self.groups.node_left(raylet.node_id)
        self.world.feed(None)

    # Jobs and workers

    def job_began(self, job_id: str) -> None:
        self.jobs[job_id] = True

    def job_ended(self, job_id: str) -> None:
        if self.jobs.get(job_id):
            self.jobs[job_id] = False
            self.world.note("{} has ended", job_id)
            for entry in [entry for entry in self.actors.values() if entry.job_id == job_id and not entry.spec.detached]:
                self.end_actor(entry, "its job has ended")
            self.groups.job_ended(job_id)
            self.world.end_workers_of(job_id)
            self.world.feed(self.job(job_id))

    def job(self, job_id: str) -> Work:
        runs = self.jobs[job_id]
        return Work(JOB, job_id, "", job_id, RUNNING if runs else ENDED, "RUNNING" if runs else "DEAD", ())

    def worker_ended(self, worker: Worker) -> None:
        """A raylet says so before it gives away what the worker held."""
        self.ended_workers.add(worker.worker_id)
        self.world.feed(Work(WORKER, worker.worker_id, "", "", ENDED, "DEAD", (), (worker.node_id,)))

    # Actors

    def create_actor(self, entry: ActorEntry) -> None:
        self.actors[entry.actor_id] = entry
        self.world.note("GCS knows {}", entry.actor_id)
        self.world.feed(entry.work())
        if not entry.spec.detached and (not entry.owner.alive or not self.jobs.get(entry.job_id)):
            self.end_actor(entry, "its owner has died")
        else:
            self._schedule(entry)

    def _schedule(self, entry: ActorEntry) -> None:
        """Ask the raylet of its owner, or any."""
        entry.waits_since = self.world.now
        home = entry.owner.node_id
        if home not in self.world.raylets:
            alive = sorted(self.world.raylets)
            home = alive[int(self.world.chance.of(f"home {entry.actor_id}") * len(alive))]
        placement = entry.placement or entry.resources
        request = Request(self, entry.actor_id, placement, entry.resources, home, entry.wish, spread=entry.spread, key=entry)
        entry.request = request
        self.world.send_request(request, home)

    def granted(self, request: Request, worker: Worker) -> None:
        entry = request.key
        assert isinstance(entry, ActorEntry)
        if entry.request is not request or entry.state == DEAD:
            worker.release()
            return
        entry.request, entry.worker = None, worker
        worker.begin_actor(entry)

    def failed(self, request: Request) -> None:
        entry = request.key
        assert isinstance(entry, ActorEntry)
        if entry.request is request:
            self.world.checks.unschedulable(entry.actor_id, entry.scope, entry.real or {"CPU": 1.0}, request)
            self.end_actor(entry, "no node could hold it any more")

    def lost(self, request: Request) -> None:
        entry = request.key
        assert isinstance(entry, ActorEntry)
        if entry.request is request:
            self.world.checks.ended(entry)
            self.world.checks.restarts(entry.actor_id)
            self._schedule(entry)

    def actor_lives(self, entry: ActorEntry) -> None:
        """Its constructor has returned."""
        entry.state = ALIVE
        self.world.note("{} is alive on {}", entry.actor_id, entry.node_id)
        self.world.feed(entry.work(whole=False))

    def actor_failed(self, entry: ActorEntry) -> None:
        """Its worker is dead."""
        entry.worker, entry.has_started = None, False
        if entry.state == DEAD:
            return
        has_owner = entry.spec.detached or (entry.owner.alive and self.jobs.get(entry.job_id, False))
        if entry.is_wanted and entry.restarts and has_owner:
            entry.restarts -= 1
            entry.state = RESTARTING
            self.world.checks.ended(entry)
            self.world.checks.restarts(entry.actor_id)
            self.world.note("{} restarts", entry.actor_id)
            self.world.feed(entry.work(whole=False))
            self._schedule(entry)
        else:
            self.end_actor(entry, "its process has died")

    def end_actor(self, entry: ActorEntry, why: str) -> None:
        if entry.state == DEAD:
            return
        entry.state, entry.death, entry.is_wanted = DEAD, why, False
        self.world.note("{} is dead: {}", entry.actor_id, why)
        if entry.request is not None:
            entry.request.ended = True
            entry.request = None
            for raylet in self.world.raylets.values():
                raylet.forget_ended()
        if entry.worker is not None:
            self.world.kill(entry.worker, "its actor has ended")
            entry.worker = None
        self.world.feed(entry.work(whole=False))
        self.world.checks.ended(entry)

    def restart_actor(self, actor_id: str) -> None:
        """End its process as a failure would."""
        entry = self.actors.get(actor_id)
        if entry is not None and entry.worker is not None:
            self.world.kill(entry.worker, "it was told to restart")

    def owner_died(self, process: Process) -> None:
        for entry in [entry for entry in self.actors.values() if entry.owner is process and not entry.spec.detached]:
            self.end_actor(entry, "its owner has died")
