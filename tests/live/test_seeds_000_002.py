"""The Python examples of seeds 000 (label selectors) and 002 (taints), typed as in the seeds, on the attached cluster.

Only what keeps them from running is changed: missing commas, a call around a call, bodies for classes that say ``pass``. ``ray
taint`` is ``remora taint`` here. A node with the accelerator of the examples joins for as long as these tests run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import DoesNotExist, In, NodeLabelSchedulingStrategy, NotIn
from tests.live.conftest import World, waits
from tests.live.typed import remora_command

import remora
from remora import Exist, Exists

H100 = {
    "num_cpus": 1,
    "num_gpus": 2,
    "resources": {"custom_resource": 1},
    "labels": {
        "zone": "h100",
        "ray.io/accelerator-type": "nvidia-h100",
        "ray.io/market-type": "spot",
        "ray.io/availability-zone": "us-west4-a",
    },
}


@pytest.fixture(scope="module", autouse=True)
def h100(world: World) -> Iterator[None]:
    with world.extra("h100", **H100):
        yield


def seed_class() -> Any:
    # Defined here, it is pickled by value: workers do not see the tests.
    return type("MyActor", (), {"node": lambda self: str(ray.get_runtime_context().get_node_id())})


def place(world: World, actor: Any) -> str:
    (found,) = world.names([actor.node.remote()])
    ray.kill(actor)
    return found


# --------------------------------------------------------------------------------------------- seed 000: label selectors


def test_the_labels_of_a_node_can_be_read(world: World) -> None:
    (labels,) = [node["Labels"] for node in ray.nodes() if node["NodeID"] == world.ids["h100"]]
    assert labels["ray.io/accelerator-type"] == "nvidia-h100"


def test_node_label_scheduling_strategy_with_hard_constraints_only(world: World) -> None:
    MyActor = ray.remote(num_cpus=0)(seed_class())  # noqa: N806 - as in the seed
    actor = MyActor.options(
        scheduling_strategy=NodeLabelSchedulingStrategy({"ray.io/availability-zone": In("us-west4-a")})
    ).remote()
    assert place(world, actor) == "h100"


@pytest.mark.core
def test_node_label_scheduling_strategy_with_hard_and_soft_constraints(world: World) -> None:
    MyActor = ray.remote(num_cpus=0)(seed_class())  # noqa: N806
    actor = MyActor.options(
        scheduling_strategy=NodeLabelSchedulingStrategy(
            hard={"ray.io/accelerator-type": NotIn("A100", "T100"), "other_key": DoesNotExist()},
            soft={"ray.io/accelerator-type": In("nvidia-h100")},
        )
    ).remote()
    assert place(world, actor) == "h100"
    actor = MyActor.options(
        scheduling_strategy=NodeLabelSchedulingStrategy(
            hard={"ray.io/accelerator-type": DoesNotExist()},
            soft={"ray.io/accelerator-type": In("A100")},
        )
    ).remote()
    assert place(world, actor) in {"head", "a", "b"}


def test_a_label_selector_in_the_decorator(world: World) -> None:
    @ray.remote(label_selector={"ray.io/accelerator-type": "nvidia-h100"})
    class Actor:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    @ray.remote(label_selector={"ray.io/market-type": "spot"})
    def my_task() -> str:
        return str(ray.get_runtime_context().get_node_id())

    assert place(world, Actor.remote()) == "h100"  # type: ignore[attr-defined]
    assert world.names([my_task.remote()]) == ["h100"]


def test_a_label_selector_in_the_options_beside_gpus_and_custom_resources(world: World) -> None:
    Actor = ray.remote(seed_class())  # noqa: N806
    actor_1 = Actor.options(
        num_gpus=1,
        resources={"custom_resource": 1},
        label_selector={"ray.io/accelerator-type": "nvidia-h100"},
    ).remote()
    assert place(world, actor_1) == "h100"


def test_a_placement_group_with_the_same_labels_on_all_bundles(world: World) -> None:
    group = ray.util.placement_group(
        bundles=[{"GPU": 1}, {"GPU": 1}],
        bundle_label_selector=[{"ray.io/availability-zone": "us-west4-a"}] * 2,
    )
    assert nodes_of(world, group) == ["h100", "h100"]


@pytest.mark.core
def test_a_placement_group_whose_bundles_require_different_labels(world: World) -> None:
    group = ray.util.placement_group(
        bundles=[{"CPU": 1}] + [{"GPU": 1}] * 2,
        bundle_label_selector=[{"ray.io/market-type": "spot"}] + [{"ray.io/accelerator-type": "nvidia-h100"}] * 2,
    )
    assert nodes_of(world, group) == ["h100"] * 3


def nodes_of(world: World, group: Any) -> list[str]:
    assert group.wait(60)
    bundles = ray.util.placement_group_table(group)["bundles_to_node_id"]
    ray.util.remove_placement_group(group)
    return [world.name(bundles[index]) for index in sorted(bundles)]


@pytest.mark.core
def test_an_empty_fallback_is_a_soft_constraint(world: World) -> None:
    @ray.remote(
        label_selector={"instance_type": "m5.16xlarge"},
        fallback_strategy=[
            # Fall back to an empty set of labels (no constraints).
            # This is equivalent to a "soft" constraint for an m5.16xlarge.
            {"label_selector": {}},
        ],
    )
    def my_task() -> str:
        return str(ray.get_runtime_context().get_node_id())

    assert world.names([my_task.remote()])[0] in {"head", "a", "b", "h100"}


OPERATORS = {
    "equal": ("nvidia-h100", {"h100"}),
    "not equal": ("!nvidia-h100", {"head", "a", "b"}),
    "in": ("in(nvidia-h100,val2)", {"h100"}),
    "not in": ("!in(nvidia-h100,val2)", {"head", "a", "b"}),
    "exists": ("exists()", {"h100"}),
    "does not exist": ("!exists()", {"head", "a", "b"}),
    "in capitals": ("IN(val1, nvidia-h100)", {"h100"}),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_the_seed(world: World, where: Any, name: str) -> None:
    value, want = OPERATORS[name]
    refs = [where.options(num_cpus=0, label_selector={"ray.io/accelerator-type": value}).remote() for _ in range(3)]
    assert set(world.names(refs)) <= want


# ---------------------------------------------------------------------------------------- seed 002: taints and tolerations


def test_normal_work_stays_off_a_tainted_gpu_node_and_tolerant_work_goes_there(world: World) -> None:
    Actor = ray.remote(seed_class())  # noqa: N806
    actor = Actor.options(num_cpus=1).remote()
    assert place(world, actor) != "gpu"
    pg = ray.util.placement_group(bundles=[{"CPU": 1}])
    assert nodes_of(world, pg) != ["gpu"]

    remora.taint_node(world.ids["h100"], {"other": "true"})  # the only other GPUs are out of reach
    actor = Actor.options(num_gpus=1, tolerations={"gpu_node": Exists()}).remote()
    assert place(world, actor) == "gpu"
    pg = ray.util.placement_group(bundles=[{"GPU": 1}], tolerations={"gpu_node": Exists()})
    ray.get(pg.ready())
    assert nodes_of(world, pg) == ["gpu"]
    remora.untaint_node(world.ids["h100"], ["other"])


@pytest.mark.deep
def test_a_node_under_memory_pressure_is_isolated_and_restored(world: World, where: Any) -> None:
    node_id_1 = world.ids["h100"]
    here = {"num_cpus": 0, "label_selector": {"zone": "h100"}}
    assert remora_command(world, "taint", "--node-id", node_id_1, "--apend", '{"memory-pressure":"high"}').returncode == 0
    ref = where.options(**here).remote()
    assert world.names([where.options(**here, tolerations={"memory-pressure": Exist()}).remote()]) == ["h100"]
    assert waits(ref, 0.5)
    assert remora_command(world, "taint", "--node-id", node_id_1, "--delete", '{"memory-pressure":"high"}').returncode == 0
    assert world.names([ref]) == ["h100"]


def test_a_taint_is_appended_and_removed(world: World, where: Any) -> None:
    node_id = world.ids["h100"]
    assert remora_command(world, "taint", "--node-id", node_id, "--apend", '{"gpu_node":"true"}').returncode == 0
    here = {"num_cpus": 0, "label_selector": {"zone": "h100"}}
    ref = where.options(**here).remote()
    assert world.names([where.options(**here, tolerations={"gpu_node": Exists()}).remote()]) == ["h100"]
    assert waits(ref, 0.5)
    assert remora_command(world, "taint", "--node-id", node_id, "--remove", '{"gpu_node":"true"}').returncode == 0
    assert world.names([ref]) == ["h100"]


def test_every_spelling_of_tolerations(world: World, where: Any) -> None:
    Actor = ray.remote(num_cpus=0)(seed_class())  # noqa: N806
    Task = where  # noqa: N806
    here = {"label_selector": {"zone": "h100"}}
    remora.taint_node(world.ids["h100"], {"gpu_type": "A100"})
    refused = Task.options(**here, num_cpus=0, tolerations={"gpu_type": remora.In("H100")}).remote()
    assert world.names([Task.options(**here, num_cpus=0, tolerations={"gpu_type": remora.In("A100")}).remote()]) == ["h100"]
    assert waits(refused, 0.5)
    remora.taint_node(world.ids["h100"], {"memory-pressure": "high"})
    one_is_not_enough = Actor.options(**here, tolerations={"gpu_type": remora.In("A100")}).remote()
    asked = one_is_not_enough.node.remote()
    both = Actor.options(**here, tolerations={"gpu_type": remora.In("A100"), "memory-pressure": Exist()}).remote()
    assert place(world, both) == "h100"
    assert waits(asked, 0.5)
    remora.untaint_node(world.ids["h100"], ["gpu_type", "memory-pressure"])
    assert place(world, one_is_not_enough) == "h100"
    assert world.names([refused]) == ["h100"]


# ------------------------------------------------------------------------------------------------ placement group fallback


def test_placement_group_fallback_to_other_bundles_when_the_first_could_never_fit(world: World) -> None:
    # Prefer 2 H100s, fall back to 4 A100s, then fall back to 8 V100s; here only the last but one could ever fit.
    group = ray.util.placement_group(
        bundles=[{"GPU": 1}] * 4,
        bundle_label_selector=[{"ray.io/accelerator-type": "nvidia-h100"}] * 4,
        fallback_strategy=[
            {
                "bundles": [{"GPU": 1}] * 2,
                "bundle_label_selector": [{"ray.io/accelerator-type": "nvidia-h100"}] * 2,
            },
            {
                "bundles": [{"GPU": 1}] * 8,
                "bundle_label_selector": [{"ray.io/accelerator-type": "nvidia_v100"}] * 8,
            },
        ],
    )
    assert nodes_of(world, group) == ["h100", "h100"]
