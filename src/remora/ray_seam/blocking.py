"""A worker that waits for others gives its share of a virtual cluster back for as long, as Ray gives its CPU back.

Waits that end within a moment are not told. While a longer one lasts it is told again and again: then a controller that was
restarted knows of it, and one whose worker has died forgets it. Before the worker goes on it asks for its share again. Where
others use that now, it waits until every worker of the cluster knows that nothing new may start, and then goes on beside them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from remora.ray_seam.pledges import pledges
from remora.wire.fences import RENEW_SECONDS
from remora.wire.tokens import cluster_of_class, share_of_token

_MOMENT_SECONDS = 0.01

Who = tuple[str, str, str, dict[str, float]]
"""A worker, its virtual cluster, its node, and what it holds of the share there."""

NOBODY = "nobody"

_said = threading.local()


@contextlib.contextmanager
def said_already() -> Iterator[None]:
    """In this thread the controller knows that we wait."""
    _said.already = True
    try:
        yield
    finally:
        _said.already = False


def around_get(stock: Any, controller: Callable[[], Any]) -> Any:
    """``Worker.get_objects`` that says how long it waits."""

    @functools.wraps(stock)
    def get_objects(worker: Any, object_refs: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        held = _held(worker)
        if not held or timeout == 0:
            return stock(worker, object_refs, timeout, **kwargs)
        until = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        waiting = _Waiting(worker, held, controller)
        try:
            while True:
                part = waiting.next_seconds(until)
                try:
                    return stock(worker, object_refs, part, **kwargs)
                except GetTimeoutError:
                    if until is not None and time.monotonic() >= until:
                        raise
                    waiting.tell()
        finally:
            waiting.end()

    return get_objects


def around_wait(stock: Any, controller: Callable[[], Any]) -> Any:
    """``ray.wait`` that says how long it waits."""

    @functools.wraps(stock)
    def wait(ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True) -> Any:
        worker = ray._private.worker.global_worker
        held = _held(worker)
        if not held or timeout == 0:
            return stock(ray_waitables, num_returns=num_returns, timeout=timeout, fetch_local=fetch_local)
        until = None if timeout is None else time.monotonic() + timeout
        waiting = _Waiting(worker, held, controller)
        try:
            while True:
                part = waiting.next_seconds(until)
                ready, rest = stock(ray_waitables, num_returns=num_returns, timeout=part, fetch_local=fetch_local)
                if len(ready) >= num_returns or (until is not None and time.monotonic() >= until):
                    return ready, rest
                waiting.tell()
        finally:
            waiting.end()

    return wait


class _Waiting:
    def __init__(self, worker: Any, held: tuple[str, dict[str, float]], controller: Callable[[], Any]) -> None:
        self._worker_id = worker.worker_id.hex()
        self._node_id = ray.get_runtime_context().get_node_id()
        self._held = held
        self._controller = controller
        self._told = Told()
        self._pledge = contextlib.ExitStack()

    def next_seconds(self, until: float | None) -> float:
        part = RENEW_SECONDS if self._told else _MOMENT_SECONDS
        return part if until is None else max(min(part, until - time.monotonic()), 0)

    def tell(self) -> None:
        if not self._told:
            self._pledge.enter_context(pledges().given(self._worker_id))
        self._told.note(self._controller().wait_in.remote(*self._who()))

    def end(self) -> None:
        if not self._told:
            return
        with self._pledge, said_already():
            self._told.settle()
            come_back(self._controller(), self._who())

    def _who(self) -> Who:
        cluster_id, amounts = self._held
        return self._worker_id, cluster_id, self._node_id, amounts


class Told:
    """Messages to the controller that may be under way; true once there was any."""

    def __init__(self) -> None:
        self._any = False
        self._under_way: list[Any] = []

    def __bool__(self) -> bool:
        return self._any

    def note(self, message: Any) -> None:
        self._any = True
        if self._under_way:
            _, self._under_way = ray.wait(self._under_way, num_returns=len(self._under_way), timeout=0)
        self._under_way.append(message)

    def settle(self) -> None:
        """Returns when all have been heard, or never will be: a controller that was restarted might hear one after what
        follows."""
        ray.wait(self._under_way, num_returns=len(self._under_way))


def come_back(controller: Any, who: Who) -> None:
    """Returns when this process may use its share again."""
    insist(lambda again: controller.come_back.remote(*who, again))


def insist(ask: Callable[[bool], Any]) -> Any:
    """Ask the controller until it answers."""
    answer = answer_of(lambda: ask(False))
    while answer is None:
        answer = answer_of(lambda: ask(True))
    return answer


def answer_of(ask: Callable[[], Any]) -> Any:
    """What the controller says; ``NOBODY`` when there is none any more, and nothing to ask for."""
    while True:
        try:
            return ray.get(ask())
        except ActorUnavailableError:  # noqa: PERF203 - it is being restarted
            time.sleep(_MOMENT_SECONDS)
        except RayActorError:
            return NOBODY


def _held(worker: Any) -> tuple[str, dict[str, float]] | None:
    """The share of CPUs that this process holds, where Ray gives the CPUs back while it waits: in the main thread of a task,
    and not in an actor, which keeps what it has."""
    if worker.mode != ray.WORKER_MODE or getattr(_said, "already", False):
        return None
    if not worker.actor_id.is_nil() or threading.current_thread() is not threading.main_thread():
        return None
    return held_share(worker)


def held_share(worker: Any, *, cpus_only: bool = True) -> tuple[str, dict[str, float]] | None:
    """The virtual cluster whose share this process holds, and how much."""
    found: dict[str, float] = {}
    cluster_id = ""
    for name, instances in worker.core_worker.resource_ids().items():
        owner = share_of_token(name)
        if owner is not None and cluster_of_class(owner[0]) is None and (owner[1] == "CPU" or not cpus_only):
            cluster_id = owner[0]
            found[owner[1]] = sum(amount for _, amount in instances)
    return (cluster_id, found) if found else None
