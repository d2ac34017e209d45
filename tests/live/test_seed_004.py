"""The virtual cluster proposal as it is typed there, and Ray's libraries inside."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from tests.live.conftest import World, eventually, line_of, run_driver, waits
from tests.live.test_virtual_clusters import Idler, inside, sampled, timed, tree

import remora
from remora import PACK, STRICT_SPREAD, FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.errors import InvalidInputError
from remora.live.adapter.ray_port import RayPort


@contextlib.contextmanager
def two_nodes(world: World) -> Iterator[None]:
    """Two nodes with four CPUs each, and nothing else to run on."""
    others = [world.ids[name] for name in ("head", "a", "b")]
    with world.extra("raylet1", num_cpus=4), world.extra("raylet2", num_cpus=4):
        for node_id in others:
            remora.taint_node(node_id, {"walk": "through"})
        try:
            yield
        finally:
            for node_id in others:
                remora.untaint_node(node_id, ["walk"])


def shown(world: World, cluster_id: str) -> dict[str, tuple[float, float]]:
    """Total and available CPUs of the virtual nodes, by the node that they lie on."""
    rows = tree().get(cluster_id, {"nodes": []})["nodes"]
    return {world.name(row["node_id"]): (row["total"]["CPU"], row["total"]["CPU"] - row["used"].get("CPU", 0)) for row in rows}


@pytest.mark.core
def test_the_walk_through_state_by_state(world: World):
    with two_nodes(world):
        nodes = FixedSizeNodes(nodes=[FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], scheduling_policy=STRICT_SPREAD)
        with inside(fixed_size_nodes=[nodes]) as vc:
            assert shown(world, vc) == {"raylet1": (1, 1), "raylet2": (1, 1)}
            first = timed.options(num_cpus=1).remote(4)
            eventually(lambda: sum(free for _, free in shown(world, vc).values()) == 1)
            second = timed.options(num_cpus=1).remote(4)
            eventually(lambda: shown(world, vc) == {"raylet1": (1, 0), "raylet2": (1, 0)})
            third = timed.options(num_cpus=1).remote(0)
            assert waits(third)
            ray.get([first, second, third], timeout=60)
        eventually(lambda: vc not in tree())
        for view in RayPort().observe().nodes:
            if view.node_id in (world.ids["raylet1"], world.ids["raylet2"]):
                assert view.available["CPU"] == 4


def test_gang_scheduling_of_actors_by_a_job(world: World):
    code = """
        import remora
        from remora import *
        remora.init(address=address, logging_level="ERROR", log_to_driver=False, virtual_cluster=VirtualCluster(
            fixed_size_nodes=[FixedSizeNodes(nodes=[
                FixedSizeNode(resources={"CPU": 1}, labels={"bundle_index": "0"}),
                FixedSizeNode(resources={"CPU": 1}, labels={"bundle_index": "1"})], scheduling_policy=STRICT_SPREAD)]))
        @ray.remote
        class Actor:
            def node(self):
                return ray.get_runtime_context().get_node_id()
        actors = []
        for i in range(2):
            actors.append(Actor.options(num_cpus=1, node_labels={"bundle_index": In(str(i))}).remote())
        print(len(set(ray.get([actor.node.remote() for actor in actors]))), flush=True)
    """
    driver = run_driver(world, code)
    assert line_of(driver) == "2\n"
    driver.communicate(timeout=30)


def test_a_gpu_gang_borrows_the_cpus_that_it_does_not_name(world: World):
    nodes = [FixedSizeNode(resources={"accel": 0.5}), FixedSizeNode(resources={"accel": 0.25})]
    vc = VirtualCluster(fixed_size_nodes=[FixedSizeNodes(nodes=nodes, scheduling_policy=PACK)])
    remora.untaint_node(world.ids["gpu"], ["gpu_node"])
    try:
        with vc:
            ref = timed.options(num_cpus=1, resources={"accel": 0.5}).remote(0)
            assert ray.get(ref, timeout=60)
    finally:
        remora.taint_node(world.ids["gpu"], {"gpu_node": "true"})


def test_two_datasets_side_by_side(world: World):
    with inside(flexible_resource_min={"CPU": 5}, flexible_resource_max={"CPU": 5}):
        train_dataset_vc = VirtualCluster(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
        with train_dataset_vc:
            train = [timed.remote(0.1) for _ in range(8)]
        validation_dataset_vc = VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
        with validation_dataset_vc:
            validation = [timed.remote(0.1) for _ in range(2)]
        assert len(ray.get(train + validation, timeout=60)) == 10


def test_the_json_of_the_proposal_is_a_spec(world: World):
    nodes = '[{"resources": {"CPU": 1}}, {"resources": {"CPU": 1}}]'
    text = f'{{"fixed_size_nodes": [{{"nodes": {nodes}, "scheduling_policy": "STRICT_SPREAD"}}]}}'
    with VirtualCluster.parse(text):
        (row,) = [row for row in tree().values() if row["state"] == "READY"]
        assert row["spec"]["fixed_size_nodes"][0]["scheduling_policy"] == "STRICT_SPREAD"
        assert json.dumps(row)


@pytest.mark.core
def test_actors_with_affinity_stay_in_their_cluster(world: World):
    from remora import actor_affinity, label_not_in

    lonely = actor_affinity(label_not_in("role", ["lonely"], False))
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], STRICT_SPREAD)
    with inside(fixed_size_nodes=[nodes]) as vc:
        lies = {row["node_id"] for row in tree()[vc]["nodes"]}
        make = Idler.options(num_cpus=0.5, labels={"role": "lonely"}, scheduling_strategy=lonely)
        actors = [make.remote() for _ in range(3)]
        assert {*ray.get([actor.node.remote() for actor in actors[:2]], timeout=60)} == lies
        assert waits(actors[2].node.remote())
        ray.kill(actors[0])
        assert ray.get(actors[2].node.remote(), timeout=60) in lies
        for actor in actors[1:]:
            ray.kill(actor)


def test_ray_data_runs_inside_one_and_then_in_another(world: World):
    """Its coordinator, which stays, knows the nodes of one cluster only; and the second has nothing where the driver is."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    elsewhere = FixedSizeNodes([FixedSizeNode({"CPU": 2}), FixedSizeNode({"CPU": 1})], STRICT_SPREAD)
    specs: list[dict[str, Any]] = [
        {"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 1}},
        {"fixed_size_nodes": [elsewhere]},
    ]
    for spec, least, most in zip(specs, (1, 2), (1, 3), strict=True):
        with inside(**spec) as vc, sampled(vc) as seen:
            rows = ray.data.range(8, override_num_blocks=8).map_batches(slowly_doubled).take_all()
        assert sum(row["id"] for row in rows) == 8 * 7
        assert least <= max(seen) <= most  # the third worker may come when all is done


def test_a_library_that_asks_for_more_gets_it_within_the_maximum(world: World):
    from ray.autoscaler.sdk import request_resources

    with inside(flexible_resource_max={"CPU": 3}) as vc:
        request_resources(num_cpus=2)
        assert eventually(lambda: tree()[vc]["total"].get("CPU")) == 2
        request_resources(bundles=[{"CPU": 1}] * 9)
        eventually(lambda: ray.cluster_resources().get("CPU") == 3)
        with pytest.raises(InvalidInputError, match="num_cpus=-1"):
            request_resources(num_cpus=-1)


def slowly_doubled(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.2)
    return {"id": batch["id"] * 2}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, marks=pytest.mark.deep),
        '{"flexible_resource_max": {"CPU": 1}}',
        pytest.param(VirtualCluster(), marks=pytest.mark.deep),
    ],
)
def test_every_form_of_a_spec_is_taken_by_init(world: World, spec: Any):
    parsed = VirtualCluster.parse(spec)
    code = f"""
        import remora
        remora.init(address=address, logging_level="ERROR", log_to_driver=False, virtual_cluster={parsed.to_dict()!r})
        @ray.remote
        def one():
            return 1
        print(ray.get(one.remote()), flush=True)
    """
    driver = run_driver(world, code)
    assert line_of(driver) == "1\n"
    driver.communicate(timeout=30)
