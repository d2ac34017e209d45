"""Placement groups in virtual clusters, on a real Ray: what they have of their cluster nobody else can take."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import pytest
import ray
from ray.exceptions import RaySystemError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, line_of, run_driver
from tests.live.test_virtual_clusters import inside, used, which

import remora
from remora.errors import InvalidStrategyError
from remora.live.adapter import unpatched
from remora.wire.tokens import bundle_id, counts_for, share_of_token


def group_shares() -> set[str]:
    """The shares of placement groups of which anything stands on any node."""
    owners = [share_of_token(name) for total in unpatched.total_resources_per_node().values() for name in total]
    found = {counts_for(owner[0]) for owner in owners if owner is not None}
    return {each for each in found if counts_for(bundle_id(each, 0)) == each}


def nodes_of(group: Any) -> list[str]:
    return [str(node) for _, node in sorted(placement_group_table(group)["bundles_to_node_id"].items())]


def is_created(group: Any) -> bool:
    return str(placement_group_table(group)["state"]) == "CREATED"


@pytest.mark.core
def test_groups_lie_apart_or_together_and_leave_nothing_behind(world: World) -> None:
    with inside(flexible_resource_max={"CPU": 4}) as vc:
        apart = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD", bundle_label_selector=[{"zone": "in(a, b)"}] * 2)
        together = placement_group([{"CPU": 0.5}, {"CPU": 0.5}], strategy="STRICT_PACK")
        ray.get([apart.ready(), together.ready()], timeout=60)
        assert sorted(world.name(node) for node in nodes_of(apart)) == ["a", "b"]
        assert len(set(nodes_of(together))) == 1
        eventually(lambda: used(vc) == 3)
        assert len(group_shares()) == 2
        assert ray.cluster_resources()["CPU"] == 3
        remove_placement_group(apart)
        remove_placement_group(together)
        eventually(lambda: used(vc) == 0 and not group_shares())


def test_a_group_in_a_full_cluster_says_why_it_waits_and_comes_when_something_ends(world: World) -> None:
    with inside(flexible_resource_max={"CPU": 2}):
        first = placement_group([{"CPU": 2}])
        ray.get(first.ready(), timeout=60)
        second = placement_group([{"CPU": 1}])
        assert " has 2 of at most 2 CPU" in remora.explain(second).reason
        remove_placement_group(first)
        ray.get(second.ready(), timeout=60)
        remove_placement_group(second)


def test_a_group_that_is_refused_keeps_nothing(world: World) -> None:
    with inside(flexible_resource_max={"CPU": 2}):
        first = placement_group([{"CPU": 1}], name="one of its name")
        with pytest.raises(RaySystemError, match="one of its name"):
            placement_group([{"CPU": 1}], name="one of its name")
        remove_placement_group(first)
        eventually(lambda: not group_shares())
        with pytest.raises(InvalidStrategyError, match="is not known"):
            placement_group([{"CPU": 1}], topology_strategy={"zone": "TIGHT"})


@pytest.mark.parametrize("in_a_cluster", [True, False], ids=["in a virtual cluster", "outside"])
def test_a_group_lies_over_zones_as_its_topology_says(world: World, in_a_cluster: bool) -> None:
    with inside(flexible_resource_max={"CPU": 3}) if in_a_cluster else contextlib.nullcontext():
        one = placement_group([{"CPU": 1}] * 2, topology_strategy={"zone": "STRICT_PACK"})
        assert one.wait(60)
        assert len(set(nodes_of(one))) == 1
        remove_placement_group(one)
        two = placement_group([{"CPU": 1}] * 2, topology_strategy=[{"zone": "STRICT_SPREAD"}])
        assert two.wait(60)
        assert len(set(nodes_of(two))) == 2
        remove_placement_group(two)
        eventually(lambda: not group_shares())


def test_code_that_has_rays_own_function_waits_until_its_group_fits(world: World) -> None:
    """Somebody may have got hold of it before the layer was there."""
    stock = sys.modules["ray.util.placement_group"].placement_group.__wrapped__
    with inside(flexible_resource_max={"CPU": 1}) as vc:
        group = stock([{"CPU": 1}])
        assert group.wait(60)
        assert len(group_shares()) == 1
        eventually(lambda: used(vc) == 1)
        remove_placement_group(group)
        eventually(lambda: not group_shares())


def test_a_task_in_a_full_cluster_makes_a_group_while_it_waits(world: World) -> None:
    """Of what it gives back while it waits: as in Ray, where a group may have the CPU of a worker that waits."""

    @ray.remote
    def makes_a_group() -> str:
        group = placement_group([{"CPU": 1}])
        ray.get(group.ready())
        answer: str = ray.get(which.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote())
        remove_placement_group(group)
        return answer

    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}) as vc:
        assert ray.get(makes_a_group.remote(), timeout=60) == vc


@pytest.mark.core
def test_a_killed_driver_gives_back_what_its_group_had(world: World) -> None:
    code = """
        import time
        import remora
        from ray.util import placement_group

        remora.init(address=address, logging_level="ERROR", log_to_driver=False,
                    virtual_cluster={"flexible_resource_max": {"CPU": 2}})
        print(placement_group([{"CPU": 1}, {"CPU": 1}]).wait(60), flush=True)
        time.sleep(600)
        """
    with run_driver(world, code) as driver:
        try:
            assert line_of(driver) == "True\n"
            assert len(group_shares()) == 1
        finally:
            driver.kill()
    eventually(lambda: not group_shares())


class _Sitter:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


Sitter: Any = ray.remote(max_restarts=-1, max_task_retries=-1)(_Sitter)


def has_stand_in() -> bool:
    return any(key.startswith("hold/") and "+" in str(raw_hold) for key, raw_hold in holds().items())


def holds() -> dict[str, bytes | None]:
    from remora.live.adapter.ray_port import RayPort

    port = RayPort()
    return {key: port.get(key) for key in port.keys("hold/")}


def end(world: World, node_id: str) -> None:
    (node,) = (node for node in world.cluster.worker_nodes if node.node_id == node_id)
    world.cluster.remove_node(node, allow_graceful=False)


def in_zone_x(world: World, name: str) -> Any:
    return world.extra(name, num_cpus=1, labels={"zone": "x"})


def sit() -> tuple[Any, Any, str]:
    """A group of one node of its zone, an actor in it, and where they are, once the group would survive that node."""
    group = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "x"}])
    ray.get(group.ready(), timeout=60)
    actor = Sitter.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group), num_cpus=1).remote()
    node = ray.get(actor.node.remote(), timeout=60)
    eventually(has_stand_in)
    return group, actor, node


def test_a_bundle_that_loses_its_node_is_placed_elsewhere_and_its_actor_follows(world: World) -> None:
    with in_zone_x(world, "x"), in_zone_x(world, "y"), inside(flexible_resource_max={"CPU": 2}) as vc:
        group, actor, first = sit()
        end(world, first)
        eventually(lambda: nodes_of(group)[0] not in ("", first) and is_created(group))
        eventually(lambda: ray.get(actor.node.remote(), timeout=60) != first)
        assert used(vc) == 1
        remove_placement_group(group)
        eventually(lambda: not group_shares())


@pytest.mark.deep
def test_one_that_finds_no_place_holds_up_no_other_group_and_is_placed_when_a_node_joins(world: World) -> None:
    with in_zone_x(world, "x"), inside(flexible_resource_max={"CPU": 2}):
        group, actor, first = sit()
        end(world, first)
        eventually(lambda: not is_created(group))
        other = placement_group([{"CPU": 0.5}])
        began = time.monotonic()
        assert other.wait(30)  # for a moment Ray tries nothing but the one that lost its node
        assert time.monotonic() - began < 20
        remove_placement_group(other)
        assert "bundle fits nowhere" in remora.explain(group.id.hex()).reason
        eventually(has_stand_in)
        with in_zone_x(world, "z"):
            eventually(lambda: nodes_of(group) == [world.ids["z"]] and is_created(group))
            assert ray.get(actor.node.remote(), timeout=60) == world.ids["z"]
            remove_placement_group(group)
            eventually(lambda: not group_shares())
