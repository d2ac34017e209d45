"""Everything that makes a real autoscaling cluster grow and shrink, one story after another. ``make soak``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.autoscaler.sdk import request_resources
from ray.util.placement_group import placement_group, remove_placement_group
from tests.autoscaling_ray import autoscaling_cluster, eventually, kinds

import remora
from remora import VirtualCluster, actor_affinity, label_in, label_not_in
from remora.live.link import CONTROLLER, NAMESPACE

TOLERATES = {"tolerations": {"gpu_node": "exists()"}}
IDLE_SECONDS = 9


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with autoscaling_cluster(tmp_path_factory.mktemp("autoscaler")) as file:
        remora.attach()
        yield file
        remora.detach()


@pytest.fixture(autouse=True)
def empty(growing: Path) -> Iterator[None]:
    """Every story ends with no machine: whatever it asked for is withdrawn, whatever it kept is let go."""
    yield
    eventually(lambda: not kinds(), 60)
    assert remora.status()["machines"]["kept"] == []
    assert remora.status()["set_aside"] == []


@ray.remote(num_cpus=1)
def kind_of_node(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    here = ray.get_runtime_context().get_node_id()
    return next(node["Labels"]["kind"] for node in ray.nodes() if node["NodeID"] == here)


@ray.remote(num_cpus=1)
def node_id(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()


class _Cat:
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


Cat: Any = ray.remote(num_cpus=1)(_Cat)


def all_kinds() -> list[str]:
    """The machines that are there, also for whoever sees only those of a virtual cluster."""
    return sorted(node["labels"]["kind"] for node in remora.status()["nodes"] if "kind" in node["labels"])


def asked() -> list[str]:
    """What the journal says of requests."""
    return [entry["text"] for entry in remora.events() if entry["kind"] == "machines" and " asked for" in entry["text"]]


def test_a_selector_decides_which_type_is_started(growing: Path) -> None:
    before = time.monotonic()
    ref = kind_of_node.options(label_selector={"kind": "web"}).remote()
    eventually(lambda: any(row["asked"] for row in remora.status()["machines"]["types"]), 10)
    took = time.monotonic() - before
    assert ray.get(ref, timeout=40) == "web"
    assert kinds() == ["web"]
    assert took < 3.0, took


def test_a_fallback_is_taken_when_no_type_could_hold_the_first(growing: Path) -> None:
    fallback = [{"label_selector": {"kind": "web"}}]
    ref = kind_of_node.options(label_selector={"kind": "none"}, fallback_strategy=fallback).remote()
    assert ray.get(ref, timeout=40) == "web"


def test_machines_with_a_taint_go_while_plain_work_waits(growing: Path) -> None:
    assert ray.get(kind_of_node.options(num_gpus=1, **TOLERATES).remote(), timeout=40) == "gpu"
    refs = [kind_of_node.remote(5.0) for _ in range(18)]  # three machines of two CPUs: three rounds
    eventually(lambda: "gpu" not in kinds(), 40)
    assert kinds() == ["web", "web", "web"]
    assert set(ray.get(refs, timeout=60)) == {"web"}


def test_actors_that_keep_apart_get_their_machines_at_once(growing: Path) -> None:
    known = len(asked())
    apart = actor_affinity(label_not_in("app", ["cat"], False))
    cats = [Cat.options(labels={"app": "cat"}, scheduling_strategy=apart).remote() for _ in range(4)]
    refs = [cat.where.remote() for cat in cats]
    done, waits = ray.wait(refs, num_returns=3, timeout=40)
    assert len(set(ray.get(done))) == 3
    assert "3 nodes of type web asked for" in asked()[known]
    last = cats[refs.index(waits[0])]
    eventually(lambda: "type web is at its maximum of 3" in str(remora.explain(last)), 10)
    for cat in cats:
        ray.kill(cat)


def test_hard_affinity_to_what_is_placed_adds_no_machine(growing: Path) -> None:
    cat = Cat.options(num_cpus=2, labels={"app": "tom"}).remote()
    ray.get(cat.where.remote(), timeout=40)
    beside = Cat.options(scheduling_strategy=actor_affinity(label_in("app", ["tom"], False))).remote()
    time.sleep(4)
    assert kinds() == ["web"]
    assert "no new node would help" in str(remora.explain(beside))
    for each in (cat, beside):
        ray.kill(each)


def test_a_gang_gets_all_its_machines_or_none(growing: Path) -> None:
    too_many = placement_group([{"CPU": 1}] * 4, strategy="STRICT_SPREAD")
    time.sleep(4)
    assert kinds() == []
    remove_placement_group(too_many)
    gang = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
    assert gang.wait(40)
    assert kinds() == ["web", "web"]
    remove_placement_group(gang)


def test_an_elastic_cluster_grows_and_gives_its_machine_back(growing: Path) -> None:
    spec = {"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 4}}
    with VirtualCluster.parse(spec):
        assert all_kinds() == ["web"]
        refs = [node_id.remote(10.0) for _ in range(6)]
        eventually(lambda: all_kinds() == ["web", "web"], 40)
        assert len(set(ray.get(refs, timeout=80))) == 2
        assert all_kinds() == ["web", "web"], "never beyond its maximum"
        eventually(lambda: all_kinds() == ["web"], 60)  # the share that it gave back is held there, and keeps nothing busy
        time.sleep(IDLE_SECONDS + 3)
        assert all_kinds() == ["web"], "its minimum stays"


def test_a_minimum_beyond_all_types_is_refused(growing: Path) -> None:
    with pytest.raises(remora.RemoraError, match="can never fit"):
        VirtualCluster.parse({"flexible_resource_min": {"CPU": 100}}).__enter__()


def test_a_node_that_is_tainted_makes_another_come(growing: Path) -> None:
    first = ray.get(node_id.remote(), timeout=40)
    remora.taint_node(first, {"broken": "true"})
    assert ray.get(node_id.remote(), timeout=40) != first


def test_what_the_user_asked_for_stays(growing: Path) -> None:
    request_resources(bundles=[{"CPU": 2}], bundle_label_selectors=[{"kind": "web"}])
    assert ray.get(kind_of_node.options(num_gpus=1, **TOLERATES).remote(), timeout=40) == "gpu"
    eventually(lambda: kinds() == ["gpu", "web"], 30)
    eventually(lambda: kinds() == ["web"], 40)
    time.sleep(IDLE_SECONDS)
    assert kinds() == ["web"]
    request_resources(bundles=[])


def test_a_controller_that_is_killed_while_something_waits_asks_once(growing: Path) -> None:
    ref: Any = kind_of_node.options(num_gpus=1, **TOLERATES).remote()
    time.sleep(1.0)
    os.kill(ray.get(ray.get_actor(CONTROLLER, NAMESPACE).pid.remote()), signal.SIGKILL)
    assert ray.get(ref, timeout=60) == "gpu"
    assert kinds() == ["gpu"]
