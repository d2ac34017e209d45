"""A minute of tasks that wait for tasks, in virtual clusters one inside the other: no start beyond a maximum.

What the tasks say themselves is compared: when they ran, and when they were in ``ray.get``. Whoever came back from there may
run beside as many as may; but nothing starts until that is repaid.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any, NamedTuple

import pytest
import ray
from tests.live.test_virtual_clusters import inside
from tests.soak.test_controller_killed import kill_controller

SECONDS = 60
OUTER, INNER = 3, 1


class Ran(NamedTuple):
    cluster: str
    pid: int
    began: float
    waits: list[tuple[float, float]]
    ended: float


def work(cluster: str, children: int, seconds: float, seed: int) -> list[Ran]:
    """Works, waits for its children, works again, perhaps waits again."""
    chance = random.Random(seed)
    began, waits, ran = time.monotonic(), [], []
    for _ in range(children):
        time.sleep(seconds)
        below = task.remote(cluster, max(children - 1, 0), chance.uniform(0.02, 0.3), chance.randint(0, 10**9))
        at = time.monotonic()
        ran += ray.get(below)
        waits.append((at, time.monotonic()))
    time.sleep(seconds)
    return [*ran, Ran(cluster, os.getpid(), began, waits, time.monotonic())]


task: Any = ray.remote(max_retries=0)(work)


def beyond(ran: list[Ran], most: int) -> list[tuple[Ran, list[Ran]]]:
    """What was started while as many ran as may, and these."""
    beside = ((each, [other for other in ran if other is not each and is_running(other, each.began)]) for each in ran)
    return [(each, others) for each, others in beside if len(others) >= most]


def is_running(each: Ran, at: float) -> bool:
    return each.began <= at < each.ended and not any(begin <= at < end for begin, end in each.waits)


@pytest.mark.parametrize("kills", [0, 4], ids=["undisturbed", "controller killed"])
def test_no_start_is_beyond_a_maximum(cluster: Any, kills: int):
    chance = random.Random(kills)
    most = {"CPU": OUTER}
    ran: list[Ran] = []
    with inside(flexible_resource_min=most, flexible_resource_max=most):
        with inside(flexible_resource_max={"CPU": INNER}):
            inner = [task.remote("inner", 2, 0.05, chance.randint(0, 10**9)) for _ in range(12)]
        outer: list[Any] = []
        began, killed = time.monotonic(), 0
        while time.monotonic() - began < SECONDS:
            outer += [
                task.remote("outer", chance.randint(0, 2), chance.uniform(0, 0.2), chance.randint(0, 10**9)) for _ in range(8)
            ]
            ray.wait(outer, num_returns=max(len(outer) - 8, 1), timeout=60)
            if killed < kills and time.monotonic() - began > (killed + 1) * SECONDS / (kills + 1):
                kill_controller()
                killed += 1
        for each in ray.get([*inner, *outer], timeout=180):
            ran += each
    assert killed == kills
    assert len(ran) > 200
    assert any(each.waits for each in ran)
    assert beyond([each for each in ran if each.cluster == "inner"], INNER) == []
    assert beyond(ran, OUTER) == []
