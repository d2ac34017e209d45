"""One real Ray of four raylets on this machine for all tests here, and a driver that is attached to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import remora

QUICK = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "2",
}

NODES: dict[str, dict[str, Any]] = {
    "head": {"num_cpus": 1, "labels": {"zone": "head", "rare-resource.remora.io/jewel": "true"}, "include_dashboard": False},
    "a": {"num_cpus": 2, "labels": {"zone": "a"}},
    "b": {"num_cpus": 2, "labels": {"zone": "b"}},
    "gpu": {"num_cpus": 1, "resources": {"accel": 1}, "labels": {"zone": "g", "taint.remora.io/gpu_node": "true"}},
}


@dataclass
class World:
    """The cluster with its nodes by name."""

    cluster: Any
    ids: dict[str, str]

    def name(self, node_id: str) -> str:
        return next(name for name, known in self.ids.items() if known == node_id)

    def names(self, refs: list[Any], timeout: float = 240) -> list[str]:
        return [self.name(node_id) for node_id in ray.get(refs, timeout=timeout)]


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    os.environ.update(QUICK)  # read by the raylets; a dead node is noticed in a second
    cluster = Cluster(initialize_head=True, head_node_args=NODES["head"])
    for name in ("a", "b", "gpu"):
        cluster.add_node(**NODES[name])
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False, namespace="tests")
    by_zone = {node["Labels"]["zone"]: node["NodeID"] for node in ray.nodes()}
    yield World(cluster, {"head": by_zone["head"], "a": by_zone["a"], "b": by_zone["b"], "gpu": by_zone["g"]})
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def where(world: World) -> Any:
    """A task that says on which node it ran."""

    def where(seconds: float = 0.0) -> str:
        time.sleep(seconds)
        return str(ray.get_runtime_context().get_node_id())

    return ray.remote(where)


def eventually(check: Callable[[], Any], timeout: float = 90.0) -> Any:
    """The first true answer; the cluster tells nobody, so it has to be asked."""
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return answer


def waits(ref: Any, seconds: float = 1.0) -> bool:
    """Whether it is still not done after that long: for things that must not happen there is nothing to await."""
    return not ray.wait([ref], timeout=seconds)[0]
