"""Ray's serializers for classes of other libraries are registered when such a library is imported, and not before.

The first time that a process serializes anything, Ray imports pydantic, starlette and pyarrow, if they are installed, to
register serializers for their classes: up to a third of all that a worker does until it answers. Without its library there is
no instance of such a class, so nobody can tell the difference but by the clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from remora.live.on_import import WhenImported

LIBRARIES = ("pydantic", "starlette", "pyarrow")

_RAYS_OWN = "ray._common.pydantic_compat"
"""Imports pydantic, and is what registers its serializers: until it is whole itself, nothing can be registered."""

_REGISTERED = {"register_pydantic_serializers", "register_starlette_serializer", "_register_custom_datasets_serializers"}


class Addons:
    """``apply`` in place of ``stock``, as long as nobody calls ``register``."""

    def __init__(self, stock: Callable[[Any], None]) -> None:
        self._stock = stock
        self._contexts: list[Any] = []
        self._watches: list[WhenImported] = []

    def apply(self, context: Any) -> None:
        if any(name in sys.modules for name in LIBRARIES):
            self._stock(context)
            return
        self._contexts.append(context)
        if not self._watches:
            awaited = [name for name in (*LIBRARIES, _RAYS_OWN) if name not in sys.modules]
            self._watches = [WhenImported(name, lambda _: self.register()) for name in awaited]

    def register(self) -> None:
        """All that was put off; once Ray's own module is imported, if that is under way."""
        if any(watch.is_importing for watch in self._watches):
            return
        while self._watches:
            self._watches.pop().stop()
        while self._contexts:
            self._stock(self._contexts.pop())


def is_known(stock: Any) -> bool:
    """Whether Ray registers serializers for these libraries and no others: else everything stays as it is."""
    names = getattr(getattr(stock, "__code__", None), "co_names", ())
    return {name for name in names if "register" in name} == _REGISTERED
