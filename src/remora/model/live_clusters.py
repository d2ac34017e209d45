"""Where the part that needs Ray says that it is there: values must not depend on it. Workers import this when they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class LiveClusters(Protocol):
    """What ``with VirtualCluster(...)`` does in a process that is attached."""

    def enter(self, spec: Any) -> None:
        """Reserve it; from then on this thread or coroutine is in it."""

    def leave(self, spec: Any) -> None:
        """Give it back. Never raises because of what became of the cluster or the controller."""

    async def enter_async(self, spec: Any) -> None:
        """The same as ``enter``, and the event loop goes on meanwhile."""


_registered: list[Callable[[], LiveClusters]] = []


def register(find: Callable[[], LiveClusters]) -> None:
    """Say how the live part is found, once somebody needs it."""
    _registered[:] = [find]


def live_clusters() -> LiveClusters | None:
    """Return the live part; None in a process that never had anything to do with Ray."""
    return _registered[0]() if _registered else None
