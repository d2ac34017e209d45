"""The virtual cluster that this process is in: the job's own, the task's or the actor's, and those entered with ``with``.

The tokens that a task or an actor holds name it; where there are none, a task is told by a hidden argument and an actor by a
label of its own in GCS, asked for when it first matters. Threads that have
entered none are in the one that the main thread has entered: libraries start threads of their own. Workers import this module
when they start, so it needs little.
"""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass, field
from typing import Any

import ray

from remora.wire.tokens import CLUSTER_LABEL, class_of_token, cluster_of_work

CLUSTER = "__remora_cluster__"
"""A hidden argument: the virtual cluster that a task runs in."""

base: list[str | None] = []
"""What this process is in when it has entered nothing: the driver's job, or the task that runs. Empty when nobody has said."""


@dataclass(slots=True)
class Scope:
    """One that was entered here. ``used`` when anything was submitted in it; ``made`` is what, if it is stopped in the end."""

    cluster_id: str
    cancel: bool
    used: bool = False
    made: list[Any] = field(default_factory=list)


_entered: contextvars.ContextVar[tuple[Scope, ...]] = contextvars.ContextVar("remora_clusters", default=())
_ambient: list[Scope] = []


def set_base(cluster_id: str | None) -> None:
    base[:] = [cluster_id]


def begin(cluster_id: str | None) -> None:
    """A task begins in this worker; ``cluster_id`` where it was told."""
    base[:] = [] if cluster_id is None else [cluster_id]


def current() -> str | None:
    """The id of the virtual cluster that work submitted now belongs to; None is the whole cluster."""
    scopes = _entered.get() or _ambient
    if scopes:
        scopes[-1].used = True
        return scopes[-1].cluster_id
    if not base:
        base.append(_of_this_work())
    return base[0]


def keep(made: Any) -> None:
    """This was submitted in the current one."""
    scopes = _entered.get() or _ambient
    if scopes and scopes[-1].cancel:
        scopes[-1].made.append(made)


def peek() -> str | None:
    """The same, for somebody who only looks."""
    scopes = _entered.get() or _ambient
    return scopes[-1].cluster_id if scopes else current()


def enter(scope: Scope) -> None:
    _entered.set((*_entered.get(), scope))
    if threading.current_thread() is threading.main_thread():
        _ambient.append(scope)


def leave(scope: Scope) -> None:
    _entered.set(tuple(each for each in _entered.get() if each is not scope))
    if scope in _ambient:
        _ambient.remove(scope)


def forget() -> None:
    """The process is detached."""
    base.clear()
    _ambient.clear()
    _entered.set(())


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
    from remora.ray_seam.ray_port import RayPort

    actor_id = ray.get_runtime_context().get_actor_id()
    found = RayPort().find(actor_id) if actor_id is not None else []
    return found[0].labels.get(CLUSTER_LABEL) if found else None
