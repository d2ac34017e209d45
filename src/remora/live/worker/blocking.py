"""``ray.get`` and ``ray.wait`` in a task of a virtual cluster: while it waits its share is lent (``protocol.lending``)."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError

from remora.live.own_waits import is_quiet
from remora.wire.tokens import cluster_of_class, share_of_token

if TYPE_CHECKING:
    from remora.live.perform import Body
    from remora.wire.calls import Who


def around_get(stock: Any) -> Any:
    """``Worker.get_objects`` that lends the share of its worker."""

    @functools.wraps(stock)
    def get_objects(worker: Any, object_refs: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        held = _held(worker)
        if not held or timeout == 0:
            return stock(worker, object_refs, timeout, **kwargs)
        got: list[Any] = []

        def wait(seconds: float) -> bool:
            try:
                got[:] = [stock(worker, object_refs, seconds, **kwargs)]
            except GetTimeoutError as error:
                got[:] = [error]
                return False
            return True

        is_there = _lend(worker, held, None if timeout is None or timeout < 0 else timeout, wait)
        if not is_there:
            raise got[0]
        return got[0]

    return get_objects


def around_wait(stock: Any) -> Any:
    """``ray.wait`` that lends the share of its worker."""

    @functools.wraps(stock)
    def wait(ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True) -> Any:
        worker = ray._private.worker.global_worker
        held = _held(worker)
        if not held or timeout == 0:
            return stock(ray_waitables, num_returns=num_returns, timeout=timeout, fetch_local=fetch_local)
        got: list[Any] = []

        def part(seconds: float) -> bool:
            got[:] = stock(ray_waitables, num_returns=num_returns, timeout=seconds, fetch_local=fetch_local)
            return len(got[0]) >= num_returns

        _lend(worker, held, timeout, part)
        return got[0], got[1]

    return wait


def _lend(worker: Any, held: tuple[str, dict[str, float]], timeout: float | None, wait: Callable[[float], bool]) -> bool:
    """Return whether what is waited for is there; ``wait`` waits for so many seconds, and says so."""
    from remora.live.perform import perform
    from remora.protocol.lending_steps import wait_and_lend
    from remora.protocol.steps import WaitForObjects

    until = None if timeout is None else time.monotonic() + timeout
    return perform(wait_and_lend(who(worker, *held), until), marking({WaitForObjects: lambda step: wait(step.seconds)}))


def who(worker: Any, cluster_id: str, amounts: dict[str, float]) -> Who:
    from remora.wire.calls import Who
    from remora.wire.tokens import part_in

    part = part_in(worker.core_worker.resource_ids())
    return Who(worker.worker_id.hex(), cluster_id, ray.get_runtime_context().get_node_id(), amounts, part=part)


def marking(given: dict[type, Callable[[Any], Any]]) -> Body:
    """Return a body of steps that marks this worker on its node."""
    from remora.live.perform import Body
    from remora.live.worker.idle_markers import idle_markers
    from remora.protocol.steps import ForgetOrphans, MarkIdle, UnmarkIdle

    marked = contextlib.ExitStack()
    body = Body(
        {
            MarkIdle: lambda step: marked.enter_context(idle_markers().held(step.worker_id)),
            UnmarkIdle: lambda _: marked.close(),
            ForgetOrphans: lambda step: idle_markers().forget(list(step.worker_ids)),
            **given,
        }
    )
    body.closing.push(marked)
    return body


def _held(worker: Any) -> tuple[str, dict[str, float]] | None:
    """Return the share of CPUs that this process holds, where Ray gives the CPUs back while it waits: in the main thread of a
    task, and not in an actor, which keeps what it has. Not for what we wait for ourselves."""
    if worker.mode != ray.WORKER_MODE or not worker.actor_id.is_nil():
        return None
    if threading.current_thread() is not threading.main_thread() or is_quiet():
        return None
    return held_share(worker)


def held_share(worker: Any, *, cpus_only: bool = True) -> tuple[str, dict[str, float]] | None:
    """Return the virtual cluster whose share this process holds, and how much."""
    found: dict[str, float] = {}
    cluster_id = ""
    for name, instances in worker.core_worker.resource_ids().items():
        owner = share_of_token(name)
        if owner is not None and cluster_of_class(owner[0]) is None and (owner[1] == "CPU" or not cpus_only):
            cluster_id = owner[0]
            found[owner[1]] = sum(amount for _, amount in instances)
    return (cluster_id, found) if found else None
