"""What counts although nobody placed it here: actors that are named by their handles, and objects with labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.leased import JOB_ID, LeasedWorld, wanted_task

from remora import actor_affinity, affinity, anti_affinity, label_in, object_affinity
from remora.port.contract import ACTOR, ENDED, RUNNING, WAITING, Work
from remora.wire import calls

BESIDE = wanted_task(scheduling_strategy=object_affinity(label_in("set", ["x"], False)))


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


@pytest.fixture
def other(world: LeasedWorld) -> Work:
    """An actor that Ray has yet to place."""
    return world.tell(Work(ACTOR, "abc", "", JOB_ID, WAITING, "PENDING_CREATION", ({},), namespace="tests"))


def test_handles_name_actors_that_ray_placed_also_before_they_are(world: LeasedWorld, other: Work):
    near = world.start(scheduling_strategy=actor_affinity(affinity("abc", False)))
    assert near.node_ids == ()
    world.tell(replace(other, state=RUNNING, detail="ALIVE", node_ids=("n2",)))
    assert world.let_start(near).node_ids == ("n2",)
    away = world.start(scheduling_strategy=actor_affinity(anti_affinity("abc", False)))
    assert away.node_ids[0] in ("n1", "n3")
    world.dies(other)
    late = world.start(scheduling_strategy=actor_affinity(affinity("abc", False)))
    assert late.node_ids == ()


def test_keeping_away_from_an_actor_waits_until_ray_has_placed_it(world: LeasedWorld, other: Work):
    away = world.start(scheduling_strategy=actor_affinity(anti_affinity("abc", False)))
    assert away.node_ids == ()
    assert world.why(away) == "Ray has yet to place the actor abc, which it keeps away from"
    world.tell(replace(other, state=RUNNING, detail="ALIVE", node_ids=("n1",)))
    assert world.let_start(away).node_ids[0] in ("n2", "n3")


def test_keeping_away_from_an_actor_that_is_nowhere_waits_only_until_that_is_known(world: LeasedWorld):
    away = world.start(scheduling_strategy=actor_affinity(anti_affinity("nobody", False)))
    world.pass_time(3, every=0.5)  # it may just be being created
    assert world.let_start(away).node_ids != ()


def test_an_object_with_labels_counts_where_it_lies_until_it_is_dropped(world: LeasedWorld):
    world.ask(calls.PutObject("o1", (("set", "x"),), "n2", "tests", JOB_ID))
    assert world.place(BESIDE)[1] == "n2"
    world.restart()
    assert world.place(BESIDE)[1] == "n2"
    world.ask(calls.DropObject("o1"))
    assert world.place(BESIDE)[1] is None
    assert world.port.keys("object/") == []


def test_an_object_counts_until_the_job_that_put_it_ends(world: LeasedWorld):
    world.job("j2")
    world.ask(calls.PutObject("o2", (("set", "x"),), "n1", "tests", "j2"))
    assert world.place(BESIDE)[1] == "n1"
    world.job("j2", ENDED)
    world.round()
    assert world.place(BESIDE)[1] is None
    assert world.port.keys("object/") == []


def test_an_object_that_is_put_twice_lies_where_it_was_put_last(world: LeasedWorld):
    for _ in range(2):
        world.ask(calls.PutObject("o1", (("set", "x"),), "n1", "tests", JOB_ID))
    world.ask(calls.PutObject("o1", (("set", "x"),), "n3", "tests", JOB_ID))
    assert world.place(BESIDE)[1] == "n3"
    world.ask(calls.DropObject("o1"))
    world.ask(calls.DropObject("o1"))
    assert world.place(BESIDE)[1] is None
