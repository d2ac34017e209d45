"""The virtual cluster that this process is in: the job's own, the task's or the actor's, and those entered with ``with``.

A coroutine or a thread is in the cluster that it entered itself. A thread that is started inside of a ``with``, and work that
is given to a pool there, is in that cluster too, for as long as the ``with`` lasts: libraries have threads of their own.
Whatever entered nothing is in the cluster of the process: the tokens that a task or an actor holds name it; where there are
none, a task is told by a hidden argument and an actor by a label of its own in GCS, asked for when it first matters. Workers
import this module when they start, so it needs little.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from remora.model import live_clusters
from remora.wire.tokens import CLUSTER_LABEL, class_of_token, cluster_of_work

CLUSTER = "__remora_cluster__"
"""A hidden argument: the virtual cluster that a task runs in."""

base: list[str | None] = []
"""What this process is in when it has entered nothing: the driver's job, or the task that runs. Empty when nobody has said."""


class Scope:
    """A ``with VirtualCluster`` of this process. ``used``: something was submitted in it. ``made``: what to stop at its end,
    where that is wanted."""

    __slots__ = ("cluster_id", "is_open", "made", "used")

    def __init__(self, cluster_id: str, made: Any = None) -> None:
        self.cluster_id = cluster_id
        self.made = made
        self.used = False
        self.is_open = True


_entered: contextvars.ContextVar[tuple[Scope, ...]] = contextvars.ContextVar("remora_clusters", default=())
_open: set[Scope] = set()
_lock = threading.Lock()


def set_base(cluster_id: str | None) -> None:
    base[:] = [cluster_id]


def begin(cluster_id: str | None) -> None:
    """A task begins in this worker; ``cluster_id`` where it was told."""
    base[:] = [] if cluster_id is None else [cluster_id]


def current() -> str | None:
    """Return the id of the virtual cluster that work submitted now belongs to; None is the whole cluster."""
    scope = _innermost()
    if scope is not None:
        scope.used = True
        return scope.cluster_id
    if not base:
        base.append(_of_this_work())
    return base[0]


def keep(made: Any) -> None:
    """This was submitted in the current one."""
    scope = _innermost()
    if scope is not None and scope.made is not None:
        scope.made.add(made)


def peek() -> str | None:
    """The same as ``current``, for somebody who only looks."""
    scope = _innermost()
    return scope.cluster_id if scope is not None else current()


def enter(scope: Scope) -> None:
    _entered.set((*_entered.get(), scope))
    with _lock:
        _open.add(scope)


def leave(scope: Scope) -> None:
    """From now on nobody is in it, in whichever thread or coroutine."""
    scope.is_open = False
    _entered.set(tuple(each for each in _entered.get() if each.is_open))
    with _lock:
        _open.discard(scope)


def forget() -> None:
    """The process is detached."""
    base.clear()
    for scope in list(_open):
        leave(scope)
    _entered.set(())


def _innermost() -> Scope | None:
    scopes = _entered.get()
    if scopes:
        for scope in reversed(scopes):
            if scope.is_open:
                return scope
    return None


# Before Python 3.14 a thread begins with nothing of the context of the one that started it, and what is given to a pool is run
# by whichever thread is free. In a process that is attached both take the clusters of whoever starts a thread or gives it work.


def replacements() -> list[tuple[Any, str, Any]]:
    """Owner, name, what is there instead."""
    return [
        (threading.Thread, "start", _starting(threading.Thread.start)),
        (ThreadPoolExecutor, "submit", _submitting(ThreadPoolExecutor.submit)),
    ]


def _starting(stock: Any) -> Any:
    @functools.wraps(stock)
    def start(thread: threading.Thread) -> None:
        scopes = _entered.get()
        if scopes:
            thread.run = functools.partial(_run_in, scopes, thread.run)  # type: ignore[method-assign]
        stock(thread)

    return start


def _submitting(stock: Any) -> Any:
    """Also of whoever is in none: it may be run by a thread that was started inside of one."""

    @functools.wraps(stock)
    def submit(pool: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return stock(pool, _run_in, _entered.get(), fn, *args, **kwargs)

    return submit


def _run_in(scopes: tuple[Scope, ...], run: Any, /, *args: Any, **kwargs: Any) -> Any:
    before = _entered.set(scopes)
    try:
        return run(*args, **kwargs)
    finally:
        _entered.reset(before)


def _live() -> Any:
    from remora.live.clusters import entering

    return entering


live_clusters.register(_live)


def _of_this_work() -> str | None:
    """What the task or actor that runs here is in: its tokens tell; of an actor without any, its label."""
    worker = ray._private.worker.global_worker
    if not ray.is_initialized() or worker.mode != ray.WORKER_MODE:
        return None
    held = worker.core_worker.resource_ids()
    if any(class_of_token(name) is not None for name in held):
        return cluster_of_work(held)
    return cluster_of_work(held) or _of_this_actor()


def _of_this_actor() -> str | None:
    from remora.live.adapter.ray_port import RayPort

    actor_id = ray.get_runtime_context().get_actor_id()
    found = RayPort().find(actor_id) if actor_id is not None else []
    return found[0].labels.get(CLUSTER_LABEL) if found else None
