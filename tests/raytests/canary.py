"""Copied to Ray's tests and run first: are drivers, workers, actors, nested work and drivers of their own really attached?

Stock they are really not; a run that attached nothing would find nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import ray
from ray._common.test_utils import run_string_as_driver

WANT = not os.environ.get("RAYTESTS_STOCK")


def look() -> tuple[bool, bool]:
    """Whether this process is attached, and whether what runs here holds a token."""
    found = sys.modules.get("remora.live.installed")
    held = ray._private.worker.global_worker.core_worker.resource_ids()
    return found is not None and found.current() is not None, any(name.startswith("remora/") for name in held)


def check() -> None:
    @ray.remote
    def task(depth: int) -> list[Any]:
        return [look(), *(ray.get(task.remote(depth - 1)) if depth else [])]

    class Actor:
        def look(self) -> list[Any]:
            return [look(), *ray.get(task.remote(0))]

    ray.put(0)  # connects where nobody has
    assert look()[0] is WANT
    assert all(each == (WANT, WANT) for each in ray.get(task.remote(1)))
    assert [each[0] for each in ray.get(ray.remote(Actor).remote().look.remote())] == [WANT, WANT]


def test_regular(ray_start_regular):
    check()


def test_cluster(ray_start_cluster):
    ray_start_cluster.add_node(num_cpus=2)
    ray.init(address=ray_start_cluster.address)
    check()


def test_auto_init(shutdown_only):
    check()


def test_driver_of_its_own(ray_start_regular):
    code = f"""
import sys, ray
ray.init({ray_start_regular["address"]!r})
found = sys.modules.get("remora.live.installed")
print("ATTACHED", found is not None and found.current() is not None)
"""
    assert f"ATTACHED {WANT}" in run_string_as_driver(code)


def test_again_after_shutdown(shutdown_only):
    for _ in range(2):
        ray.init(num_cpus=2)
        check()
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(pytest.main(["-sv", __file__]))
