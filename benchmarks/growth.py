"""How soon a machine is asked for, and comes: on a real Ray with autoscaler v2 whose machines are processes here.

    python benchmarks/growth.py              about a minute

From ``.remote()`` of an attached task that no node could hold, and of one that waits because all nodes are full, to the moment
in which the request for its machine stands in GCS, patience included; and until it ran. Beside it stock Ray in the same
cluster: from ``.remote()`` of a task of a job that is not attached until it ran on a machine that its demand made come. What
misses its goal is marked, and the exit code is 1.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.demo.machines import growing_ray

import remora
from remora.controller.scaling.machines import JOINED_SECONDS
from remora.live.adapter import asking, machine_messages
from remora.live.adapter.gcs_calls import CLUSTER_STATUS, GcsCalls

GOAL_SECONDS = 1.5
TIMES = 5
TYPES = {
    "web": {"resources": {"CPU": 2}, "labels": {"kind": "web"}, "max_workers": 3},
    "gpu": {"resources": {"CPU": 2, "GPU": 1}, "labels": {"kind": "gpu"}, "max_workers": 3},
}


def _work(seconds: float = 0.0) -> None:
    time.sleep(seconds)


work: Any = ray.remote(_work)


def standing(calls: GcsCalls) -> set[str]:
    """The types of which machines are asked for in our name."""
    return set(asking.read(machine_messages.constraint(calls(CLUSTER_STATUS, b""))))


def until(check: Callable[[], Any], seconds: float = 60.0) -> float:
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > seconds:
            raise RuntimeError("it did not happen in time")
        time.sleep(0.01)
    return time.monotonic() - began


def empty() -> bool:
    return len([node for node in ray.nodes() if node["Alive"]]) == 1


def attached(calls: GcsCalls, options: dict[str, Any], node_type: str) -> tuple[float, float]:
    """Seconds until the request stands, and until the task ran."""
    began = time.monotonic()
    ref = work.options(**options).remote()
    asked = until(lambda: node_type in standing(calls))
    ray.get(ref, timeout=60)
    return asked, time.monotonic() - began


def stock() -> float:
    began = time.monotonic()
    ray.get(work.options(num_gpus=1).remote(), timeout=60)
    return time.monotonic() - began


def show(what: str, seconds: list[float], goal: float | None = None) -> bool:
    good = goal is None or max(seconds) < goal
    against = f"   goal {goal:g} s{'' if good else '   MISSED'}" if goal is not None else ""
    print(f"{what:60} {statistics.median(seconds):5.2f} s, at most {max(seconds):5.2f} s{against}", flush=True)
    return good


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, growing_ray(Path(folder), TYPES, idle_timeout_minutes=0.03) as (address, _):
        ray.init(address, logging_level="ERROR", log_to_driver=False)
        rays = []
        for _ in range(2):
            rays.append(stock())
            until(empty)
        show("stock Ray: a task has run on a machine that came for it", rays)
        remora.attach()
        calls = GcsCalls(ray.get_runtime_context().gcs_address)
        hopeless, busy, ran = [], [], []
        for _ in range(TIMES):
            asked, done = attached(calls, {"num_gpus": 1, "num_cpus": 1}, "gpu")
            hopeless.append(asked)
            ran.append(done)
            until(empty)
        for _ in range(TIMES - 2):
            holder = work.options(num_cpus=2, label_selector={"kind": "web"}).remote(9.0)
            until(lambda: any(node["Labels"].get("kind") == "web" for node in ray.nodes() if node["Alive"]))
            until(lambda: not standing(calls))
            time.sleep(JOINED_SECONDS)  # so long nothing more of its type is asked for
            busy.append(attached(calls, {"num_cpus": 2, "label_selector": {"kind": "web"}}, "web")[0])
            ray.get(holder)
            until(empty)
        good = show("attached: asked for, where no node could hold the task", hopeless, GOAL_SECONDS)
        good &= show("attached: asked for, where all that could are busy", busy, GOAL_SECONDS)
        show("attached: the task has run on the machine", ran)
        remora.detach()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
