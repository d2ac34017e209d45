"""The one way to the controller: look it up, ask it, tell it something; its errors as ours, and none of Ray's.

A controller that is being restarted is waited for, with a bound; then, or where there is none, it is a ``ControllerAwayError``
that says what to do. Every call that changes something may arrive twice (``wire.calls``), so it is simply sent again. Workers
import this with the first thing that they say, so it needs little.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import ray
from ray.actor import _ActorClassMethodMetadata
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from remora.errors import ControllerAwayError, ControllerError
from remora.live.own_waits import quiet
from remora.wire.calls import FREQUENT, MAKING, PATIENT, RETURNING, USUAL, Call, Several, encode_call, heard_as, read_answer
from remora.wire.timing import AWAY_SECONDS, HANDLE_SECONDS

CONTROLLER = "remora-controller"
NAMESPACE = "remora"
CONTROLLER_CLASS = "remora.live.host.controller_actor", "ControllerActor"

_METHODS = {USUAL: "ask", FREQUENT: "ask_frequent", PATIENT: "ask_patient", RETURNING: "ask_returning", MAKING: "ask_making"}
_AGAIN_SECONDS = 0.05
_SOON_SECONDS = 0.002
_BUSY_SECONDS = 10 * AWAY_SECONDS  # one that lives and does not answer: it may have much to do
_COMES = ("ALIVE", "DEPENDENCIES_UNREADY", "PENDING_CREATION")


class Link:
    """The controller of the cluster that this process is connected to, whichever that is."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._of: object = None  # the connection that the handle belongs to
        self._looked_up_at = -inf
        self._outbox = _Outbox(self.tell)
        self._sender = _Sender()

    def ask(self, call: Call) -> Any:
        """Return the controller's answer; raise its error, or ``ControllerAwayError``."""
        told = self._outbox.take() if heard_as(call) == USUAL else []
        if told:
            call = Several([encode_call(each) for each in told], encode_call(call))
        return read_answer(self._get(_METHODS[heard_as(call)], encode_call(call)))

    def tell(self, call: Call) -> Any:
        """Send a message and wait for nothing. Return it, for ``until_heard``; None where there is nobody to hear it."""
        handle = self.find()
        if handle is None:
            return None
        with contextlib.suppress(Exception):  # whatever it is, for us it is a message that was lost
            return self._send(getattr(handle, _METHODS[heard_as(call)]), encode_call(call))
        return None

    def tell_soon(self, call: Call) -> None:
        """Send a message with the next question, or by itself in a moment: one call of an actor costs more than all that
        most messages say."""
        self._outbox.add(call)

    def until_heard(self, messages: Sequence[Any], seconds: float = AWAY_SECONDS) -> None:
        """Return when these have been heard, or never will be; or when that takes longer, as where the controller does not come
        back."""
        sent = [message for message in messages if message is not None]
        if sent and ray.is_initialized():
            with quiet(), contextlib.suppress(RayError):
                ray.wait(sent, num_returns=len(sent), timeout=seconds)

    def find(self, *, anew: bool = False) -> Any:
        """Return the handle of the controller, or None. It is looked up again once in a while: it may have been shut down and
        started anew, and what is sent to the old one is lost without a word."""
        if not ray.is_initialized():
            return None  # to look it up would connect this process
        now, connection = time.monotonic(), _connection()
        if anew or self._of != connection or now - self._looked_up_at > HANDLE_SECONDS:
            self._handle, self._of, self._looked_up_at = _look_up(), connection, now
        return self._handle

    def _send(self, method: Any, data: bytes) -> Any:
        """Return the reference to the answer. In a worker another thread sends it: what a thread that runs a task submits is
        one of the children of that task, and ``ray.cancel`` ends those with it."""
        is_task = ray._private.worker.global_worker.mode == ray.WORKER_MODE
        return self._sender.send(method, data) if is_task else method.remote(data)

    def _get(self, method: str, data: bytes) -> bytes:
        began = time.monotonic()
        dead: list[str] = []
        while True:
            handle = self.find(anew=bool(dead))
            if handle is None or _id(handle) in dead:
                raise _away(began)
            try:
                with quiet():
                    return _wait(handle, self._send(getattr(handle, method), data))
            except ActorUnavailableError:
                if time.monotonic() - began > AWAY_SECONDS:
                    raise _away(began) from None
                time.sleep(_AGAIN_SECONDS)
            except RayActorError:
                dead.append(_id(handle))  # unless it was shut down and started anew
            except RayTaskError as error:
                raise ControllerError(f"the controller failed over this call: {error.cause!r}") from None
            except RayError as error:
                raise ControllerError(f"the controller could not be asked: {error}") from None


