"""A stand-in for the name ``ray`` inside the few modules of Ray that submit work.

Those modules look up ``ray._private.worker.global_worker.core_worker`` on every call. Workers execute tasks through a
compiled core worker that must stay the real one, so the core worker itself cannot be replaced; what these modules see of
it can.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import ray

from remora.ray_seam.proxy import CoreWorkerProxy


def view_of(worker: Any, wrap: Callable[[Any], CoreWorkerProxy]) -> Any:
    """The process's worker, with a core worker that adds tokens.

    The view shares the worker's own attributes, so that everything but the core worker is as fast as it was.
    """
    held: list[CoreWorkerProxy] = []

    class WorkerView(type(worker)):  # type: ignore[misc]
        @property
        def core_worker(self) -> Any:
            real = worker.__dict__["core_worker"]
            if not held or held[0].remora_inner is not real:  # the worker connected anew
                held[:] = [wrap(real)]
            return held[0]

        @core_worker.setter
        def core_worker(self, value: Any) -> None:
            worker.__dict__["core_worker"] = value

    view = object.__new__(WorkerView)
    view.__dict__ = worker.__dict__
    return view


class _View:
    """A module with one attribute of its own; everything else is the module's."""

    def __init__(self, module: Any, **own: Any) -> None:
        self.__dict__.update(own)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions of these modules are pickled by value with the actor classes they belong to: they get the real one.
        return importlib.import_module, (self.__dict__["_module"].__name__,)


def ray_with(worker: Any) -> Any:
    """``ray``, but for ``ray._private.worker.global_worker``."""
    return _View(ray, _private=_View(ray._private, worker=_View(ray._private.worker, global_worker=worker)))
