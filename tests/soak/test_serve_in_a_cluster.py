"""Ray Serve in a virtual cluster, and in a job with a selector of its own: it looks for the head, pins its coordinators, and
compares nodes by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import remora
from remora import VirtualCluster

serve: Any = pytest.importorskip("ray.serve", reason="Ray Serve is part of ray[serve]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "labels": {"zone": "head"}, "include_dashboard": False})
    for zone in ("a", "b"):
        made.add_node(num_cpus=2, labels={"zone": zone})
    made.add_node(num_cpus=2, labels={"zone": "t", "taint.remora.io/closed": "true"})
    yield made
    made.shutdown()


def where_replicas_run() -> set[str]:
    """Deploy two replicas, ask them often, and return the zones that answered."""

    class Here:
        def __call__(self) -> str:
            return str(ray.get_runtime_context().get_node_labels()["zone"])

    deployment: Any = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1})(Here)
    try:
        handle = serve.run(deployment.bind(), route_prefix=None)
        return {handle.remote().result(timeout_s=60) for _ in range(40)}
    finally:
        serve.shutdown()


@pytest.mark.parametrize("spec", [{"CPU": 2}, {"CPU": 3}], ids=repr)
def test_it_starts_and_answers_in_a_virtual_cluster(cluster: Any, spec: dict[str, float]) -> None:
    remora.init(address=cluster.address, log_to_driver=False)
    try:
        with VirtualCluster(flexible_resource_min=spec, flexible_resource_max=spec):
            inside = {node["Labels"]["zone"] for node in ray.nodes() if node["Resources"].get("CPU")}
            assert where_replicas_run() <= inside - {"t"}
    finally:
        ray.shutdown()


def test_it_starts_and_answers_in_a_job_with_a_selector(cluster: Any) -> None:
    remora.init(address=cluster.address, log_to_driver=False, label_selector={"zone": "in(a, b)"})
    try:
        assert where_replicas_run() <= {"a", "b"}
    finally:
        ray.shutdown()
