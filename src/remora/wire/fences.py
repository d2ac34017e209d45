"""Fences: classes whose token is still in use on a node that no longer admits them.

A token in use cannot be taken away, and a raylet gives a returned one to the next in its queue at once. So the guard in
the workers looks here before it starts anything, and hands on what is fenced.

*Full* are virtual clusters of which more runs than may, because a worker came back from waiting, or because a minimum is owed
to somebody else: what wants to start there asks the controller first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

FENCE_SECONDS = 0.25
"""A worker trusts what it read for this long; a fence holds for certain this long after it was written. While work flows, every
node asks about as often, so this is what the cluster pays for how soon a taint holds on a full node."""

TOLD_SECONDS = 1.5 * FENCE_SECONDS
"""So long after a fence was written every worker has read it, or will before it starts anything."""

RENEW_SECONDS = 2.0
"""How often a worker that waits, and has given its share back meanwhile, says so."""


def fence_key(node_id: str) -> str:
    return f"fence/{node_id}"


GO, ELSEWHERE = "go", "elsewhere"
"""What whoever stands in line is told: to go on; or that there will be no room here, so that it is submitted once more."""


class Fence(NamedTuple):
    classes: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()


OPEN = Fence()
ROOT = "root"
"""Stands for work that is in no virtual cluster, where the fullness of one is told."""


def write_fence(classes: Iterable[str], full: Iterable[str] = ()) -> bytes:
    return json.dumps([sorted(classes), sorted(full)]).encode()


def read_fence(data: bytes | None) -> Fence:
    if not data:
        return OPEN
    classes, full = json.loads(data)
    return Fence(frozenset(classes), frozenset(full))
