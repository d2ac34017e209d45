"""Fences: classes whose token is still in use on a node that no longer admits them.

A token in use cannot be taken away, and a raylet gives a returned one to the next in its queue at once. So the guard in
the workers looks here before it starts anything, and hands on what is fenced.

*Full* are virtual clusters of which more runs than may, because a worker came back from waiting, or because a minimum is owed
to somebody else: what wants to start there asks the controller first.

Every worker imports this when it starts, and most never see a fence: what reads one is imported with the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from remora.wire.timing import FENCE_SECONDS, RENEW_SECONDS, TOLD_SECONDS

__all__ = [
    "ELSEWHERE",
    "FENCE_SECONDS",
    "GO",
    "LATER",
    "OPEN",
    "RENEW_SECONDS",
    "ROOT",
    "TOLD_SECONDS",
    "Fence",
    "fence_key",
    "read_fence",
    "write_fence",
]


def fence_key(node_id: str) -> str:
    return f"fence/{node_id}"


GO, ELSEWHERE, LATER = "go", "elsewhere", "later"
"""What whoever waits for admission is told: to go on; that there will be no room here, so that it is submitted once more; to
ask again in a while, because too many wait to keep the question of each."""


class Fence(NamedTuple):
    classes: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()


OPEN = Fence()
ROOT = "root"
"""Stands for work that is in no virtual cluster, where the fullness of one is told."""


def write_fence(classes: Iterable[str], full: Iterable[str] = ()) -> bytes:
    from remora.wire.keys import FENCES, FenceEntry

    return FENCES.write(FenceEntry(sorted(classes), sorted(full)))


def read_fence(data: bytes | None) -> Fence:
    if not data:
        return OPEN
    from remora.wire.keys import FENCES

    entry = FENCES.read(data)
    return Fence(frozenset(entry.classes), frozenset(entry.full))
