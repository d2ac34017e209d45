"""What in stock Ray surprises: traps that Remora closes or goes around. One that goes away is a workaround to take out."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state.common import ActorState, PlacementGroupState, TaskState
from tests.live.conftest import World, eventually, waits
from tests.live.test_facts import make_holder, place, resize

pytestmark = pytest.mark.core


def logs(world: World, pattern: str) -> str:
    folder = Path(world.cluster.head_node.get_session_dir_path()) / "logs"
    return "".join(file.read_text(errors="replace") for file in folder.glob(pattern))


# ------------------------------------------------------------------------------------------------------------- selectors


def test_a_value_after_a_space_never_matches(stock: World, where: Any) -> None:
    ref = where.options(num_cpus=0, label_selector={"zone": "in(nowhere, b)"}).remote()
    assert stock.names([where.options(num_cpus=0, label_selector={"zone": "in(nowhere,b)"}).remote()]) == ["b"]
    assert waits(ref)
    ray.cancel(ref)


def test_a_refused_value_after_a_space_is_let_through(stock: World, where: Any) -> None:
    spelled = {"zone": "!in(head, a, b, g)"}
    refs = [where.options(num_cpus=0, scheduling_strategy="SPREAD", label_selector=spelled).remote() for _ in range(8)]
    assert set(stock.names(refs)) & {"a", "b", "gpu"}


def test_a_list_without_an_operator_is_one_literal_value(stock: World, where: Any) -> None:
    ref = where.options(num_cpus=0, label_selector={"zone": "(a,b)"}).remote()
    assert stock.names([where.options(num_cpus=0, label_selector={"zone": "in(a,b)"}).remote()])[0] in {"a", "b"}
    assert waits(ref)
    ray.cancel(ref)


@pytest.mark.parametrize("value", ["IN(a)", "In(a,b)", "exists()", "!exists()"])
def test_an_operator_in_capitals_or_without_values_is_refused_before_anything_is_submitted(
    stock: World, where: Any, value: str
) -> None:
    with pytest.raises(ValueError, match="Invalid label selector value"):
        where.options(label_selector={"zone": value})
    with pytest.raises(ValueError, match="Invalid label selector value"):
        ray.remote(label_selector={"zone": value})(lambda: 1)


def test_a_fallback_is_taken_when_the_first_choice_is_merely_busy(stock: World, where: Any) -> None:
    busy = [where.options(label_selector={"zone": "a"}).remote(1.5) for _ in range(2)]
    eventually(lambda: free_cpus(stock) == 0)
    late = where.options(label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}]).remote()
    assert stock.names([late]) == ["b"]
    ray.get(busy)


def free_cpus(world: World) -> float:
    return float(ray._private.state.available_resources_per_node()[world.ids["a"]].get("CPU", 0))


def test_a_placement_group_has_no_fallback(stock: World) -> None:
    assert "fallback_strategy" not in inspect.signature(ray.util.placement_group).parameters


# ------------------------------------------------------------------------------------------------- actors that want nothing


def test_an_actor_that_requests_nothing_ignores_a_soft_node_affinity(stock: World) -> None:
    hint = NodeAffinitySchedulingStrategy(stock.ids["b"], soft=True)
    seen = []
    for _ in range(10):  # each lands there by chance once in four
        holder = make_holder(scheduling_strategy=hint)
        seen.append(place(stock, holder))
        ray.kill(holder)
        if seen[-1] != "b":
            return
    pytest.fail(f"it followed the hint: {seen}")


# -------------------------------------------------------------------------------------------------------- shapes and reasons


def test_more_than_a_hundred_shapes_are_warned_about(stock: World) -> None:
    nothing = ray.remote(lambda: None)
    ray.get([nothing.options(num_cpus=0.001 + number / 10_000).remote() for number in range(120)], timeout=120)
    eventually(
        lambda: "types of tasks seen, this may reduce performance" in logs(stock, f"python-core-driver-*_{os.getpid()}.log")
    )


def test_no_field_of_the_state_api_says_why_something_waits() -> None:
    for kind in (TaskState, ActorState, PlacementGroupState):
        assert not [name for name in kind.columns() if "reason" in name or "why" in name or "unschedul" in name]


def test_what_cannot_be_scheduled_is_said_in_a_raylets_log_and_names_resources_only(stock: World) -> None:
    ref = ray.remote(resources={"fact/silent": 1}, label_selector={"zone": "never-ever"})(lambda: 1).remote()
    eventually(lambda: "fact/silent" in logs(stock, "raylet*"))
    said = [line for line in logs(stock, "raylet*").splitlines() if "fact/silent" in line and "cannot be scheduled" in line]
    assert said
    assert not any("never-ever" in line for line in said)
    ray.cancel(ref)


def test_draining_a_node_has_no_way_back() -> None:
    assert [name for name in dir(GcsClient) if "undrain" in name or "cancel_drain" in name] == []


def test_labels_of_an_actor_move_nothing(stock: World) -> None:
    holder = make_holder(_labels={"zone": "nowhere"}, num_cpus=0.01)
    assert place(stock, holder)
    ray.kill(holder)


# ------------------------------------------------------------------------------------------------------- placement groups


def test_placement_groups_are_scheduled_one_at_a_time(stock: World) -> None:
    groups = [ray.util.placement_group([{"CPU": 0.01}] * 3) for _ in range(12)]
    assert all(group.wait(60) for group in groups)
    accessor = ray._private.state.state._connect_and_get_accessor()
    spans = []
    for group in groups:
        stats = PlacementGroupTableData.FromString(accessor.get_placement_group_info(group.id)).stats
        spans.append((stats.scheduling_started_time_ns, stats.scheduling_started_time_ns + stats.scheduling_latency_us * 1000))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans)), spans
    for group in groups:
        ray.util.remove_placement_group(group)


@pytest.mark.deep
def test_a_group_that_lost_its_node_is_tried_without_a_pause_and_no_other_before_it(stock: World) -> None:
    """If a node could hold it that has no room; one that no node could hold is not tried at all."""

    def attempts(group: Any) -> int:
        return int(ray.util.placement_group_table(group)["stats"]["scheduling_attempt"])

    with stock.extra("lost", num_cpus=0, resources={"trap": 1}) as kill, stock.extra("left", num_cpus=0, resources={"trap": 1}):
        groups = [ray.util.placement_group([{"trap": 1}]) for _ in range(2)]
        assert all(group.wait(60) for group in groups)
        (lost,) = (group for group in groups if stock.name(bundle_node(group)) == "lost")
        kill()
        eventually(lambda: attempts(lost) > 1000)
        other = ray.util.placement_group([{"CPU": 0.01}])
        assert not other.wait(2)
        (kept,) = (group for group in groups if group is not lost)
        ray.util.remove_placement_group(kept)
        assert lost.wait(60)
        assert other.wait(60)
        ray.util.remove_placement_group(lost)
        ray.util.remove_placement_group(other)


def bundle_node(group: Any) -> str:
    return str(ray.util.placement_group_table(group)["bundles_to_node_id"][0])


# ------------------------------------------------------------------------------------------ what the layer may do in workers


class Tag:
    """Leaves a mark in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import os; os.environ['FACT_ARRIVED'] = 'yes'",)


