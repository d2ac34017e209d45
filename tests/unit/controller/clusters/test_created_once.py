"""A virtual cluster that is asked for twice is made once, wherever its controller was killed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.worlds import MortalPort, World

from remora import FixedSizeNode, FixedSizeNodes
from remora.port.contract import ENDED

SPREAD = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
SPECS: dict[str, dict[str, Any]] = {
    "flexible": {"flexible_resource_min": {"CPU": 6}},
    "fixed": {"fixed_size_nodes": [SPREAD]},
    "elastic": {"flexible_resource_max": {"CPU": 6}},
}


@pytest.fixture
def world() -> World:
    made = World(port=MortalPort())
    made.job("j1")
    return made


def test_the_same_question_has_the_same_cluster(world: World) -> None:
    asked = world.creation(flexible_resource_min={"CPU": 6})
    first = world.ask(asked)
    assert world.ask(asked) == first
    assert world.clusters() == [first["cluster_id"]]
    assert world.state(first["cluster_id"]) == "READY"  # and is not queued behind itself


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("offered", [False, True])
def test_a_controller_killed_between_any_two_effects_makes_one_cluster(spec: str, offered: bool) -> None:
    """Ray asks the next controller the same. ``offered``: within a cluster that work was offered of, so that its parent's
    tokens are held first."""
    after, was_killed = 0, True
    while was_killed:
        world = World(port=MortalPort())
        parent = None
        if offered:
            parent = world.create(flexible_resource_min={"CPU": 8})
            world.want(parent, 8)
            world.later(0.1)
        before = set(world.clusters())
        world.job("j1")
        answer, was_killed = world.ask_and_kill(world.creation(parent, **SPECS[spec]), after)
        world.later(1)
        made = set(world.clusters()) - before
        assert made == {answer["cluster_id"]}, after
        assert world.state(answer["cluster_id"]) == "READY"
        assert max(world.sums().values()) <= 4
        after += 1
    assert after > 1  # it was killed at every step in between


def test_its_owner_hears_of_it_when_whoever_comes_next_knows_of_it(world: World) -> None:
    asked = world.creation(flexible_resource_min={"CPU": 1})
    pending = world.host.begin(asked)
    while (reply := pending.poll()) is None:
        for effect in world.controller.plan():
            key = getattr(effect, "key", "")
            assert pending.poll() is None or world.port.get("vc/vc1") is not None
            world.controller.done(world.host.perform(effect))
            assert key != "vc/vc1" or world.port.get(key) is not None
    assert world.port.get("vc/vc1") is not None
    assert reply.result()["cluster_id"] == "vc1"


def test_one_that_waits_in_the_queue_is_found_there_again(world: World) -> None:
    first = world.create(flexible_resource_min={"CPU": 8})
    asked = world.creation(job="j2", flexible_resource_min={"CPU": 1})
    world.job("j2")
    queued = world.ask(asked)
    assert queued["state"] == "QUEUED"
    world.restart()
    assert world.ask(asked)["cluster_id"] == queued["cluster_id"]
    world.job("j1", ENDED)
    world.later(0.1)
    world.later(0.1)
    assert world.state(first) == "GONE"
    assert world.ask(asked)["state"] == "READY"


def test_a_question_is_closed_also_by_who_never_heard_the_answer(world: World) -> None:
    asked = world.creation(flexible_resource_min={"CPU": 6})
    made = world.ask(asked)["cluster_id"]
    world.close(asked.ask, unused=True)
    assert world.state(made) == "GONE"
    assert world.sums() == {"n1": 0, "n2": 0}
