"""What a process is shown of the cluster: its virtual cluster if it is in one, and never a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray import available_resources, cluster_resources, nodes  # as users import them: before anything is attached
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually
from tests.live.test_virtual_clusters import tree

import remora
from remora import FixedSizeNode, FixedSizeNodes, In, UnknownNameError, VirtualCluster, VirtualClusterInfo
from remora.live.adapter import unpatched
from remora.live.inspect import tree_cache

TWO: dict[str, Any] = {"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 2}}
APART = FixedSizeNodes([FixedSizeNode({"CPU": 1}, {"slot": "0"}), FixedSizeNode({"CPU": 1}, {"slot": "1"})], "STRICT_SPREAD")


def cluster() -> VirtualClusterInfo:
    found: VirtualClusterInfo = ray.get_runtime_context().current_cluster()
    return found


def tokens_in(value: Any) -> list[str]:
    """Every token in it, however deep."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in (*tokens_in(key), *tokens_in(inner))]
    if isinstance(value, (list, tuple)):
        return [found for inner in value for found in tokens_in(inner)]
    return [value] if isinstance(value, str) and value.startswith("remora/") else []


@pytest.fixture
def two(world: World) -> Iterator[VirtualClusterInfo]:
    with VirtualCluster(**TWO):
        yield cluster()


@pytest.fixture(scope="session")
def look(world: World) -> Any:
    """A task that says what it sees, once it has slept."""

    def look(seconds: float = 0.0) -> dict[str, Any]:
        time.sleep(seconds)
        context = ray.get_runtime_context()
        return {
            "total": ray.cluster_resources(),
            "free": ray.available_resources(),
            "nodes": [node["NodeID"] for node in ray.nodes()],
            "held": context.get_assigned_resources(),
            "cluster": context.current_cluster().cluster_id(),
            "node": context.current_node().node_id(),
            "here": context.get_node_id(),
        }

    return ray.remote(look)


class _Looker:
    def look(self) -> dict[str, Any]:
        context = ray.get_runtime_context()
        return {"total": ray.cluster_resources(), "cluster": context.current_cluster().cluster_id()}

    def where(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


Looker: Any = ray.remote(num_cpus=0)(_Looker)


@pytest.mark.core
def test_in_no_virtual_cluster_everything_is_as_in_ray_without_tokens(world: World) -> None:
    eventually(lambda: tokens_in(unpatched.total_resources_per_node()))  # there are some to hide
    shown = [nodes(), cluster_resources(), available_resources(), ray._private.state.total_resources_per_node()]
    assert tokens_in(shown) == []
    assert {node["NodeID"] for node in nodes() if node["Alive"]} >= set(world.ids.values())
    assert cluster_resources()["CPU"] == 6
    assert cluster_resources()["object_store_memory"] > 0


def test_the_root_is_the_physical_cluster(world: World) -> None:
    root, node = cluster(), ray.get_runtime_context().current_node()
    assert (root.cluster_id(), root.parent_cluster()) == ("root", None)
    assert root.spec() == VirtualCluster()
    assert root.total_resources()["CPU"] == root.max_resources()["CPU"] == 6
    assert {each["NodeID"] for each in root.nodes() if each["Alive"]} >= set(world.ids.values())
    assert (node.node_id(), node.parent_node()) == (world.ids["head"], None)
    assert node.node_labels()["zone"] == "head"
    assert node.total_resources()["CPU"] == 1


@pytest.mark.core
def test_a_virtual_cluster_is_all_that_its_driver_sees(two: VirtualClusterInfo, world: World) -> None:
    assert cluster_resources()["CPU"] == 2
    assert available_resources()["CPU"] == 2
    assert "accel" not in cluster_resources()
    shown = nodes()
    assert {node["NodeID"] for node in shown} <= set(world.ids.values())
    assert sum(node["Resources"]["CPU"] for node in shown) == 2
    for node in shown:
        assert node["Alive"]
        assert node["NodeManagerAddress"]
        assert node["PhysicalNodeID"] == node["NodeID"]
        assert node["Labels"]["zone"] == world.name(node["NodeID"]).replace("gpu", "g")
        is_its_own = node["Labels"]["ray.io/vcluster_id"] == two.cluster_id()
        virtual = tree_cache.tree().nodes.get(node["Labels"]["ray.io/vnode_id"])
        assert is_its_own == (node["Resources"]["CPU"] > 0) == (virtual is not None and virtual[0] == two.cluster_id())
    assert tokens_in([shown, cluster_resources(), available_resources()]) == []


def test_every_node_that_ray_names_is_among_its_nodes_and_can_be_named(two: VirtualClusterInfo, where: Any) -> None:
    group = placement_group([{"CPU": 0.5}])
    assert group.wait(60)
    actor = Looker.options(num_cpus=0.5).remote()
    named = [
        ray.get(where.options(num_cpus=0.5).remote(), timeout=60),
        ray.get(actor.where.remote(), timeout=60),
        *placement_group_table(group)["bundles_to_node_id"].values(),
        *ray.experimental.get_object_locations([actor.where.remote()]).popitem()[1]["node_ids"],
    ]
    known = {node["NodeID"] for node in nodes() if node["Resources"]["CPU"]}
    assert set(named) <= known
    here = ray.get_runtime_context().get_node_id()
    assert here in {node["NodeID"] for node in nodes()}  # the driver's own, whether the cluster has anything there or not
    remove_placement_group(group)
    ray.kill(actor)
    for node_id in known:
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        assert ray.get(where.options(num_cpus=0.5, scheduling_strategy=there).remote(), timeout=60) == node_id
    nothing = where.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))
    assert ray.get(nothing.remote(), timeout=60) == here  # as libraries pin their coordinators
    assert sum("node:__internal_head__" in node["Resources"] for node in nodes()) == 1
    assert set(ray._private.state.total_resources_per_node()) == known


