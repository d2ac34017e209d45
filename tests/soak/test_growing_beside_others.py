"""Growing where not all goes well: requests of others, machines that cannot be had, a controller that dies. ``make soak``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.autoscaler.sdk import request_resources
from tests.autoscaling_ray import (
    IDLE_SECONDS,
    ROOT,
    TOLERATES,
    TYPES,
    Autoscaling,
    all_kinds,
    asked,
    eventually,
    kept,
    kind_of_node,
    kinds,
)
from tests.soak.growing import assert_empty, attached_cluster

import remora
from remora import VirtualCluster
from remora.live.link import CONTROLLER, NAMESPACE

BIG = {"resources": {"CPU": 4}, "labels": {"kind": "big"}, "max_workers": 1}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaling]:
    """There may be no more than four machines of all types together."""
    yield from attached_cluster(tmp_path_factory, types={**TYPES, "big": BIG}, max_workers=4)


@pytest.fixture(autouse=True)
def empty(growing: Autoscaling) -> Iterator[None]:
    yield
    assert_empty()


def kill_controller() -> None:
    os.kill(ray.get(ray.get_actor(CONTROLLER, NAMESPACE).pid.remote()), signal.SIGKILL)


def gpu_task() -> Any:
    return kind_of_node.options(num_gpus=1, **TOLERATES).remote()


def constraint() -> list[tuple[dict[str, float], int]]:
    """What stands in GCS, whoever asked for it."""
    found = ray._private.worker.global_worker.gcs_client.get_cluster_resource_state
    from ray.core.generated.autoscaler_pb2 import GetClusterResourceStateReply

    reply = GetClusterResourceStateReply.FromString(found())
    return [
        (dict(each.request.resources_bundle), each.count)
        for constraint in reply.cluster_resource_state.cluster_resource_constraints
        for each in constraint.resource_requests
    ]


# Others


def test_what_the_user_asked_for_stays(growing: Autoscaling) -> None:
    request_resources(bundles=[{"CPU": 2}], bundle_label_selectors=[{"kind": "web"}])
    assert ray.get(gpu_task(), timeout=40) == "gpu"
    eventually(lambda: kinds() == ["gpu", "web"], 30)
    eventually(lambda: kinds() == ["web"], 40)
    time.sleep(IDLE_SECONDS)
    assert kinds() == ["web"]
    assert constraint() == [({"CPU": 2.0}, 1)]
    request_resources(bundles=[])


PLAIN = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=1)
def here():
    import time; time.sleep(4)
    node = ray.get_runtime_context().get_node_id()
    return next(each["Labels"]["kind"] for each in ray.nodes() if each["NodeID"] == node)
print(ray.get([here.options(label_selector={"kind": "big"}).remote() for _ in range(4)], timeout=60))
"""

ATTACHED = PLAIN.replace("ray.init(", "import remora\nremora.init(").replace("range(4)", "range(2)").replace('"big"', '"web"')


@contextlib.contextmanager
def program(text: str, address: str) -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen([sys.executable, "-c", text, address], stdout=subprocess.PIPE, text=True, env=environ)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()


def test_a_plain_ray_job_makes_its_machines_come_as_before(growing: Autoscaling) -> None:
    with program(PLAIN, growing.address) as plain:
        assert ray.get(gpu_task(), timeout=40) == "gpu"
        out, _ = plain.communicate(timeout=80)
    assert out.splitlines()[-1] == str(["big"] * 4)  # raylets may have said something before
    assert not any("big" in text for text in asked()), "Ray saw to it by itself"


def test_two_drivers_at_once_share_machines(growing: Autoscaling) -> None:
    with program(ATTACHED, growing.address) as other:
        refs = [kind_of_node.options(label_selector={"kind": "web"}).remote(4.0) for _ in range(2)]
        eventually(lambda: kinds() == ["web", "web"], 60)
        assert set(ray.get(refs, timeout=60)) == {"web"}
        out, _ = other.communicate(timeout=80)
    assert out.splitlines()[-1] == str(["web"] * 2)
    assert kinds() == ["web", "web"], "four CPUs are two machines"


# What cannot be had


def test_the_maximum_of_all_together_is_named(growing: Autoscaling) -> None:
    holders = [kind_of_node.options(label_selector={"kind": "web"}).remote(15.0) for _ in range(6)]
    holders.append(kind_of_node.options(label_selector={"kind": "big"}).remote(15.0))
    eventually(lambda: kinds() == ["big", "web", "web", "web"], 60)
    ref = gpu_task()
    eventually(lambda: "the cluster is at its maximum of 4 nodes" in str(remora.explain(ref)), 20)
    ray.get(holders, timeout=60)
    assert ray.get(ref, timeout=60) == "gpu", "it comes when another has gone"


def test_a_type_that_fails_rests_and_the_next_choice_is_started_with_a_reason(growing: Autoscaling) -> None:
    growing.lack(web="InsufficientInstanceCapacity")
    ref = kind_of_node.remote()
    said = eventually(lambda: why if "type web cannot be had now" in (why := str(remora.explain(ref))) else "", 20)
    assert "(the provider could not start it" in said, "Ray 2.60 does not hand on what it said"
    assert "others are started instead" in said
    assert ray.get(ref, timeout=40) == "big"
    (row,) = [row for row in remora.status()["machines"]["types"] if row["name"] == "web"]
    assert "could not start it" in row["resting"]
    assert row["asked"] == 0, "it is not asked for while it rests"
    known = len([text for text in asked() if "of type web" in text])
    time.sleep(10)
    assert len([text for text in asked() if "of type web" in text]) == known
    growing.lack()
    again = kind_of_node.options(label_selector={"kind": "web"}).remote()
    assert ray.get(again, timeout=90) == "web", "it is tried again after a while"


# A controller that dies


def test_a_controller_that_dies_before_it_asked(growing: Autoscaling) -> None:
    ref = gpu_task()
    kill_controller()
    assert ray.get(ref, timeout=60) == "gpu"
    assert kinds() == ["gpu"]


def test_a_controller_that_dies_between_asking_and_the_machine(growing: Autoscaling) -> None:
    ref = gpu_task()
    eventually(constraint, 10)
    kill_controller()
    assert ray.get(ref, timeout=60) == "gpu"
    time.sleep(3)
    assert kinds() == ["gpu"], "nothing was asked for twice"


def test_a_controller_that_dies_when_the_machine_has_joined(growing: Autoscaling) -> None:
    ref = gpu_task()
    eventually(kinds, 40)
    kill_controller()
    assert ray.get(ref, timeout=60) == "gpu"
    time.sleep(3)
    assert kinds() == ["gpu"]


def test_a_controller_that_dies_while_it_keeps_a_machine(growing: Autoscaling) -> None:
    with VirtualCluster.parse({"flexible_resource_min": {"CPU": 2}}):
        eventually(kept, 20)
        there = all_kinds()
        kill_controller()
        time.sleep(IDLE_SECONDS + 4)
        assert all_kinds() == there
        assert len(kept()) == 1


def test_what_a_dead_controller_asked_for_and_nobody_needs_is_withdrawn(growing: Autoscaling) -> None:
    growing.lack(gpu="late")
    ref = gpu_task()
    eventually(constraint, 10)
    kill_controller()
    ray.cancel(ref)
    eventually(lambda: not constraint(), 40)
    growing.lack()
    eventually(lambda: kinds() == ["gpu"], 30)  # it had been begun: it comes, and goes
