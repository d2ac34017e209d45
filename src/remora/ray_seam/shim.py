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


class WorkerView:
    """The process's worker, with a core worker that adds tokens."""

    def __init__(self, wrap: Callable[[Any], CoreWorkerProxy]) -> None:
        object.__setattr__(self, "_wrap", wrap)
        object.__setattr__(self, "_proxy", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(ray._private.worker.global_worker, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(ray._private.worker.global_worker, name, value)

    @property
    def core_worker(self) -> Any:
        real = ray._private.worker.global_worker.core_worker
        proxy = self._proxy
        if proxy is None or proxy.remora_inner is not real:  # the worker connected anew
            proxy = self._wrap(real)
            object.__setattr__(self, "_proxy", proxy)
        return proxy


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


def ray_with(worker: WorkerView) -> Any:
    """``ray``, but for ``ray._private.worker.global_worker``."""
    return _View(ray, _private=_View(ray._private, worker=_View(ray._private.worker, global_worker=worker)))
