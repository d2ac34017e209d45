"""What a worker that waits says to the controller, and in which order."""

from __future__ import annotations

import time
from typing import Any

import ray
from tests.live.conftest import World

from remora.ray_seam.blocking import _Waiting


class _Slow:
    """A controller that hears of waits late, as one does that was killed: Ray sends it again what it had been told."""

    def __init__(self) -> None:
        self._heard: list[str] = []

    @ray.method(concurrency_group="slow")
    def wait_in(self, *_: Any) -> None:
        time.sleep(0.5)
        self._heard.append("waits")

    def come_back(self, *_: Any) -> str:
        self._heard.append("is back")
        return "go"

    def heard(self) -> list[str]:
        return self._heard


def test_whoever_comes_back_was_heard_before_to_wait(world: World) -> None:
    slow = ray.remote(concurrency_groups={"slow": 4})(_Slow).options(num_cpus=0).remote()
    waiting = _Waiting(ray._private.worker.global_worker, ("vc", {"CPU": 1.0}), lambda: slow)
    waiting.tell()
    waiting.tell()
    waiting.end()
    assert ray.get(slow.heard.remote(), timeout=60) == ["waits", "waits", "is back"]
    ray.kill(slow)
