"""The time line of an actor: each decision and its reason, as ``remora events`` tells it."""

from __future__ import annotations

import pytest
from tests.unit.controller.leased import WITH_CAT, LeasedWorld, restarting


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


def test_each_decision_is_told_with_its_reason(world: LeasedWorld):
    cat = world.start(labels={"type": "cat"}, label_selector={"zone": "!c"})
    dog = world.start(**WITH_CAT)
    home = cat.node_ids[0]
    world.lose(home)
    cat, dog = (world.let_start(world.tell(restarting(work))) for work in (cat, dog))
    away = cat.node_ids[0]
    assert away != home
    assert world.events(cat.work_id) == [
        f"decided {home} because it asks for zone!=c",
        f"runs on {home}",
        f"its node {home} left",
        f"decided {away} because it asks for zone!=c",
        f"runs on {away}",
    ]
    assert world.events(dog.work_id)[0] == f"decided {home} because it asks for actors with type=cat"
    assert world.events(dog.work_id)[-1] == f"runs on {away}"
    world.restarts(cat)
    assert world.events(cat.work_id)[5:7] == [f"restarts; it was on {away}", f"decided {away} because it asks for zone!=c"]


def test_one_that_waits_is_told_so_and_a_new_controller_repeats_nothing(world: LeasedWorld):
    dog = world.start(**WITH_CAT)
    assert world.events(dog.work_id) == ["waits: no node for it now"]
    cat = world.start(labels={"type": "cat"})
    dog = world.let_start(dog)
    (home,) = dog.node_ids
    before = world.events(dog.work_id)
    assert before[1:] == [f"decided {home} because it asks for actors with type=cat", f"runs on {home}"]
    assert world.events(cat.work_id)[0] == f"decided {home} because any node would do"
    world.later(1)
    world.restart()
    assert [text for text in world.events(dog.work_id) if text.startswith("decided")] == before[1:2]
