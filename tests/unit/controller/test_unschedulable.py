"""What waits for a node by its id is given up when that node is gone, was never there or is too small; and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import LeasedWorld
from tests.unit.controller.worlds import World

from remora import FixedSizeNode, FixedSizeNodes, NodeAffinitySchedulingStrategy
from remora.port.contract import WAITING
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.tokens import share_token

ONE = {"CPU": 1.0}


@pytest.fixture
def world() -> World:
    return World()


def wait(world: World, need: dict[str, float], cluster_id: str | None = None, **options: Any) -> ClassSpec:
    """Something waits; return its class."""
    spec = replace(rewrite(options, Defaults()).spec, cluster=cluster_id)
    world.ask(calls.EnsureClass(spec.encode()))
    inside = {} if cluster_id is None else {share_token(cluster_id, name): amount for name, amount in need.items()}
    world.port.wait({**need, **inside, f"remora/class/{spec.class_id}": 0.0001})
    return spec


def pin(node_id: str) -> dict[str, Any]:
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, False)}


def is_given_up(world: World) -> bool:
    world.later(0.1)
    for _ in range(5):
        world.later(1.0)
    return bool(world.port.given_up)


GIVEN_UP: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "no such node": (ONE, pin("n9")),
    "no such node, by its label": (ONE, {"label_selector": {"ray.io/node-id": "n9"}}),
    "none of such nodes": (ONE, {"label_selector": {"ray.io/node-id": "in(n8, n9)"}}),
    "it has too little": ({"CPU": 5.0}, pin("n1")),
    "it has none": ({"GPU": 1.0}, pin("n1")),
    "nor has what may be taken instead": (
        ONE,
        {"label_selector": {"ray.io/node-id": "n8"}, "fallback_strategy": [{"label_selector": {"ray.io/node-id": "n9"}}]},
    ),
}
WAITS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "it is full": ({"CPU": 4.0}, pin("n1")),
    "one of them is there": (ONE, {"label_selector": {"ray.io/node-id": "in(n1, n9)"}}),
    "another may be taken instead": (
        ONE,
        {"label_selector": {"ray.io/node-id": "n9"}, "fallback_strategy": [{"label_selector": {"zone": "a"}}]},
    ),
    "any but a node that is not there": (ONE, {"label_selector": {"ray.io/node-id": "!n9", "zone": "a"}}),
    "it names no node": ({"GPU": 1.0}, {"label_selector": {"zone": "a"}}),
}


@pytest.mark.parametrize(("need", "options"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_what_no_node_that_it_names_could_ever_hold_is_given_up(
    world: World, need: dict[str, float], options: dict[str, Any]
) -> None:
    wait(world, need, **options)
    assert is_given_up(world)
    assert world.controller.settled


@pytest.mark.parametrize(("need", "options"), WAITS.values(), ids=WAITS)
def test_anything_else_waits(world: World, need: dict[str, float], options: dict[str, Any]) -> None:
    wait(world, need, **options)
    assert not is_given_up(world)


def test_a_node_that_dies_takes_what_waits_for_it_with_it_and_nothing_else(world: World) -> None:
    wait(world, {"CPU": 4.0}, **pin("n1"))
    wait(world, {"CPU": 4.0}, **pin("n2"))
    assert not is_given_up(world)
    world.port.leave("n1")
    assert is_given_up(world)
    assert len(world.port.given_up) == 1
    assert any("fails" in str(entry) for entry in world.ask(calls.GetEvents()))


def test_on_a_tainted_node_it_waits_as_long_as_the_node_is_there(world: World) -> None:
    world.ask(calls.TaintNode("n1", (("k", "v"),), [], world.new_ask()))
    wait(world, ONE, **pin("n1"))
    assert not is_given_up(world)
    world.port.leave("n1")
    assert is_given_up(world)


def test_in_a_virtual_cluster_of_fixed_size_its_own_nodes_count(world: World) -> None:
    both = [FixedSizeNodes([FixedSizeNode({"CPU": 1})] * 2, "STRICT_SPREAD")]
    cluster_id = world.create(fixed_size_nodes=both)
    wait(world, ONE, cluster_id, **pin("n1"))
    assert not is_given_up(world)
    wait(world, {"CPU": 2.0}, cluster_id, **pin("n1"))
    assert is_given_up(world)
    assert [demand.shape["CPU"] for demand in world.port.given_up] == [2.0]


def test_in_one_that_may_grow_it_waits(world: World) -> None:
    cluster_id = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 4})
    wait(world, {"CPU": 2.0}, cluster_id, **pin("n2"))
    assert not is_given_up(world)


def test_an_actor_with_a_lease_that_was_to_restart_on_it() -> None:
    world = LeasedWorld("n1", "n2")
    cat = world.start(labels={"type": "cat"}, **pin("n1"))
    world.lose("n1")
    world.tell(replace(cat, state=WAITING, detail="RESTARTING", node_ids=()))
    (slot,) = world.controller.leases.by_slot
    world.port.wait({"CPU": 1.0, f"remora/lease/{slot}": 0.0001})
    world.pass_time(5)
    assert world.port.given_up
