"""The controller killed ten times during a minute of load in a virtual cluster: no limit broken, nothing lost."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import ray
from tests.live.conftest import eventually
from tests.live.test_virtual_clusters import inside, most_at_once, sampled, timed

SECONDS, KILLS = 60, 10


def pid() -> int:
    found: int = ray.get(ray.get_actor("remora-controller", namespace="remora").pid.remote())
    return found


def kill_controller() -> None:
    before = pid()
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid() != before)


def test_killed_ten_times_in_a_minute(cluster: Any):
    refs: list[Any] = []
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3}) as vc, sampled(vc) as seen:
        began = time.monotonic()
        for number in range(KILLS):
            while time.monotonic() - began < (number + 1) * SECONDS / KILLS:
                refs += [timed.remote(0.05) for _ in range(20)]
                ray.wait(refs, num_returns=max(len(refs) - 40, 1), timeout=30)
            kill_controller()
        ran = ray.get(refs, timeout=60)
    assert len(ran) == len(refs) > 500
    assert most_at_once(ran) == 3
    assert max(seen) <= 3