def test_what_a_function_or_a_class_carries_is_unpickled_in_the_worker_before_it_runs(stock: World) -> None:
    def look() -> str | None:
        assert tag is None
        return os.environ.get("FACT_ARRIVED")

    class Look:
        def look(self) -> str | None:
            return os.environ.get("FACT_ARRIVED")

    tag: Any = Tag()
    assert ray.get(ray.remote(look).remote(), timeout=90) == "yes"
    cls = ray.remote(num_cpus=0)(Look)
    cls.__ray_metadata__.modified_class.tag = tag
    actor = cls.remote()
    assert ray.get(actor.look.remote(), timeout=90) == "yes"
    ray.kill(actor)


def test_a_worker_refuses_a_stand_in_core_worker(stock: World) -> None:
    class Swapper:
        def swap(self) -> None:
            class StandIn:
                def __init__(self, inner: Any) -> None:
                    self.inner = inner

                def __getattr__(self, name: str) -> Any:
                    return getattr(self.inner, name)

            worker = ray._private.worker.global_worker
            worker.core_worker = StandIn(worker.core_worker)

        def ping(self) -> int:
            return 1

    actor = ray.remote(num_cpus=0)(Swapper).remote()
    with pytest.raises((ray.exceptions.RayTaskError, ray.exceptions.ActorDiedError)):
        ray.get([actor.swap.remote(), actor.ping.remote()], timeout=60)
    ray.kill(actor)


# -------------------------------------------------------------------------------------------------------- a saturated node


def test_a_token_asked_down_to_nothing_does_not_stop_the_queue_of_a_full_node(stock: World, where: Any) -> None:
    resize(stock, "a", {"fact/full": 1000})
    refs = [where.options(resources={"fact/full": 0.0001}).remote(0.05) for _ in range(30)]
    ray.wait(refs, num_returns=4, timeout=90)
    deadline = time.monotonic() + 60
    while ray.wait(refs, num_returns=len(refs), timeout=0)[1]:
        resize(stock, "a", {"fact/full": 0})
        assert time.monotonic() < deadline, "the queue stopped: removal alone would be enough"
        time.sleep(0.005)
    assert stock.names(refs) == ["a"] * 30
    eventually(lambda: "fact/full" not in resize(stock, "a", {"fact/full": 0}))
