"""How the layer reaches workers: with the functions and classes that they load, not with a runtime environment.

A function is pickled as ``Luggage``; unpickling it installs the layer in the worker and returns the function behind a
guard. A class carries a ``Stowaway``, which does the same for actors.
"""

from __future__ import annotations

from typing import Any

from remora.ray_seam.guard import guarded
from remora.wire.options import Defaults

_ATTRIBUTE = "__remora_stowaway__"


class Luggage:
    def __init__(self, function: Any, defaults: Defaults) -> None:
        self.function = function
        self.defaults = defaults

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (self.function, self.defaults)


class Stowaway:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive_unseen, (self.defaults,)


def arrive(function: Any, defaults: Defaults) -> Any:
    """In the worker, where a function is loaded."""
    _install(defaults)
    return guarded(function)


def arrive_unseen(defaults: Defaults) -> Stowaway:
    """In the worker, where an actor's class is loaded."""
    _install(defaults)
    return Stowaway(defaults)


def board(modified_class: type, defaults: Defaults) -> None:
    setattr(modified_class, _ATTRIBUTE, Stowaway(defaults))


def leave(modified_class: type) -> None:
    if _ATTRIBUTE in vars(modified_class):
        delattr(modified_class, _ATTRIBUTE)


def _install(defaults: Defaults) -> None:
    from remora.ray_seam import hooks

    if hooks.current() is None:
        hooks.install(defaults, probe=False)
