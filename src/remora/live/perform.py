"""Perform the steps of protocols on a live Ray. Nothing is decided here.

Three ways to go through a protocol, with the same bodies of steps: ``perform`` in a thread that may block, ``perform_async`` on
an event loop, and ``Several`` many at once in one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, TypeVar

from remora.live.link import link
from remora.protocol import steps
from remora.protocol.steps import Step, Steps
from remora.wire.calls import Call

T = TypeVar("T")
_log = logging.getLogger("remora")


class Until:
    """An answer that may take a while: looked for every so often, and at the end whatever ``at_last`` says."""

    def __init__(self, look: Callable[[], Any], seconds: float, at_last: Any, every: float = 0.005) -> None:
        self.look = look
        self.at_last = at_last
        self.every = every
        self.end = time.monotonic() + seconds

    def found(self) -> tuple[bool, Any]:
        """Return whether there is an answer, and the answer."""
        answer = self.look()
        if answer is not None:
            return True, answer
        return time.monotonic() >= self.end, self.at_last

    def rest(self) -> float:
        """Return how long to wait before the next look."""
        return max(0.0, min(self.every, self.end - time.monotonic()))


class Body:
    """How steps are done in a process: by kind. ``given`` are those that only its caller can do."""

    def __init__(self, given: Mapping[type, Callable[[Any], Any]] | None = None) -> None:
        self._do: dict[type, Callable[[Any], Any]] = {
            steps.Ask: lambda step: self.ask(step.call),
            steps.Tell: lambda step: self.tell(step.call) if step.urgent else link.tell_soon(step.call),
            steps.UntilHeard: lambda step: link.until_heard(step.messages),
            steps.StartRenewing: self._start_renewing,
            steps.StopRenewing: self._stop_renewing,
            steps.Now: lambda _: time.monotonic(),
            steps.Pause: lambda step: Until(lambda: None, step.seconds, None, step.seconds),
            steps.Say: lambda step: _log.warning(step.text),
            **(given or {}),
        }
        self._renewing: _Renewing | None = None
        self.closing = contextlib.ExitStack()
        """What has to be undone however the protocol ends."""

    def do(self, step: Step) -> Any:
        """Return the answer to a step, or an ``Until``; raise what it raises."""
        return self._do[type(step)](step)

    def ask(self, call: Call) -> Any:
        return link.ask(call)

    def tell(self, call: Call) -> Any:
        return link.tell(call)

    def _start_renewing(self, step: steps.StartRenewing) -> None:
        self._renewing = _Renewing(step.call, step.seconds)
        self.closing.callback(self._renewing.stop)

    def _stop_renewing(self, _: steps.StopRenewing) -> None:
        if self._renewing is not None:
            self._renewing.stop()
            link.until_heard(self._renewing.sent)


def perform(protocol: Steps[T], body: Body, *, close: bool = True) -> T:
    """Return what came of it. Whatever ends this thread's work, an interrupt too, is told to the protocol, which tidies up. The
    body is closed with it, unless another protocol goes on with that."""
    answer: Any = None
    error: BaseException | None = None
    with body.closing if close else contextlib.nullcontext():
        while True:
            try:
                step = protocol.send(answer) if error is None else protocol.throw(error)
                answer, error = None, None
                answer = body.do(step)
                if isinstance(answer, Until):
                    answer = _blocking(answer)
            except BaseException as raised:  # noqa: BLE001, PERF203 - it is the protocol's to decide
                if getgeneratorstate(protocol) == GEN_CLOSED:  # it has ended by that
                    return _value(raised, protocol)
                error = raised  # an interrupt may come anywhere here


def _blocking(until: Until) -> Any:
    while True:
        is_over, answer = until.found()
        if is_over:
            return answer
        time.sleep(until.rest())


async def perform_async(protocol: Steps[T], body: Body) -> T:
    """The same on an event loop, which goes on meanwhile. A task that is cancelled is told to the protocol too."""
    answer: Any = None
    error: BaseException | None = None
    with body.closing:
        while True:
            try:
                step = protocol.send(answer) if error is None else protocol.throw(error)
                answer, error = None, None
                if isinstance(step, steps.Ask):
                    # It cannot be stopped once it has begun, but nobody has to wait for it.
                    answer = await asyncio.to_thread(body.do, step)
                else:
                    answer = body.do(step)
                while isinstance(answer, Until):
                    is_over, found = answer.found()
                    if is_over:
                        answer = found
                    else:
                        await asyncio.sleep(answer.rest())
            except BaseException as raised:  # noqa: BLE001, PERF203 - it is the protocol's to decide
                if getgeneratorstate(protocol) == GEN_CLOSED:
                    return _value(raised, protocol)
                error = raised


def _value(end: BaseException, _: Steps[T]) -> T:
    """Return what a protocol has returned, or raise what it has raised."""
    if isinstance(end, StopIteration):
        value: T = end.value
        return value
    raise end


class Several:
    """Many protocols that wait most of the time, in one thread, which there is while there are any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._due: list[tuple[float, int, _Running]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, protocol: Steps[None], body: Body) -> None:
        with self._lock:
            heapq.heappush(self._due, (time.monotonic(), next(self._numbers), _Running(protocol, body)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._lock.notify()

    def stop(self) -> None:
        """Leave all of them where they are: whoever comes after goes on."""
        with self._lock:
            self._stopped = True
            self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._stopped and self._due and self._due[0][0] > time.monotonic():
                    self._lock.wait(self._due[0][0] - time.monotonic())
                if self._stopped or not self._due:
                    self._thread = None
                    return
                _, _, running = heapq.heappop(self._due)
            again_in = running.go()
            if again_in is not None:
                with self._lock:
                    heapq.heappush(self._due, (time.monotonic() + again_in, next(self._numbers), running))


class _Running:
    """One of several, and what it waits for."""

    def __init__(self, protocol: Steps[None], body: Body) -> None:
        self._protocol = protocol
        self._body = body
        self._until: Until | None = None

    def go(self) -> float | None:
        """Go on as far as it can. Return after how many seconds to try again; None when it is over."""
        answer: Any = None
        error: BaseException | None = None
        if self._until is not None:
            try:
                is_over, answer = self._until.found()
            except Exception as raised:  # noqa: BLE001 - it is the protocol's to decide
                is_over, error = True, raised
            if not is_over:
                return self._until.rest()
            self._until = None
        while True:
            try:
                step = self._protocol.send(answer) if error is None else self._protocol.throw(error)
            except StopIteration:
                break
            except Exception:  # noqa: BLE001 - the others go on
                _log.exception("a conversation ended")
                break
            answer, error = None, None
            try:
                answer = self._body.do(step)
            except Exception as raised:  # noqa: BLE001 - it is the protocol's to decide
                error = raised
            if isinstance(answer, Until):
                self._until = answer
                return answer.rest()
        self._body.closing.close()
        return None


class _Renewing:
    """A message that is sent now, and again and again from beside."""

    def __init__(self, call: Call, seconds: float) -> None:
        self.sent: list[Any] = [link.tell(call)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, args=(call, seconds), name="remora-renewing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _say(self, call: Call, seconds: float) -> None:
        while not self._over.wait(seconds):
            self.sent = [*self.sent[-2:], link.tell(call)]  # they are heard in order: the last are enough
