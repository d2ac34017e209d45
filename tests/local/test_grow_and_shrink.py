"""Attached work on a real Ray with autoscaler v2: machines come for what waits, by the kernel's rules, and go when idle.

A short core; the rest is in tests/soak/test_growing_and_shrinking.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from tests.autoscaling_ray import TOLERATES, Autoscaling, autoscaling_cluster, eventually, kind_of_node, kinds

import remora
from remora import VirtualCluster

APART: dict[str, Any] = {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaling]:
    with autoscaling_cluster(tmp_path_factory.mktemp("autoscaler")) as cluster:
        remora.attach()
        yield cluster
        remora.detach()


def test_work_that_tolerates_a_taint_starts_a_machine_with_it_and_plain_work_never_does(growing: Autoscaling) -> None:
    began = time.monotonic()
    assert ray.get(kind_of_node.options(num_gpus=1, **TOLERATES).remote(), timeout=40) == "gpu"
    assert time.monotonic() - began < 20
    assert set(ray.get([kind_of_node.remote(1.0) for _ in range(4)], timeout=40)) == {"web"}
    assert kinds().count("gpu") == 1
    eventually(lambda: not kinds(), 40)


def test_a_queued_virtual_cluster_makes_two_machines_come_which_stay_while_it_lives(growing: Autoscaling) -> None:
    with VirtualCluster.parse(APART):
        assert kinds() == ["web", "web"]
        time.sleep(13)  # the idle timeout is nine seconds
        assert kinds() == ["web", "web"]
        assert len(remora.status()["machines"]["kept"]) == 2
    eventually(lambda: not kinds(), 40)
