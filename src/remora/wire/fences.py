"""Fences: classes whose token is still in use on a node that no longer admits them.

A token in use cannot be taken away, and a raylet gives a returned one to the next in its queue at once. So the guard in
the workers looks here before it starts anything, and hands on what is fenced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

FENCE_SECONDS = 0.05
"""A worker trusts what it read for this long; a fence holds for certain this long after it was written."""


def fence_key(node_id: str) -> str:
    return f"fence/{node_id}"


def write_fence(classes: Iterable[str]) -> bytes:
    return json.dumps(sorted(classes)).encode()


def read_fence(data: bytes | None) -> frozenset[str]:
    return frozenset(json.loads(data)) if data else frozenset()
