"""What the design stands on in stock Ray; a release that changes one of these fails here, by name."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.live.conftest import World, eventually, waits

import remora
from remora.ray_seam import hooks, names
from remora.ray_seam.ray_port import RayPort
from remora.wire.options import Defaults


@pytest.fixture
def stock(world: World) -> Any:
    """A driver that is not attached, for as long as the test runs."""
    remora.detach()
    yield world
    remora.attach()


def used(world: World, name: str) -> float:
    view = next(view for view in RayPort().observe().nodes if view.node_id == world.ids["a"])
    return round(view.total.get(name, 0.0) - view.available.get(name, 0.0), 4)


def hold(world: World, resources: dict[str, float]) -> Any:
    class Holder:
        def ping(self) -> None:
            pass

    here = NodeAffinitySchedulingStrategy(world.ids["a"], soft=False)
    holder = ray.remote(Holder).options(num_cpus=0, resources=resources, scheduling_strategy=here).remote()
    ray.get(holder.ping.remote())
    return holder


def test_a_task_that_waits_for_a_resource_starts_when_a_live_node_gets_it(stock: World) -> None:
    ref = ray.remote(num_cpus=0, resources={"fact/late": 0.0001})(lambda: 1).remote()
    assert waits(ref, 0.5)
    RayPort().resize(stock.ids["b"], {"fact/late": 1})
    assert ray.get(ref, timeout=90) == 1
    RayPort().resize(stock.ids["b"], {"fact/late": 0})


def test_the_smallest_amount_counts_and_amounts_are_cut_not_rounded(stock: World) -> None:
    RayPort().resize(stock.ids["a"], {"fact/unit": 1, "fact/cut": 1})
    holders = [hold(stock, {"fact/unit": 0.0001}), hold(stock, {"fact/cut": 0.0003})]
    eventually(lambda: used(stock, "fact/unit") == 0.0001)
    eventually(lambda: used(stock, "fact/cut") > 0)
    assert used(stock, "fact/cut") == 0.0002  # 0.0003 * 10000 is a hair below 3
    for holder in holders:
        ray.kill(holder)
    RayPort().resize(stock.ids["a"], {"fact/unit": 0, "fact/cut": 0})


def test_unit_instance_resources_cannot_be_resized(stock: World) -> None:
    with pytest.raises(ValueError, match="GPU"):
        RayPort().resize(stock.ids["a"], {"GPU": 1})


def test_a_hard_node_affinity_fails_at_once_where_the_node_lacks_a_resource(stock: World) -> None:
    here = NodeAffinitySchedulingStrategy(stock.ids["a"], soft=False)
    ref = ray.remote(resources={"fact/none": 1})(lambda: 1).options(scheduling_strategy=here).remote()
    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        ray.get(ref, timeout=90)


def test_what_waits_is_reported_by_shape(stock: World) -> None:
    ref = ray.remote(resources={"fact/demand": 1})(lambda: 1).remote()
    eventually(lambda: [d.count for d in RayPort().observe().demands if "fact/demand" in d.shape] == [1])
    ray.cancel(ref)


@pytest.mark.parametrize("name", names.TOUCHED, ids=lambda name: f"{name.module}.{name.path}")
def test_a_missing_name_is_named_and_nothing_is_touched(
    stock: World, name: names.Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "TOUCHED", (name._replace(path=f"{name.path}_gone"),))
    with pytest.raises(remora.IncompatibleRayError, match=f"{name.path}_gone is missing"):
        hooks.install(Defaults())
    assert hooks.current() is None
