"""What work itself says happened: lines in a file, which no fault of a cluster can lose or undo.

All nodes are on one machine, so they have one clock and one file system. A line is written with one call, so that writers do
not mix theirs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ray

BEGAN, ENDED = "began", "ended"


class Line(NamedTuple):
    """``group`` is what has to hold together: a virtual cluster, or actors that keep away from each other."""

    what: str
    group: str
    name: str
    node_id: str
    pid: int
    at: float


class Span(NamedTuple):
    """One time that something ran. ``ended`` is the last that was heard of it: if it was killed, it ran until then."""

    name: str
    node_id: str
    began: float
    ended: float


def write(path: str, what: str, group: str, name: str) -> None:
    """Add a line, from wherever this runs."""
    node_id = str(ray.get_runtime_context().get_node_id())
    line = json.dumps(Line(what, group, name, node_id, os.getpid(), time.monotonic())) + "\n"
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read(path: Path) -> list[Line]:
    return [Line(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def spans(lines: list[Line], group: str) -> list[Span]:
    """Each run of each member of a group: what one process wrote about it, from the first line to the last."""
    found: dict[tuple[str, int], Span] = {}
    for line in lines:
        if line.group == group:
            known = found.get((line.name, line.pid))
            began = known.began if known is not None else line.at
            found[line.name, line.pid] = Span(line.name, line.node_id, began, line.at)
    return list(found.values())


def most_at_once(found: list[Span]) -> int:
    """How many of them certainly ran at the same time."""
    events = sorted([(span.began, 1) for span in found] + [(span.ended, -1) for span in found])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def together(found: list[Span]) -> Iterator[tuple[Span, Span]]:
    """Pairs of different members that certainly ran on one node at the same time."""
    for number, one in enumerate(found):
        for other in found[number + 1 :]:
            same = one.node_id == other.node_id and one.name != other.name
            if same and one.began < other.ended and other.began < one.ended:
                yield one, other


def names(lines: list[Line], what: str) -> list[Any]:
    return [line.name for line in lines if line.what == what]