class _Sender:
    """A thread of its own that sends what it is given, in its order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Any, bytes, queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, method: Any, data: bytes) -> Any:
        sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # as in a process that was forked
                self._thread = threading.Thread(target=self._run, name="remora-sender", daemon=True)
                self._thread.start()
            self._queue.put((method, data, sent))
        found = sent.get()
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self) -> None:
        while True:
            method, data, sent = self._queue.get()
            try:
                sent.put(method.remote(data))
            except Exception as error:  # noqa: BLE001 - it is whoever asked who hears of it
                sent.put(error)


class _Outbox:
    """Messages that wait for a question to go with. What has waited long enough is sent by a thread of its own."""

    def __init__(self, send: Callable[[Call], Any]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._any = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)
            if self._thread is None or not self._thread.is_alive():  # as in a process that was forked
                self._thread = threading.Thread(target=self._run, name="remora-outbox", daemon=True)
                self._thread.start()
        self._any.set()

    def take(self) -> list[Call]:
        """Return what waits, in its order; it is the caller's to send."""
        if not self._calls:
            return []
        with self._lock:
            calls, self._calls = self._calls, []
        return calls

    def _run(self) -> None:
        while self._any.wait():
            self._any.clear()
            time.sleep(_SOON_SECONDS)
            for call in self.take():
                self._send(call)


def _wait(handle: Any, reference: Any) -> bytes:
    """Return the answer; one that is there and has much to do, or is being started for the first time on a machine that has, is
    waited for longer than one that is not."""
    began = time.monotonic()
    while True:
        try:
            answer: bytes = ray.get(reference, timeout=AWAY_SECONDS)
        except GetTimeoutError:  # noqa: PERF203 - it is a loop because of this
            if time.monotonic() - began > _BUSY_SECONDS or _state(handle) not in _COMES:
                raise _away(began) from None
        else:
            return answer


def _state(handle: Any) -> str:
    from remora.live.adapter.ray_port import RayPort

    return next((found.detail for found in RayPort().find(_id(handle))), "")


def _look_up() -> Any:
    try:
        handle = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
    except (ValueError, RayError):
        return None
    forget_class()
    return handle


def forget_class() -> None:
    """Take the controller's class out of what Ray keeps of the classes of this process's actors: it is none of the user's."""
    known = _ActorClassMethodMetadata._cache
    for each in [each for each in list(known) if (each.module_name, each.class_name) == CONTROLLER_CLASS]:
        known.pop(each, None)


def _connection() -> object:
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _id(handle: Any) -> str:
    return str(handle._actor_id.hex())


def _away(began: float) -> ControllerAwayError:
    if not ray.is_initialized():
        return ControllerAwayError("this process is not connected to Ray: call remora.init() first")
    waited = time.monotonic() - began
    if waited < AWAY_SECONDS:
        return ControllerAwayError(
            "there is no controller in this cluster: remora.init(), remora.attach() or `remora run` start one"
        )
    return ControllerAwayError(
        f"the controller has not answered for {waited:.0f} s: it is being restarted or its node is gone; `remora status` says "
        "whether it is back, and remora.shutdown_controller() followed by remora.attach() starts another"
    )


link = Link()
"""That of this process."""
