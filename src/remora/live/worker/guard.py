"""The guard in front of every function in a worker: does this node still accept what starts (``protocol.admission``)?

Fenced work is submitted once more: the same call, which waits for a token like any other, and whose result is returned. The
token that is held meanwhile keeps the place occupied, so that no more than were running can be handed on at once.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import ray

from remora.live.adapter import unpatched
from remora.live.adapter.kv import Kv
from remora.live.clusters import scopes
from remora.live.clusters.scopes import CLUSTER
from remora.live.submit.tickets import RETRIES, RETURNS, Ticket
from remora.live.worker.fence_cache import SharedFence
from remora.live.worker.idle_markers import idle_markers, shared_path
from remora.wire.fences import FENCE_SECONDS, OPEN, Fence, fence_key, read_fence
from remora.wire.tokens import class_of_token, is_token

if TYPE_CHECKING:
    from remora.protocol.admission_steps import Verdict

_USUAL = object()


class _Fence:
    """What this process knows of its node's fence."""

    def __init__(self) -> None:
        self._shared: SharedFence | None = None
        self._data = b""
        self._fence = OPEN

    def read(self) -> Fence:
        """Return it as it was at most ``FENCE_SECONDS`` ago."""
        data = (self._shared or self._open()).data()
        if data != self._data:
            self._data, self._fence = data, read_fence(data)
        return self._fence

    def read_again(self) -> None:
        """From now on no worker of this node trusts what was read before."""
        (self._shared or self._open()).refresh()

    def _open(self) -> SharedFence:
        node_id = str(ray.get_runtime_context().get_node_id())
        kv = Kv()
        self._shared = SharedFence(shared_path("fence"), lambda: kv.get(fence_key(node_id)) or b"", FENCE_SECONDS)
        return self._shared


_fence = _Fence()


class Guarded:
    """A function, started only where its node accepts it.

    What is called is decided before it is called, by the attribute ``__call__``: so the function itself is what Ray calls, and
    no frame of ours is in the traceback of what fails in it. Ray cuts the first lines of that, so many as are always its own.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._again = _Again(function)

    @property
    def __call__(self) -> Callable[..., Any]:
        hidden, _hidden.arguments = _hidden.arguments, {}
        scopes.begin(hidden.get(CLUSTER))
        class_id = _closed()
        return self._function if class_id is None else functools.partial(self._again, class_id, hidden)


class _Hidden(threading.local):
    """What came with the arguments of the task that this thread is about to run, and is for us."""

    arguments: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed


_hidden = _Hidden()


def without_hidden(recover_args: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what recovers the arguments of a task, and keeps those to itself that are hidden among them."""

    @functools.wraps(recover_args)
    def recover(flattened_args: Any) -> Any:
        args, kwargs = recover_args(flattened_args)
        if kwargs:
            _hidden.arguments = {name: kwargs.pop(name) for name in (RETRIES, RETURNS, CLUSTER) if name in kwargs}
        return args, kwargs

    return recover


def before_an_actor() -> None:
    """Its class has been loaded and its constructor is next: where its virtual cluster is full it waits for admission. A class
    that is only passed around holds nobody up."""
    worker = ray._private.worker.global_worker
    if worker.mode != ray.WORKER_MODE or worker.actors or worker.actor_id.is_nil():
        return
    orphans, fence = idle_markers().orphaned(), _fence.read()
    if not orphans and fence == OPEN:
        return
    from remora.protocol.admission_steps import Verdict, judge

    if judge(None, scopes.current(), fence, orphans) is Verdict.QUEUE:
        _wait(orphans, None)


def _closed() -> str | None:
    """Return None when what this worker is about to run may start; else the class in which it is submitted once more."""
    orphans = (
        idle_markers().orphaned()
    )  # before the fence: when they are forgotten, the fence that follows from them has been read
    fence = _fence.read()
    if not orphans and fence == OPEN:
        return None
    from remora.protocol.admission_steps import Verdict, judge  # rarely needed, and workers start with this module

    class_id = _class_held()
    verdict: Verdict = judge(class_id, scopes.current(), fence, orphans)
    if verdict is Verdict.START or (verdict is Verdict.QUEUE and _wait(orphans, class_id)):
        return None
    return class_id


def _wait(orphans: list[str], class_id: str | None) -> bool:
    from remora.live.worker.admitting import wait_for_admission_here
    from remora.protocol.steps import ReadFence, RereadFence

    return wait_for_admission_here(
        scopes.current(), orphans, class_id, {ReadFence: lambda _: _fence.read(), RereadFence: lambda _: _fence.read_again()}
    )


def _class_held() -> str | None:
    """Return the class of the running task."""
    return next((found for name in unpatched.assigned_resources() if (found := class_of_token(name)) is not None), None)


class _Again:
    """Submits a call once more and returns what it returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_generator = inspect.isgeneratorfunction(function)
        self._remote: Any = None

    def __call__(self, class_id: str, hidden: dict[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        if self._remote is None:
            self._remote = ray.remote(self._function)
        options = _options()
        options["label_selector"] = Ticket(class_id)
        # Exceptions of the user's are retried by whoever called us, or they would be retried twice over.
        options["retry_exceptions"] = False
        if RETRIES in hidden:
            options["max_retries"] = hidden[RETRIES]
        returns: int = hidden.get(RETURNS, 1)
        if not self._is_generator and returns > 1:  # it may return a generator of so many, which nobody could pickle as one
            options["num_returns"] = returns
        submit = functools.partial(self._remote.options(**options).remote, *args, **kwargs)
        return _relay(submit) if self._is_generator else _result(submit)


def _result(submit: Callable[[], Any]) -> Any:
    from remora.live.worker.admitting import resubmitted

    with resubmitted(scopes.current()):
        return ray.get(submit())


def _relay(submit: Callable[[], Any]) -> Iterator[Any]:
    from remora.live.worker.admitting import resubmitted

    with resubmitted(scopes.current()):
        for ref in submit():
            yield ray.get(ref)


def _options() -> dict[str, Any]:
    """Return the resources of the running task, as options for the same again."""
    held = {name: amount for name, amount in unpatched.assigned_resources().items() if not is_token(name)}
    options: dict[str, Any] = {"num_cpus": held.pop("CPU", 0)}
    if "GPU" in held:
        options["num_gpus"] = held.pop("GPU")
    if "memory" in held:
        options["memory"] = held.pop("memory")
    if held:
        options["resources"] = held
    return options
