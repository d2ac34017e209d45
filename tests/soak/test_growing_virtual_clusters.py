"""Virtual clusters on machines that come and go: minima as a whole, elastic demand, the queue, nesting. ``make soak``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from tests.autoscaling_ray import IDLE_SECONDS, Autoscaling, Cat, all_kinds, eventually, kept, node_id
from tests.soak.growing import assert_empty, attached_cluster

import remora
from remora import VirtualCluster, actor_affinity, label_not_in
from remora.live.api import virtual_clusters


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaling]:
    yield from attached_cluster(tmp_path_factory)


@pytest.fixture(autouse=True)
def empty(growing: Autoscaling) -> Iterator[None]:
    yield
    assert_empty()


def apart(nodes: int) -> dict[str, Any]:
    """A virtual cluster of so many whole machines."""
    listed = [{"resources": {"CPU": 2}}] * nodes
    return {"fixed_size_nodes": [{"nodes": listed, "scheduling_policy": "STRICT_SPREAD"}]}


@contextlib.contextmanager
def opened(spec: dict[str, Any]) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A virtual cluster of a thread of its own: the first event says that it is ready, the second ends it."""
    ready, over = threading.Event(), threading.Event()

    def live() -> None:
        with VirtualCluster.parse(spec):
            ready.set()
            over.wait(120)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield ready, over
    finally:
        over.set()
        thread.join(60)


def queued() -> dict[str, str]:
    """The virtual clusters that wait, with why."""
    return {row["cluster_id"]: row["reason"] for row in virtual_clusters() if row["state"] == "QUEUED"}


def test_an_elastic_cluster_grows_and_gives_its_machine_back(growing: Autoscaling) -> None:
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
        assert list(kept().values()) == [f"the minimum of {virtual_clusters()[0]['cluster_id']} lies there"]


def test_a_minimum_beyond_all_types_is_refused(growing: Autoscaling) -> None:
    with pytest.raises(remora.RemoraError, match="can never fit"):
        VirtualCluster.parse({"flexible_resource_min": {"CPU": 100}}).__enter__()


def test_a_minimum_that_does_not_fit_as_a_whole_starts_nothing_and_the_queue_keeps_its_order(growing: Autoscaling) -> None:
    """There may be three machines. The second of three cannot have its three beside the one of the first, so none comes for it,
    and the third, which could have one, does not overtake it."""
    with opened(apart(1)) as (first, first_over):
        assert first.wait(40)
        with opened(apart(3)) as (second, second_over):
            eventually(lambda: "type web is at its maximum of 3" in str(queued()), 20)
            with opened(apart(1)) as (third, _):
                eventually(lambda: len(queued()) == 2 and "is before it in the queue" in str(queued()), 20)
                time.sleep(3)
                assert all_kinds() == ["web"], "all of it or nothing"
                first_over.set()
                assert second.wait(40)
                assert not third.is_set()
                assert all_kinds() == ["web", "web", "web"]
                second_over.set()
                assert third.wait(40)


def test_clusters_in_a_queue_get_their_machines_at_once_where_there_may_be_enough(growing: Autoscaling) -> None:
    with opened(apart(1)) as (first, _), opened(apart(2)) as (second, _):
        assert first.wait(40)
        assert second.wait(40)
        assert all_kinds() == ["web", "web", "web"]
        assert sorted(kept()) == sorted(node["node_id"] for node in remora.status()["nodes"] if "kind" in node["labels"])


def test_what_grows_inside_of_another_grows_up_to_the_maximum_of_both(growing: Autoscaling) -> None:
    outer = {"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 4}}
    with VirtualCluster.parse(outer), VirtualCluster.parse({"flexible_resource_min": {"CPU": 1}}):
        refs = [node_id.remote(6.0) for _ in range(8)]
        eventually(lambda: all_kinds() == ["web", "web"], 40)
        assert len(set(ray.get(refs, timeout=80))) == 2
        assert all_kinds() == ["web", "web"], "its own has no maximum, the one above it has four CPUs"


def test_actors_that_keep_apart_in_a_share_make_machines_come(growing: Autoscaling) -> None:
    with VirtualCluster.parse({"flexible_resource_max": {"CPU": 6}}):
        keep_apart = actor_affinity(label_not_in("app", ["cat"], False))
        cats = [Cat.options(labels={"app": "cat"}, scheduling_strategy=keep_apart).remote() for _ in range(3)]
        assert len(set(ray.get([cat.where.remote() for cat in cats], timeout=60))) == 3
        assert all_kinds() == ["web", "web", "web"]
        for cat in cats:
            ray.kill(cat)


def test_a_group_in_a_share_makes_machines_come(growing: Autoscaling) -> None:
    with VirtualCluster.parse({"flexible_resource_max": {"CPU": 4}}):
        group = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
        assert group.wait(60)
        assert len(set(placement_group_table(group)["bundles_to_node_id"].values())) == 2
        assert all_kinds() == ["web", "web"]
        too_large = placement_group([{"CPU": 2}])
        time.sleep(4)
        assert all_kinds() == ["web", "web"], "it would be beyond the maximum of the share"
        for each in (group, too_large):
            remove_placement_group(each)


def test_a_share_grows_elsewhere_when_its_machine_is_tainted_meanwhile(growing: Autoscaling) -> None:
    with VirtualCluster.parse({"flexible_resource_max": {"CPU": 4}}):
        first = ray.get(node_id.remote(), timeout=60)
        remora.taint_node(first, {"broken": "true"})
        assert ray.get(node_id.remote(), timeout=60) != first
