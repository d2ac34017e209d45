"""A minute of tasks that wait for tasks and of placement groups, in virtual clusters one inside the other: no start beyond a
maximum.

What the tasks say themselves is compared: when they ran, and when they were in ``ray.get``; and when GCS had reserved a group.
Whoever came back from ``ray.get`` may run beside as many as may; but nothing starts until that is repaid.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pytest
import ray
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.placement_group import placement_group, remove_placement_group
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


@contextlib.contextmanager
def groups_come_and_go(seed: int) -> Iterator[list[Ran]]:
    """In a thread of the driver's, one after the other, in the cluster that it is in; as something that runs."""
    chance, over, ran = random.Random(seed), threading.Event(), []  # type: tuple[random.Random, threading.Event, list[Ran]]

    def make() -> None:
        while not over.is_set():
            group = placement_group([{"CPU": 1}])
            if not group.wait(60):
                return
            over.wait(chance.uniform(0, 0.5))
            data = ray._private.state.state._connect_and_get_accessor().get_placement_group_info(group.id)
            stats = PlacementGroupTableData.FromString(data).stats
            created = stats.creation_request_received_ns / 1e9 + stats.end_to_end_creation_latency_us / 1e6
            ran.append(
                Ran("outer", 0, created - datetime.now(tz=timezone.utc).timestamp() + time.monotonic(), [], time.monotonic())
            )
            remove_placement_group(group)

    making = threading.Thread(target=make)
    making.start()
    try:
        yield ran
    finally:
        over.set()
        making.join()


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
        with groups_come_and_go(kills) as groups:
            while time.monotonic() - began < SECONDS:
                outer += [
                    task.remote("outer", chance.randint(0, 2), chance.uniform(0, 0.2), chance.randint(0, 10**9))
                    for _ in range(8)
                ]
                ray.wait(outer, num_returns=max(len(outer) - 8, 1), timeout=60)
                if killed < kills and time.monotonic() - began > (killed + 1) * SECONDS / (kills + 1):
                    kill_controller()
                    killed += 1
        for each in ray.get([*inner, *outer], timeout=180):
            ran += each
    assert killed == kills
    assert len(ran) > 200
    assert len(groups) > 5
    ran += groups
    assert any(each.waits for each in ran)
    assert beyond([each for each in ran if each.cluster == "inner"], INNER) == []
    assert beyond(ran, OUTER) == []
