"""``ray.init(virtual_cluster=...)``, as the proposal types it, in every program that has imported ``remora``.

Without that argument ``ray.init`` is Ray's own and nothing else happens; with it, it is ``remora.init``. Importing this takes
no Ray: its function is replaced when somebody imports it. ``remora.detach`` does not undo it: it is no part of being attached.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from remora.live.on_import import WhenImported

_MARK = "__remora_stock__"


def watch(ours: Callable[..., Any]) -> None:
    """Let ``ray.init`` take ``virtual_cluster=`` as soon as somebody imports Ray: then it is ``ours``."""
    WhenImported("ray", functools.partial(_replace, ours))


def _replace(ours: Callable[..., Any], ray: ModuleType) -> None:
    stock = getattr(ray, "init", None)
    if stock is None or hasattr(stock, _MARK):
        return

    @functools.wraps(stock)
    def init(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("virtual_cluster") is None:
            kwargs.pop("virtual_cluster", None)
            return stock(*args, **kwargs)
        return ours(*args, **kwargs)

    setattr(init, _MARK, stock)
    ray.init = init  # type: ignore[attr-defined]
