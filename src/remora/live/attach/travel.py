"""How the layer reaches workers: with the functions and classes that they load, not with a runtime environment.

Both are pickled as ``Luggage``; unpickling it installs the layer in the worker and returns the function behind a guard, or the
class as it is. The defaults of the job travel as the bytes that they were pickled to: most workers never submit anything, and
never open them.
"""

from __future__ import annotations

from typing import Any

from remora.live.worker.guard import Guarded, before_an_actor


class Layer:
    """Installs the layer where it is unpickled, with the job's defaults."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return _install, (self.packed,)


class Luggage:
    """A function or the class of an actor, on its way."""

    def __init__(self, thing: Any, packed: bytes) -> None:
        self.thing = thing
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        # In this order: the layer is there before the module is imported that the function or class is from.
        return _arrive_class if isinstance(self.thing, type) else _arrive, (Layer(self.packed), self.thing)


def _install(packed: bytes) -> None:
    from remora.live.attach import install

    install.arrive(packed)


def _arrive(_: None, function: Any) -> Any:
    """In the worker, where a function is loaded."""
    return Guarded(function)


def _arrive_class(_: None, actor_class: type) -> type:
    """In the worker, where an actor's class is loaded."""
    before_an_actor()
    return actor_class