def test_labels_that_hold_now_are_shown(world: World) -> None:
    labels = ray.remote(lambda: ray.get_runtime_context().get_node_labels())

    def shown() -> dict[str, str]:
        return next(node["Labels"] for node in nodes() if node["Labels"]["zone"] in ("b", "b2"))

    remora.label_node(world.ids["b"], {"zone": "b2", "tier": "new"})
    remora.taint_node(world.ids["b"], {"k": "v"})
    try:
        assert (shown()["zone"], shown()["tier"], shown()["taint.remora.io/k"]) == ("b2", "new", "v")
        remora.untaint_node(world.ids["b"], ["k"])
        assert "taint.remora.io/k" not in shown()
        now = ray.get(labels.options(label_selector={"tier": "new"}).remote(), timeout=60)
        assert (now["zone"], now["tier"]) == ("b2", "new")
        spec = FixedSizeNodes([FixedSizeNode({"CPU": 1}, {"slot": "0"})] * 3, "STRICT_SPREAD")
        with VirtualCluster(fixed_size_nodes=[spec]):
            inside = ray.get(labels.options(label_selector={"tier": "new"}).remote(), timeout=60)
            assert (inside["zone"], inside["slot"]) == ("b2", "0")
            assert inside["ray.io/vnode_id"] == shown()["ray.io/vnode_id"]
    finally:
        remora.label_node(world.ids["b"], {"zone": "b", "tier": None})
    assert (shown()["zone"], shown().get("tier")) == ("b", None)


@pytest.mark.core
def test_its_tasks_and_actors_see_the_same(two: VirtualClusterInfo, look: Any) -> None:
    seen = ray.get(look.remote(), timeout=60)
    assert (seen["total"]["CPU"], seen["cluster"]) == (2, two.cluster_id())
    assert seen["held"] == {"CPU": 1}
    assert seen["here"] in seen["nodes"]
    assert seen["node"] in [node["Labels"]["ray.io/vnode_id"] for node in nodes()]
    actor = Looker.remote()
    assert ray.get(actor.look.remote(), timeout=60) == {"total": cluster_resources(), "cluster": two.cluster_id()}


def test_an_actor_from_outside_sees_the_whole_cluster(world: World) -> None:
    actor = Looker.remote()
    with VirtualCluster(**TWO):
        seen = ray.get(actor.look.remote(), timeout=60)
    assert (seen["total"]["CPU"], seen["cluster"]) == (6, "root")


def test_what_runs_is_not_available(two: VirtualClusterInfo, look: Any) -> None:
    running = look.remote(3.0)
    eventually(lambda: available_resources().get("CPU") == 1)
    assert two.available_resources()["CPU"] == 1
    assert cluster_resources()["CPU"] == 2
    mine = [node["Labels"]["ray.io/vnode_id"] for node in nodes() if node["Resources"]["CPU"]]
    assert sum(remora.VirtualNodeInfo(each).used_resources().get("CPU", 0) for each in mine) == 1
    assert ray.get(running, timeout=60)["free"].get("CPU") == 1
    eventually(lambda: available_resources().get("CPU") == 2)


def test_a_share_that_grows_is_seen(world: World, look: Any) -> None:
    """By what its driver tells of its tasks, the first at once and the others a moment later: once the first of them ends
    nothing waits any more, and Ray reports what waits only once a second."""
    eventually(lambda: not tree())  # what another has yet to give back it could not grow by
    with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3}, idle_seconds=1):
        info = cluster()
        assert (info.total_resources()["CPU"], info.max_resources()["CPU"]) == (1, 3)
        running = [look.remote(1.5) for _ in range(3)]
        eventually(lambda: cluster_resources()["CPU"] == 3)
        ray.get(running, timeout=60)
        eventually(lambda: cluster_resources()["CPU"] == 1)


