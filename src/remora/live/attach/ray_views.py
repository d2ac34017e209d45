"""A stand-in for the name ``ray`` inside the few modules of Ray that submit work.

Those modules look up ``ray._private.worker.global_worker.core_worker`` on every call. Workers execute tasks through a
compiled core worker that must stay the real one, so the core worker itself cannot be replaced; what these modules see of
it can.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    from remora.live.attach.core_worker import CoreWorkerWithTokens


def view_of(worker: Any, wrap: Callable[[Any], CoreWorkerWithTokens]) -> tuple[Any, Callable[[], None]]:
    """The process's worker, with a core worker that adds tokens; and what to call when the worker has connected anew.

    The view shares the worker's own attributes, and the one that it has instead is a slot: both are looked up several times for
    every task, and as fast as they were.
    """

    class WorkerView(type(worker)):  # type: ignore[misc]
        __slots__ = ("core_worker",)

    view: Any = object.__new__(WorkerView)
    view.__dict__ = worker.__dict__

    def renew() -> None:
        real = worker.__dict__.get("core_worker")
        if real is not None:
            view.core_worker = wrap(real)

    renew()
    return view, renew


class _View:
    """A module with one attribute of its own; everything else is the module's."""

    def __init__(self, module: Any, **own: Any) -> None:
        self.__dict__.update(own)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_module"], name)
        if isinstance(value, ModuleType) or name.isupper():
            self.__dict__[name] = value  # modules and constants stay; several are looked up on the way of every task
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions of these modules are pickled by value with the actor classes they belong to: they get the real one.
        return importlib.import_module, (self.__dict__["_module"].__name__,)


def ray_with(worker: Any) -> Any:
    """``ray``, but for ``ray._private.worker.global_worker``."""
    return _View(ray, _private=_View(ray._private, worker=_View(ray._private.worker, global_worker=worker)))
