"""The story of machines that come and go, on a Ray of its own that has an autoscaler."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from examples.demo.machines import growing_ray
from examples.demo.stage import START_SECONDS, Stage
from rich.status import Status

import remora
from remora import VirtualCluster
from remora.live.api import virtual_clusters

TYPES = {
    "web": {"resources": {"CPU": 2}, "labels": {"kind": "web"}, "max_workers": 3},
    "gpu": {
        "resources": {"CPU": 2, "GPU": 1},
        "labels": {"kind": "gpu", "taint.remora.io/gpu_node": "true"},
        "max_workers": 2,
    },
}
_GANG = VirtualCluster(
    fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}],
)
_IDLE_SECONDS = 3


def machines_come_and_go(number: int, status: Status) -> None:
    """A queued gang makes two machines come, and go"""
    status.update("starting a Ray with an autoscaler")
    with (
        tempfile.TemporaryDirectory(prefix="remora-demo-") as folder,
        growing_ray(Path(folder), TYPES, idle_timeout_minutes=_IDLE_SECONDS / 60) as (address, _),
    ):
        remora.init(address=address, logging_level="ERROR", log_to_driver=False)
        _play(number, address, status)


def _play(number: int, address: str, status: Status) -> None:
    stage = Stage(_nodes(), address)
    stage.title(number, (machines_come_and_go.__doc__ or "").strip())
    stage.show("There are two types of machines, and none of either is there.")
    status.update("a gang waits for its machines")
    began, ready, over = time.monotonic(), threading.Event(), threading.Event()
    gang = threading.Thread(target=_live, args=(stage, ready, over))
    gang.start()
    try:
        why = _eventually(lambda: next((row["reason"] for row in virtual_clusters() if "asked for" in row["reason"]), ""))
        stage.say(f"A gang of two whole nodes is queued: {why}.")
        if not ready.wait(START_SECONDS):
            raise RuntimeError("the machines of the demo did not come")
        stage.ids = _nodes()
        stage.show(
            f"Both came after {time.monotonic() - began:.0f} s, together, and none with a taint: a gang gets all or nothing."
        )
    finally:
        stage.clear()
        over.set()
        gang.join()
    status.update("its machines idle out")
    ended = time.monotonic()
    _eventually(lambda: len(_nodes()) == 1)
    stage.ids = _nodes()
    stage.show(
        f"Its share kept them for as long as it lived. {time.monotonic() - ended:.0f} s after its end both are gone: idle "
        f"machines may stay {_IDLE_SECONDS} s here."
    )


def _live(stage: Stage, ready: threading.Event, over: threading.Event) -> None:
    with _GANG:
        for name in ("left", "right"):
            ray.get(stage.seat(name, num_cpus=2).node.remote())
        ready.set()
        over.wait(START_SECONDS)


def _nodes() -> dict[str, str]:
    """The nodes that are there, under the names of their types."""
    found: dict[str, str] = {}
    for node in remora.status()["nodes"]:
        kind = "head" if node["head"] else node["labels"].get("kind", "?")
        found[kind if kind == "head" else f"{kind}-{len(found)}"] = node["node_id"]
    return found


def _eventually(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while not (found := check()):
        if time.monotonic() > deadline:
            raise RuntimeError("the demo waited for its machines in vain")
        time.sleep(0.1)
    return found