def test_the_tree_can_be_walked_both_ways(two: VirtualClusterInfo, look: Any) -> None:
    one = VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    with one:
        inner = cluster()
        assert inner.spec() == one
        assert (inner.parent_cluster(), inner.child_clusters()) == (two, [])
        assert two.child_clusters() == [inner]
        assert two in inner.parent_cluster().parent_cluster().child_clusters()  # type: ignore[union-attr]
        assert (inner.total_resources()["CPU"], two.total_resources()["CPU"]) == (1, 2)
        assert two.available_resources()["CPU"] == 1  # the rest is its child's
        (entry,) = [node for node in inner.nodes() if node["Resources"]["CPU"]]
        virtual = remora.VirtualNodeInfo(entry["Labels"]["ray.io/vnode_id"])
        above = virtual.parent_node()
        assert above is not None
        assert above.node_labels()["ray.io/vcluster_id"] == two.cluster_id()
        physical = above.parent_node()
        assert physical is not None
        assert (physical.node_id(), physical.parent_node()) == (entry["NodeID"], None)
        assert physical.used_resources()["CPU"] >= above.total_resources()["CPU"]  # reserved, so not available
        assert ray.get(look.remote(), timeout=60)["node"] == virtual.node_id()
    assert cluster() == two


def test_a_cluster_that_is_gone_says_so(world: World) -> None:
    with VirtualCluster(**TWO):
        info = cluster()
        assert info.total_resources()["CPU"] == 2  # it has been seen, so that its absence is news
    eventually(lambda: info.cluster_id() not in tree_cache.tree().by_id)
    with pytest.raises(UnknownNameError, match=f"no virtual cluster '{info.cluster_id()}' any more"):
        info.total_resources()


def test_work_that_selects_a_virtual_node_is_in_that_one(world: World, look: Any) -> None:
    together = FixedSizeNodes([FixedSizeNode({"CPU": 1}, {"slot": str(each)}) for each in range(2)], "PACK")
    eventually(lambda: not tree())  # or they may not fit on one node
    with VirtualCluster(fixed_size_nodes=[together]):
        mine = [node for node in nodes() if node["Resources"]["CPU"]]
        by_slot = {node["Labels"]["slot"]: node["Labels"]["ray.io/vnode_id"] for node in mine}
        assert len({node["NodeID"] for node in mine}) == 1
        for slot in ("1", "0"):
            assert ray.get(look.options(node_labels={"slot": In(slot)}).remote(), timeout=60)["node"] == by_slot[slot]


def test_an_affinity_to_a_virtual_node_leads_to_its_physical_one(world: World, where: Any) -> None:
    with VirtualCluster(fixed_size_nodes=[APART]):
        for node in [each for each in nodes() if each["Resources"]["CPU"]]:
            for name in (node["NodeID"], node["Labels"]["ray.io/vnode_id"]):
                there = NodeAffinitySchedulingStrategy(name, soft=False)
                assert ray.get(where.options(scheduling_strategy=there).remote(), timeout=60) == node["NodeID"]
        with pytest.raises(ValueError, match="Invalid node_id 'vc99-1'"):
            NodeAffinitySchedulingStrategy("vc99-1", soft=False)


@pytest.mark.core
def test_placement_groups_show_no_tokens(two: VirtualClusterInfo, look: Any) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(60)
    try:
        table = placement_group_table(group)
        assert table["bundles"] == {0: {"CPU": 1.0}}
        assert tokens_in([table, placement_group_table()]) == []
        inside = look.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group))
        assert ray.get(inside.remote(), timeout=60)["held"] == {"CPU": 1}
    finally:
        remove_placement_group(group)


@pytest.mark.core
def test_objects_count_for_the_cluster_whose_work_made_them(two: VirtualClusterInfo, world: World) -> None:
    size = 4_000_000
    before = two.used_object_store_memory()

    @ray.remote
    def make() -> bytes:
        return b"x" * size

    mine = make.remote()
    ray.wait([mine], timeout=60)
    with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
        inner, theirs = cluster(), make.remote()
        ray.wait([theirs], timeout=60)
        eventually(lambda: size <= inner.used_object_store_memory() < 2 * size)  # tasks are reported once a second
        eventually(lambda: two.used_object_store_memory() - before >= 2 * size)
        root = inner.parent_cluster().parent_cluster()  # type: ignore[union-attr]
        assert root is not None
        assert root.used_object_store_memory() >= two.used_object_store_memory()
    del mine, theirs


def test_who_asks_often_asks_the_controller_rarely(two: VirtualClusterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(tree_cache.Tree):
        def __init__(self, rows: Any) -> None:
            asked.append(len(rows))
            super().__init__(rows)

    monkeypatch.setattr(tree_cache, "Tree", Counted)
    began = time.monotonic()
    while time.monotonic() - began < 2 * tree_cache.FRESH_SECONDS:
        cluster_resources()
    assert 1 <= len(asked) <= 4


def test_commands_work_from_within(two: VirtualClusterInfo, world: World) -> None:
    assert {node["node_id"] for node in remora.status()["nodes"]} >= set(world.ids.values())
    assert world.alive("a")


def test_a_detached_process_sees_what_ray_shows(stock: World) -> None:
    assert tokens_in(cluster_resources())
    assert not hasattr(ray.get_runtime_context(), "current_cluster")
    assert "node_table" not in vars(ray._private.state.state)
    with pytest.raises(ValueError, match="Invalid node_id"):
        NodeAffinitySchedulingStrategy("vc1-1", soft=False)
