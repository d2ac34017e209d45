"""What Ray works out anew for every task is worked out once for each function and its options.

Between ``.remote()`` and the core worker stock Ray fills in thirty options, adds up resources and looks for a placement group,
every time with the same result. Here the call that came out of it is kept, and the next one like it differs in its arguments
only. Nothing of Ray's is decided here: whenever anything that it looks at is not as it was, it is asked again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import ray.remote_function
from ray._common.signature import flatten_args
from ray.util.tracing import tracing_helper

_MOST_KEPT = 8  # of one function
_MOST_KEEPING = 1_000  # whoever says something else each time, a name perhaps, gains nothing by it
_SCALARS = frozenset({int, float, str, bool, bytes, type(None)})
_RETRIES_ENV = "RAY_TASK_MAX_RETRIES"

Submit = Callable[[list[Any]], list[Any]]


class _Kept(NamedTuple):
    options: dict[str, Any]
    environment: str | None
    retries: str | None
    exported: Any
    core_worker: Any
    submit: Submit


class Replays:
    """Of one function, as long as the layer is in it. ``worker`` is the process's, as the layer sees it."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self._kept: list[_Kept] = []
        self._keeping = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return str, ()  # functions are pickled with it, and in another process it means nothing

    def find(self, function: Any, environment: str | None, options: dict[str, Any]) -> Submit | None:
        """How to submit this, if that is known and everything is as it was."""
        for kept in self._kept:
            if kept.options == options and kept.environment == environment:
                worker = self.worker
                known = (
                    worker.connected
                    and worker.core_worker is kept.core_worker
                    and function._last_export_cluster_and_job is kept.exported
                    and os.environ.get(_RETRIES_ENV) == kept.retries
                    and not worker.debugger_breakpoint
                    and ray.remote_function._task_launch_hook is None
                    and not kept.core_worker.should_capture_child_tasks_in_placement_group()
                )
                return kept.submit if known else None
        return None

    @property
    def full(self) -> bool:
        """Whether it is not worth while to keep more."""
        return self._keeping >= _MOST_KEEPING

    def keep(self, function: Any, environment: str | None, options: dict[str, Any], submit: Submit) -> None:
        """It was just submitted so; ``options`` came from ``copied``."""
        if function._is_cross_language or function._decorator is not None or tracing_helper._is_tracing_enabled():
            return
        self._keeping += 1
        worker = self.worker
        same = [kept for kept in self._kept if kept.options == options and kept.environment == environment]
        others = [kept for kept in self._kept if kept not in same]
        retries = os.environ.get(_RETRIES_ENV)
        exported = function._last_export_cluster_and_job
        new = _Kept(options, environment, retries, exported, worker.core_worker, submit)
        self._kept = [new, *others[: _MOST_KEPT - 1]]


def is_rays(function: Any) -> bool:
    """Whether nobody has put something of his own around a function of Ray's, which would then be passed by."""
    while isinstance(function, FunctionType) and str(function.__globals__.get("__name__")).startswith("ray."):
        if not hasattr(function, "__wrapped__"):
            return True
        function = function.__wrapped__
    return False


def flattened(function: Any, args: Any, kwargs: Any) -> list[Any]:
    """As Ray does it; whoever gives wrong arguments hears of it from Ray."""
    signature = function._function_signature
    return flatten_args(signature, args or (), kwargs or {}) if args or kwargs or signature else []


def copied(options: dict[str, Any]) -> dict[str, Any] | None:
    """A copy that stays as it is when the user changes a value of his; None if there is something in it that nobody but its
    author can compare."""
    try:
        return {name: value if value.__class__ in _SCALARS else _copy(value) for name, value in options.items()}
    except TypeError:
        return None


def _copy(value: Any) -> Any:
    kind = value.__class__
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {_copy(name): _copy(part) for name, part in value.items()}
    if kind in (list, tuple):
        return kind(_copy(part) for part in value)
    raise TypeError
