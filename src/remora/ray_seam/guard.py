"""The guard in front of every function in a worker: does this node still accept what is about to start?

A token that is in use cannot be taken from a full node, and the raylet hands a returned one to the next in its queue. So the
guard looks at the node's fence (at most 250 ms old), and hands fenced work on: it submits the same call again, which waits for
a token like any other, and returns its result. The token that it holds meanwhile keeps the place occupied, so that no more
than were running can be handed on at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import ray

from remora.ray_seam import raw, within
from remora.ray_seam.fence import SharedFence
from remora.ray_seam.kv import Kv
from remora.ray_seam.pledges import pledges, shared_path
from remora.ray_seam.tickets import RETRIES, Ticket
from remora.ray_seam.within import CLUSTER
from remora.wire.fences import FENCE_SECONDS, OPEN, ROOT, fence_key, read_fence
from remora.wire.tokens import class_of_token, is_token

_USUAL = object()


class _Fence:
    """What this process knows of its node's fence."""

    def __init__(self) -> None:
        self._shared: SharedFence | None = None
        self._data = b""
        self._fence = OPEN

    def closes(self) -> str | None:
        """The class of the running task, if this node no longer accepts it."""
        data = (self._shared or self._open()).data()
        if data != self._data:
            self._data, self._fence = data, read_fence(data)
        if not self._fence.classes:
            return None
        class_id = _class_held()
        return class_id if class_id in self._fence.classes else None

    def is_full(self) -> bool:
        """Whether the virtual cluster of this task uses more of this node than its share; as it was last read."""
        return bool(self._fence.full) and (within.current() or ROOT) in self._fence.full

    def read_again(self) -> None:
        """From now on no worker of this node trusts what was read before."""
        (self._shared or self._open()).refresh()

    def _open(self) -> SharedFence:
        node_id = str(ray.get_runtime_context().get_node_id())
        kv = Kv()
        self._shared = SharedFence(shared_path("fence"), lambda: kv.get(fence_key(node_id)) or b"", FENCE_SECONDS)
        return self._shared


_fence = _Fence()


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, started only where its node accepts it."""
    again = _Again(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        retries = kwargs.pop(RETRIES, _USUAL) if kwargs else _USUAL
        within.begin(kwargs.pop(CLUSTER, None) if kwargs else None)
        dead = pledges().broken()  # before the fence: when they are forgotten, the fence that follows from them has been read
        class_id = _fence.closes()
        if class_id is None and (dead or _fence.is_full()):
            class_id = _stand_in_line(dead)
        if class_id is None:
            return function(*args, **kwargs)
        return again(class_id, retries, args, kwargs)

    return run


def before_an_actor() -> None:
    """Its class has been loaded and its constructor is next: where its virtual cluster is full it stands in line. A class that
    is only passed around holds nobody up."""
    worker = ray._private.worker.global_worker
    if worker.mode != ray.WORKER_MODE or worker.actors or worker.actor_id.is_nil():
        return
    dead = pledges().broken()
    _fence.closes()
    if dead or _fence.is_full():
        from remora.ray_seam.turnstile import stand_in_line

        stand_in_line(within.current(), dead, may_go=False, read_fence=_fence.read_again)


def _stand_in_line(dead: list[str]) -> str | None:
    """Returns when it may start; or, if there will be no room here, the class in which it is submitted once more."""
    from remora.ray_seam.turnstile import stand_in_line  # rarely needed, and workers start with this module

    class_id = _class_held()
    may_start = stand_in_line(within.current(), dead, may_go=class_id is not None, read_fence=_fence.read_again)
    return None if may_start else class_id


def _class_held() -> str | None:
    """The class of the running task."""
    return next((found for name in raw.assigned_resources() if (found := class_of_token(name)) is not None), None)


class _Again:
    """Submits a call once more and returns what it returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._streams = inspect.isgeneratorfunction(function)
        self._remote: Any = None

    def __call__(self, class_id: str, retries: Any, args: Any, kwargs: Any) -> Any:
        if self._remote is None:
            self._remote = ray.remote(self._function)
        options = _options()
        options["label_selector"] = Ticket(class_id)
        # Exceptions of the user's are retried by whoever called us, or they would be retried twice over.
        options["retry_exceptions"] = False
        if retries is not _USUAL:
            options["max_retries"] = retries
        submit = functools.partial(self._remote.options(**options).remote, *args, **kwargs)
        return _relay(submit) if self._streams else _result(submit)


def _result(submit: Callable[[], Any]) -> Any:
    from remora.ray_seam.turnstile import handed_on

    with handed_on(within.current()):
        return ray.get(submit())


def _relay(submit: Callable[[], Any]) -> Iterator[Any]:
    from remora.ray_seam.turnstile import handed_on

    with handed_on(within.current()):
        for ref in submit():
            yield ray.get(ref)


def _options() -> dict[str, Any]:
    """The resources of the running task, as options for the same again."""
    held = {name: amount for name, amount in raw.assigned_resources().items() if not is_token(name)}
    options: dict[str, Any] = {"num_cpus": held.pop("CPU", 0)}
    if "GPU" in held:
        options["num_gpus"] = held.pop("GPU")
    if "memory" in held:
        options["memory"] = held.pop("memory")
    if held:
        options["resources"] = held
    return options
