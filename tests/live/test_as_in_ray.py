"""What Ray does is what happens where nothing of ours was asked for: work pinned to a node that is no good fails, fractions are
cut off, errors are Ray's, and no frame of ours is in a traceback."""

from __future__ import annotations

import re
import traceback
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnschedulableError, RayTaskError, TaskUnschedulableError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from tests.live.conftest import World, waits

import remora
from remora import Exists, FixedSizeNode, FixedSizeNodes, VirtualCluster

NOWHERE = "ab" * 28


class _Sitter:
    def ping(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


Sitter: Any = ray.remote(_Sitter)


def at(node_id: str, **more: Any) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False, **more)


def no_good(world: World) -> list[dict[str, Any]]:
    return [
        {"scheduling_strategy": at(NOWHERE)},
        {"scheduling_strategy": at(world.ids["a"]), "num_cpus": 3},
        {"scheduling_strategy": at(world.ids["a"]), "num_gpus": 1},
        {"scheduling_strategy": at(world.ids["a"]), "resources": {"accel": 0.1}},
        {"scheduling_strategy": at(world.ids["gpu"]), "num_cpus": 2},
        {"scheduling_strategy": at(world.ids["gpu"]), "num_cpus": 2, "tolerations": {"gpu_node": Exists()}},
        {"label_selector": {"ray.io/node-id": NOWHERE}},
        {"label_selector": {"ray.io/node-id": world.ids["b"]}, "num_cpus": 3},
    ]


def test_a_task_pinned_to_a_node_that_is_no_good_fails(world: World, where: Any) -> None:
    for options in no_good(world):
        with pytest.raises(TaskUnschedulableError):
            ray.get(where.options(**options).remote(), timeout=30)


def test_an_actor_too(world: World) -> None:
    for options in no_good(world)[::3]:
        with pytest.raises(ActorUnschedulableError):
            ray.get(Sitter.options(**options).remote().ping.remote(), timeout=30)
    with pytest.raises(ActorUnschedulableError):
        ray.get(Sitter.options(labels={"type": "cat"}, scheduling_strategy=at(NOWHERE)).remote().ping.remote(), timeout=30)


def test_inside_a_virtual_cluster_too(world: World, where: Any) -> None:
    with VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 1})] * 2, "STRICT_SPREAD")]):
        for strategy, cpus in ((at(NOWHERE), 1), (at(ray.nodes()[0]["NodeID"]), 2)):
            with pytest.raises(TaskUnschedulableError):
                ray.get(where.options(scheduling_strategy=strategy, num_cpus=cpus).remote(), timeout=30)


def test_it_fails_when_the_node_dies_while_it_waits(world: World, where: Any) -> None:
    with world.extra("late", num_cpus=1, labels={"zone": "late"}) as kill:
        there = {"scheduling_strategy": at(world.ids["late"])}
        sitter = Sitter.options(num_cpus=1, max_restarts=-1, **there).remote()
        assert ray.get(sitter.ping.remote(), timeout=60) == world.ids["late"]
        waiting = [where.options(**there).remote(), where.options(num_cpus=0.5, **there).remote()]
        actor = Sitter.options(num_cpus=1, **there).remote()
        assert waits(waiting[0])
        kill()
        for ref in waiting:
            with pytest.raises(TaskUnschedulableError):
                ray.get(ref, timeout=60)
        with pytest.raises(ActorUnschedulableError):  # it was to restart there
            ray.get(sitter.ping.remote(), timeout=60)
        with pytest.raises((ActorUnschedulableError, ActorDiedError)):  # by who finds out first, as in stock Ray
            ray.get(actor.ping.remote(), timeout=60)


def test_on_a_tainted_node_it_waits_and_fails_with_it(world: World, where: Any) -> None:
    with world.extra("late", num_cpus=1, labels={"zone": "late", "taint.remora.io/closed": "true"}) as kill:
        ref = where.options(scheduling_strategy=at(world.ids["late"])).remote()
        assert waits(ref)
        kill()
        with pytest.raises(TaskUnschedulableError):
            ray.get(ref, timeout=60)


def test_where_it_should_fail_if_nothing_is_free_at_once(world: World, where: Any) -> None:
    here = at(world.ids["a"], _fail_on_unavailable=True)
    assert ray.get(where.options(scheduling_strategy=here).remote(), timeout=60) == world.ids["a"]
    holder = Sitter.options(num_cpus=2, scheduling_strategy=at(world.ids["a"])).remote()
    ray.get(holder.ping.remote(), timeout=60)
    with pytest.raises(TaskUnschedulableError):
        ray.get(where.options(scheduling_strategy=here).remote(), timeout=30)
    ray.kill(holder)
    with pytest.raises(TaskUnschedulableError):  # tainted, so nothing of it is free for this
        ray.get(where.options(scheduling_strategy=at(world.ids["gpu"], _fail_on_unavailable=True)).remote(), timeout=30)


