"""The walks of ARCHITECTURE.md are the real ones: what they name is called, in a controller that is walked through them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.unit.controller.leased import LONELY, LeasedWorld, spec

_TEXT = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
_NAMED = re.compile(r"`([A-Za-z_]+\.)?(_?[a-z][a-z_]+)`")
_MOST_STEPS = 25

_LIVE = frozenset(
    {
        *("Submitter", "CoreWorkerWithTokens", "leased", "Hearing", "Engine", "api", "entering", "scopes", "GroupHost", "Link"),
        *("lease_steps", "cluster_steps", "lending_steps", "wire", "Actor", "ray"),
    }
)
"""What is on the way in a client or in the process around the controller: tests/live walks through that."""

_CLIENTS = frozenset({"install", "perform", "guard", "judge", "hints", "blocking", "with"})


def walk(number: str) -> str:
    section = _TEXT[_TEXT.index(f"## Walk {number}") :]
    return section[: section.index("\n## ", 5)]


def named(number: str) -> set[str]:
    """Return the functions of the controller and the kernel that a walk names."""
    found = {(owner.rstrip("."), name) for owner, name in _NAMED.findall(walk(number))}
    return {name for owner, name in found if owner not in _LIVE and not (owner == "" and name in _CLIENTS)}


@contextmanager
def watched() -> Iterator[set[str]]:
    """Everything of Remora's that is called meanwhile."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "remora" in frame.f_code.co_filename:
            called.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def an_actor_with_affinity() -> None:
    world = LeasedWorld("n1", "n2")
    cats = [world.start(**LONELY) for _ in range(3)]
    world.why(cats[2])
    world.pass_time(2)
    cats[0] = world.restarts(cats[0])
    world.dies(cats[1])
    world.pass_time(2)


def a_taint() -> None:
    world = LeasedWorld("n1", "n2")
    world.ensure(spec())
    assert world.taint("n1", k="v") is True
    world.pass_time(2)


def a_virtual_cluster() -> None:
    world = LeasedWorld("n1", "n2")
    cluster_id = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 4})
    world.want(cluster_id, 2)
    (node_id, *_) = world.tokens(cluster_id)
    held = world.run(cluster_id, node_id)
    world.lend("w1", cluster_id, node_id)
    world.reclaim("w1", cluster_id, node_id)
    world.offer(cluster_id, {"CPU": 1})
    world.port.give(node_id, held)
    world.pass_time(10)
    world.close(cluster_id)
    world.pass_time(5)


_WALKS: dict[str, Callable[[], None]] = {"one": an_actor_with_affinity, "two": a_taint, "three": a_virtual_cluster}


@pytest.mark.parametrize("number", _WALKS)
def test_whatever_a_walk_names_is_on_the_way(number: str) -> None:
    with watched() as called:
        _WALKS[number]()
    assert len(named(number)) > 5
    assert named(number) - called == set()


@pytest.mark.parametrize("number", _WALKS)
def test_a_walk_has_at_most_so_many_steps(number: str) -> None:
    steps = re.findall(r"^\d+\. ", walk(number), re.MULTILINE)
    assert 5 < len(steps) <= _MOST_STEPS
