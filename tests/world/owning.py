"""What a process keeps of the tasks that it has submitted: a line for each shape, and the workers that it was granted.

A worker that is done with a task gets the next of the same line without anybody being asked, for as long as its lease lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.world.raylet import Request, Units, to_floats

from remora.port.contract import ENDED, RUNNING, TASK, WAITING, Work

if TYPE_CHECKING:
    from tests.world.processes import Process, Worker
    from tests.world.script import Task
    from tests.world.submitting import Scope

    from remora.wire.classes import ClassSpec
    from remora.wire.rewrite import Rewritten

QUEUED, GRANTED, IN_LINE, STARTED, BLOCKED, SENT_ON, DONE, FAILED = (
    "queued",
    "granted",
    "in line",
    "running",
    "blocked",
    "sent on",
    "done",
    "failed",
)


class Run:
    """One task that was submitted. ``real`` is what the user asked for, ``shape`` that with its tokens."""

    def __init__(
        self,
        name: str,
        spec: Task,
        owner: Process,
        real: dict[str, float],
        shape: Units,
        *,
        cluster: str | None,
        class_id: str | None = None,
        node_class: ClassSpec | None = None,
        slot: str | None = None,
        wish: str | None = None,
        group: str = "",
    ) -> None:
        self.name = name
        self.spec = spec
        self.owner = owner
        self.job_id = owner.job_id
        self.real = real
        self.shape = shape
        self.cluster = cluster
        self.class_id = class_id
        self.node_class = node_class
        self.slot = slot
        self.wish = wish
        self.group = group
        self.scope: Scope | None = None
        self.rules: Rewritten | None = None  # of one with a lease
        self.retries = spec.retries
        self.state = QUEUED
        self.worker: Worker | None = None
        self.error = ""
        self.waits_since = owner.world.now
        self.in_line_since = 0.0
        self.key = (tuple(sorted(shape.items())), wish)
        self.when_over: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, FAILED)

    def end(self, error: str = "") -> None:
        if self.is_over:
            return
        self.state, self.error = (FAILED if error else DONE), error
        self.owner.world.checks.ended(self)
        waiting, self.when_over = self.when_over, []
        for each in waiting:
            each()

    def work(self) -> Work:
        state = ENDED if self.is_over else WAITING if self.state in (QUEUED, GRANTED) else RUNNING
        details = {QUEUED: "PENDING_NODE_ASSIGNMENT", DONE: "FINISHED", FAILED: "FAILED"}
        nodes = (self.worker.node_id,) if self.worker is not None else ()
        detail = details.get(self.state, "RUNNING")
        return Work(TASK, self.name, self.spec.name, self.job_id, state, detail, (to_floats(self.shape),), nodes)


class Owning:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines: dict[object, deque[Run]] = {}
        self._requests: set[Request] = set()
        self.runs: list[Run] = []

    @property
    def job_id(self) -> str:
        return self._process.job_id

    def submit(self, run: Run) -> None:
        self.runs.append(run)
        self._line_up(run)

    def _line_up(self, run: Run) -> None:
        run.state, run.worker, run.waits_since = QUEUED, None, self._process.world.now
        self._lines.setdefault(run.key, deque()).append(run)
        self._request(run)

    def _request(self, run: Run) -> None:
        home = self._process.node_id
        request = Request(self, run.name, run.shape, run.shape, home, run.wish, key=run.key)
        self._requests.add(request)
        self._process.world.send_request(request, home)

    # What raylets say

    def granted(self, request: Request, worker: Worker) -> None:
        self._requests.discard(request)
        if self._process.alive:
            self._next(request.key, worker)
        else:
            worker.release()

    def failed(self, request: Request) -> None:
        self._requests.discard(request)
        line = self._lines.get(request.key)
        while line and line[0].is_over:
            line.popleft()
        if line and self._process.alive:
            run = line.popleft()
            self._process.world.checks.unschedulable(run.name, run.scope, run.real, request)
            run.end("no node could hold it any more")

    def lost(self, request: Request) -> None:
        self._requests.discard(request)
        line = self._lines.get(request.key)
        while line and line[0].is_over:
            line.popleft()
        if line and self._process.alive:
            self._request(line[0])

    # What workers say

    def finished(self, run: Run, worker: Worker) -> None:
        """A worker is done with a task: it gets the next like it, while its lease lasts."""
        worker.run_now = None
        if self._process.alive and worker.alive and self._process.world.now < worker.leased_until:
            self._next(run.key, worker)
        else:
            worker.release()

    def worker_died(self, run: Run) -> None:
        """Heard a moment after the death."""
        if run.is_over:
            return
        if not self._process.alive:
            run.state = FAILED
        elif run.retries:
            run.retries -= 1
            self._line_up(run)
        else:
            run.end("its worker has died")

    def process_died(self) -> list[Run]:
        """Nobody waits for any of it any more. Return what still runs."""
        for request in self._requests:
            request.ended = True
        self._requests.clear()
        self._lines.clear()
        for run in self.runs:
            if run.worker is None and not run.is_over:
                run.state = FAILED
        return [run for run in self.runs if run.worker is not None and not run.is_over]

    def _next(self, key: object, worker: Worker) -> None:
        line = self._lines.get(key)
        while line:
            run = line.popleft()
            if not run.is_over:
                run.state, run.worker = GRANTED, worker
                self._process.world.begin_task(worker, run)
                return
        worker.release()