def test_any_fraction_that_ray_takes_is_taken(world: World, where: Any) -> None:
    third = 1 / 3
    other = [{"label_selector": {"zone": "b"}}]
    refs = [where.options(num_cpus=third, label_selector={"zone": "a"}, fallback_strategy=other).remote() for _ in range(3)]
    assert world.names(refs) == ["a"] * 3
    group = placement_group([{"CPU": third}] * 3, strategy="STRICT_PACK")
    try:
        assert group.wait(60)
        assert placement_group_table(group)["bundles"][0]["CPU"] == pytest.approx(0.3333, abs=1e-6)
        inside = where.options(num_cpus=0.3333, scheduling_strategy=PlacementGroupSchedulingStrategy(group))
        ray.get(inside.remote(), timeout=60)
    finally:
        remove_placement_group(group)


def test_a_traceback_shows_the_users_frames_only(world: World) -> None:
    @ray.remote
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("\n".join(traceback.format_stack()))

    for ref in (fail.remote(), fail.options(num_cpus=0.5, max_retries=1).remote(1, x=2)):
        with pytest.raises(RayTaskError) as caught:
            ray.get(ref, timeout=60)
        text = str(caught.value)
        assert "remora/live" not in text, text
        assert len(re.findall(r"^  File ", text.split("ValueError")[0], re.MULTILINE)) == 1, text


@pytest.mark.parametrize("name", ["label_selector", "fallback_strategy", "scheduling_strategy"])
def test_a_value_of_the_wrong_type_is_a_type_error_at_the_same_call(world: World, where: Any, name: str) -> None:
    for work in (where, Sitter):
        with pytest.raises(TypeError, match=f"The type of keyword '{name}'"):
            work.options(**{name: 5})
        with pytest.raises(TypeError, match=f"The type of keyword '{name}'"):
            ray.remote(**{name: 5})(work._function if work is where else type("Other", (), {}))
    with pytest.raises(TypeError):
        where.options(label_selector="")


def test_the_controller_is_nobody_s_actor_and_its_calls_are_nobody_s_children(world: World) -> None:
    @ray.remote
    def child() -> None: ...

    @ray.remote
    def parent(options: dict[str, Any]) -> tuple[set[str], set[str]]:
        context, core_worker = ray.get_runtime_context(), ray._private.worker.global_worker.core_worker
        refs = [child.remote(), child.options(num_cpus=0.25, **options).remote()]
        known = core_worker.get_pending_children_task_ids(ray.TaskID(bytes.fromhex(context.get_task_id())))
        ray.get(refs)
        return {ref.task_id().hex() for ref in refs}, {each.hex() for each in known}

    wanted, found = ray.get(parent.remote({"label_selector": {"zone": "in(a, b)"}}), timeout=60)
    assert found <= wanted
    alone = remora.actor_affinity(remora.label_not_in("no", ["x"]))
    wanted, found = ray.get(parent.remote({"scheduling_strategy": alone}), timeout=60)
    assert found <= wanted
    assert {"name": "remora-controller", "namespace": "remora"} not in ray.util.list_named_actors(all_namespaces=True)
    cache = ray.actor._ActorClassMethodMetadata._cache
    assert "ControllerActor" not in {each.class_name for each in cache}
    assert not [name for name in vars(Sitter.__ray_metadata__.modified_class) if "remora" in name]


def test_a_cancelled_task_takes_no_message_to_the_controller_with_it(world: World, where: Any) -> None:
    @ray.remote(num_cpus=0.1)
    def parent(number: int) -> None:
        ref = where.options(label_selector={"zone": "in(a, b)", "no": f"!{number}"}).remote()
        ray.get([ref, where.options(label_selector={"zone": "nowhere"}).remote()])

    for number in range(3):
        ref = parent.remote(number)
        ray.wait([ref], timeout=0.5)
        ray.cancel(ref)
        with pytest.raises(ray.exceptions.RayError):
            ray.get(ref, timeout=60)
        again = where.options(label_selector={"zone": "in(a, b)", "no": f"!{number}"}).remote()
        assert world.name(ray.get(again, timeout=60)) in ("a", "b")
