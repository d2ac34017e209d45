"""How the layer reaches workers: with the functions and classes that they load, not with a runtime environment.

A function is pickled as ``Luggage``; unpickling it installs the layer in the worker and returns the function behind a
guard. A class carries a ``Stowaway``, which does the same for actors. The defaults of the job travel as the bytes that they
were pickled to: most workers never submit anything, and never open them.
"""

from __future__ import annotations

from typing import Any

from remora.live.worker.guard import before_an_actor, guarded

_ATTRIBUTE = "__remora_stowaway__"


class Stowaway:
    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive_unseen, (self.packed,)


class Luggage:
    def __init__(self, function: Any, packed: bytes) -> None:
        self.function = function
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        # In this order: the layer is there before the function's own module is imported.
        return arrive, (Stowaway(self.packed), self.function)


def arrive(_: Stowaway, function: Any) -> Any:
    """In the worker, where a function is loaded."""
    return guarded(function)


def arrive_unseen(packed: bytes) -> Stowaway:
    """In the worker, where an actor's class is loaded."""
    from remora.live.attach import install

    install.arrive(packed)
    before_an_actor()
    return Stowaway(packed)


def board(modified_class: type, packed: bytes) -> None:
    setattr(modified_class, _ATTRIBUTE, Stowaway(packed))


def leave(modified_class: type) -> None:
    if _ATTRIBUTE in vars(modified_class):
        delattr(modified_class, _ATTRIBUTE)
