"""Processes: drivers and workers, whose threads run the real protocols step by step. One may die between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from tests.world.owning import Owning, Run
from tests.world.raylet import Raylet, Request, Shape

from remora.errors import RemoraError

if TYPE_CHECKING:
    from tests.world.clients import Submitter
    from tests.world.gcs import ActorEntry
    from tests.world.world import World

LATER = object()
"""What a step is answered with whose answer comes later."""

Then = Callable[[Any, Exception | None], None]
Make = Callable[["Thread"], Generator[Any, Any, Any]]


class UserError(Exception):
    """What a user's ``ray.get`` raises: the task failed, or the time was over."""


class Thread:
    """One protocol, or a user's function, on its way through a process. ``blocks``: while it waits, Ray gives the CPU of its
    process to others."""

    __slots__ = ("blocks", "generator", "over", "process", "renewed", "renewing", "resume_event", "targets", "then", "world")

    def __init__(self, process: Process, make: Make, then: Then, *, blocks: bool) -> None:
        self.process = process
        self.world = process.world
        self.generator = make(self)
        self.then = then
        self.blocks = blocks
        self.over = False
        self.targets: list[Run] = []  # what the user waits for
        self.renewing: Any = None
        self.renewed: list[Any] = []
        self.resume_event: Any = None

    def go(self, value: Any = None, error: Exception | None = None) -> None:
        """Answer the step that it waits for, and let it take the next ones until it has to wait again."""
        process = self.process
        while not self.over and process.alive:
            if process.stopped_until > self.world.now:
                self.world.after(process.stopped_until - self.world.now, self.go, value, error)
                return
            try:
                step = self.generator.throw(error) if error is not None else self.generator.send(value)
            except StopIteration as stop:
                self._end(stop.value, None)
                return
            except (UserError, RemoraError) as failure:
                self._end(None, failure)
                return
            error = None
            process.steps += 1
            process.may_stop()
            if process.dies_at is not None and process.steps >= process.dies_at:
                self.world.kill(process, "between two steps")
                return
            try:
                value = process.submitter.perform(self, step)
            except (UserError, RemoraError) as failure:
                value, error = None, failure
            if value is LATER:
                return

    def later(self, seconds: float, value: Any = None) -> None:
        self.world.after(seconds, self.go, value)

    def block(self) -> None:
        if self.blocks:
            self.process.block()

    def unblock(self) -> None:
        if self.blocks:
            self.process.unblock()

    def _end(self, value: Any, error: Exception | None) -> None:
        self.over = True
        self.process.threads.discard(self)
        self.then(value, error)


class Process:
    """``layer`` is what Remora keeps in it; ``owning`` what Ray keeps of what it has submitted."""

    def __init__(self, world: World, worker_id: str, node_id: str, job_id: str) -> None:
        self.world = world
        self.worker_id = worker_id
        self.node_id = node_id
        self.job_id = job_id
        self.alive = True
        self.steps = 0
        self.dies_at: int | None = None
        self.stops_at: tuple[int, float] | None = None  # after so many steps, for so long
        self.stopped_until = 0.0
        self.threads: set[Thread] = set()
        self.owning = Owning(self)
        self.submitter: Submitter = world.make_submitter(self)

    def run(self, make: Make, then: Then | None = None, *, blocks: bool = False) -> Thread:
        """Begin what ``make`` makes for a thread; ``then`` is told its outcome."""
        thread = Thread(self, make, then or _nothing, blocks=blocks)
        self.threads.add(thread)
        thread.go()
        return thread

    def block(self) -> None:
        """Ray gives its CPU to others."""

    def unblock(self) -> None:
        """It takes its CPU back."""

    def may_stop(self) -> None:
        """Stand still from the next step on, if it is time for that."""
        if self.stops_at is not None and self.steps >= self.stops_at[0]:
            self.stopped_until = self.world.now + self.stops_at[1]
            self.stops_at = None
            self.world.note("{} stands still", self.worker_id)

    def die(self) -> None:
        self.alive = False
        for thread in self.threads:
            thread.over = True
            self.world.timeline.cancel(thread.renewing)
        self.threads.clear()


class Driver(Process):
    """The program of a job, and the placement groups that it has asked for."""

    def __init__(self, world: World, worker_id: str, node_id: str, job_id: str) -> None:
        super().__init__(world, worker_id, node_id, job_id)
        self.groups: set[str] = set()


class Worker(Process):
    """A worker process. While it is somebody's it holds what it was granted for, less the CPU that it lends while it waits."""

    def __init__(self, world: World, worker_id: str, raylet: Raylet, job_id: str) -> None:
        super().__init__(world, worker_id, raylet.node_id, job_id)
        self.raylet = raylet
        self.held: Shape = ()
        self.lent_cpu = 0
        self.leased_until = 0.0
        self.run_now: Run | None = None
        self.actor: ActorEntry | None = None

    def lease(self, request: Request) -> None:
        self.held = request.held
        self.raylet.workers[self.worker_id] = self
        self.leased_until = self.world.now + self.world.chance.between(f"lease {self.worker_id}", 0.3, 0.7)

    def release(self) -> None:
        self.raylet.released(self)

    def begin_actor(self, entry: ActorEntry) -> None:
        self.actor = entry
        self.world.begin_actor(self, entry)

    def block(self) -> None:
        self.raylet.block(self)

    def unblock(self) -> None:
        self.raylet.unblock(self)


def _nothing(value: Any, error: Exception | None) -> None:
    del value, error
