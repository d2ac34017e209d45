"""What Remora keeps in a process, and how the steps of its protocols are performed here: nothing is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.world.processes import LATER, Process, Thread, UserError

from remora.protocol import steps
from remora.wire.calls import EnsureClass, Hint, WantShares
from remora.wire.classes import IDLE_SECONDS, ClassSpec
from remora.wire.fences import FENCE_SECONDS, fence_key, read_fence
from remora.wire.timing import SHARES_SECONDS

if TYPE_CHECKING:
    from tests.world.world import World

_HINT_SECONDS = 0.03


class Submitter:
    """``create`` is what ``CreateWithLease`` does in this process: it is told the slot and the node."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._mentioned: dict[str, float] = {}
        self._announced: dict[tuple[str, tuple[tuple[str, float], ...]], float] = {}
        self._hints: dict[tuple[str, tuple[tuple[str, float], ...]], tuple[ClassSpec, int]] = {}
        self.creating: dict[Thread, Callable[[str, str | None], Any]] = {}

    # Messages that go one way

    def mention(self, spec: ClassSpec) -> None:
        """This class is used here, as the controller is told once in a while."""
        if self._world.now - self._mentioned.get(spec.class_id, -1e9) > IDLE_SECONDS / 3:
            self._mentioned[spec.class_id] = self._world.now
            self._world.host.send(self._process, EnsureClass(spec.encode()))

    def is_new(self, spec: ClassSpec, resources: dict[str, float]) -> bool:
        """Return whether nothing like this was submitted here for a while: then the controller has to hear of it before."""
        key = (spec.class_id, tuple(sorted(resources.items())))
        if self._world.now < self._announced.get(key, -1e9) + SHARES_SECONDS:
            return False
        self._announced[key] = self._world.now
        return True

    def hint(self, spec: ClassSpec, resources: dict[str, float]) -> None:
        """One more of this is on its way in a virtual cluster."""
        key = (spec.class_id, tuple(sorted(resources.items())))
        if not self._hints:
            self._world.after(_HINT_SECONDS, self._send_hints)
        self._hints[key] = spec, self._hints.get(key, (spec, 0))[1] + 1

    def _send_hints(self) -> None:
        hints, self._hints = self._hints, {}
        if self._process.alive:
            told = [Hint(spec.encode(), dict(shape), count) for (_, shape), (spec, count) in hints.items()]
            self._world.host.send(self._process, WantShares(told))

    # Steps

    def perform(self, thread: Thread, step: Any) -> Any:
        return _PERFORM[type(step)](self, thread, step)

    def _ask(self, thread: Thread, step: steps.Ask) -> Any:
        def answered(value: Any, error: Exception | None) -> None:
            if not thread.over:
                thread.unblock()
                thread.go(value, error)

        thread.block()
        self._world.host.send(self._process, step.call, answered)
        return LATER

    def _tell(self, _: Thread, step: steps.Tell) -> Any:
        return self._world.host.send(self._process, step.call)

    def _until_heard(self, thread: Thread, step: steps.UntilHeard) -> Any:
        return self._wait_for_messages(thread, step.messages)

    def _start_renewing(self, thread: Thread, step: steps.StartRenewing) -> Any:
        def send() -> None:
            stopped = self._process.stopped_until - self._world.now
            if not thread.over and self._process.alive:
                if stopped <= 0:
                    thread.renewed.append(self._world.host.send(self._process, step.call))
                thread.renewing = self._world.after(max(step.seconds, stopped), send)

        thread.renewed = []
        send()
        return None

    def _stop_renewing(self, thread: Thread, _: steps.StopRenewing) -> Any:
        self._world.timeline.cancel(thread.renewing)
        thread.renewing = None
        return self._wait_for_messages(thread, thread.renewed)

    def _wait_for_messages(self, thread: Thread, messages: Any) -> Any:
        unheard = {message for message in messages if not message.heard}
        if not unheard:
            return None

        def heard(message: Any) -> None:
            unheard.discard(message)
            if not unheard and not thread.over:
                thread.unblock()
                thread.go()

        thread.block()
        for message in list(unheard):
            message.when_heard.append(lambda message=message: heard(message))
        return LATER

    def _now(self, _: Thread, __: steps.Now) -> Any:
        return self._world.now

    def _pause(self, thread: Thread, step: steps.Pause) -> Any:
        thread.later(step.seconds)
        return LATER

    def _say(self, _: Thread, step: steps.Say) -> Any:
        self._world.note("{} says: {}", self._process.worker_id, step.text)

    def _read_fence(self, thread: Thread, _: steps.ReadFence) -> Any:
        """Shared by the workers of a node, and trusted by all of them for as long as it may be."""
        node_id = self._process.node_id
        read_at, fence = self._world.fences.get(node_id, (-1e9, None))
        if fence is not None and self._world.now - read_at < FENCE_SECONDS:
            return fence
        fence = read_fence(self._world.gcs.kv.get(fence_key(node_id)))
        self._world.fences[node_id] = (self._world.now, fence)
        thread.later(self._world.chance.between(f"fence {self._process.worker_id}", 0.0005, 0.003), fence)
        return LATER

    def _reread_fence(self, _: Thread, __: steps.RereadFence) -> Any:
        self._world.fences.pop(self._process.node_id, None)

    def _mark_idle(self, thread: Thread, step: steps.MarkIdle) -> Any:
        self._world.markers.setdefault(self._process.node_id, {})[step.worker_id] = self._process
        thread.later(0.0002)
        return LATER

    def _unmark_idle(self, thread: Thread, step: steps.UnmarkIdle) -> Any:
        self._world.markers.get(self._process.node_id, {}).pop(step.worker_id, None)
        thread.later(0.0002)
        return LATER

    def _find_orphans(self, _: Thread, __: steps.FindOrphans) -> Any:
        found = self._world.markers.get(self._process.node_id, {})
        return tuple(worker_id for worker_id, process in found.items() if not process.alive)

    def _forget_orphans(self, _: Thread, step: steps.ForgetOrphans) -> Any:
        for worker_id in step.worker_ids:
            self._world.markers.get(self._process.node_id, {}).pop(worker_id, None)

    def _wait_for_objects(self, thread: Thread, step: steps.WaitForObjects) -> Any:
        """Wait for the tasks that the thread's user waits for; raise when one of them has failed."""
        waiting = [run for run in thread.targets if not run.is_over]
        if not waiting:
            if any(run.error for run in thread.targets):
                raise UserError("a task that it waited for has failed")
            return True
        ticket = object()
        thread.resume_event = ticket

        def wake(value: bool) -> None:
            if thread.resume_event is ticket and not thread.over:
                if value and any(not run.is_over for run in thread.targets):
                    return
                thread.resume_event = None
                thread.unblock()
                failed = value and any(run.error for run in thread.targets)
                thread.go(value, UserError("a task that it waited for has failed") if failed else None)

        thread.block()
        for run in waiting:
            run.when_over.append(lambda: self._world.after(0.001, wake, True) and None)
        if step.seconds < 1e6:
            self._world.after(max(step.seconds, 0.0), wake, False)
        return LATER

    def _create_with_lease(self, thread: Thread, step: steps.CreateWithLease) -> Any:
        return self.creating[thread](step.slot, step.node_id)

    def _tell_when_done(self, thread: Thread, step: steps.TellWhenDone) -> Any:
        run = thread.targets[-1]

        def tell() -> None:
            if self._process.alive:
                self._world.host.send(self._process, step.call)

        if run.is_over:
            tell()
        else:
            run.when_over.append(tell)


_PERFORM: dict[type, Callable[..., Any]] = {
    steps.Ask: Submitter._ask,
    steps.Tell: Submitter._tell,
    steps.UntilHeard: Submitter._until_heard,
    steps.StartRenewing: Submitter._start_renewing,
    steps.StopRenewing: Submitter._stop_renewing,
    steps.Now: Submitter._now,
    steps.Pause: Submitter._pause,
    steps.Say: Submitter._say,
    steps.ReadFence: Submitter._read_fence,
    steps.RereadFence: Submitter._reread_fence,
    steps.MarkIdle: Submitter._mark_idle,
    steps.UnmarkIdle: Submitter._unmark_idle,
    steps.FindOrphans: Submitter._find_orphans,
    steps.ForgetOrphans: Submitter._forget_orphans,
    steps.WaitForObjects: Submitter._wait_for_objects,
    steps.CreateWithLease: Submitter._create_with_lease,
    steps.TellWhenDone: Submitter._tell_when_done,
}
