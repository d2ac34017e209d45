"""Failover: where an actor goes that restarts, and who goes with it."""

from __future__ import annotations

import pytest
from tests.unit.controller.leased import LONELY, WITH_CAT, LeasedWorld, near, restarting


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


def test_failover_as_in_the_proposal(world: LeasedWorld):
    cat = world.start(**LONELY)
    dog = world.start(**WITH_CAT)
    world.taint(cat.node_ids[0], k="v")
    moved = world.restarts(cat)
    assert moved.node_ids not in (cat.node_ids, ())
    assert world.why(dog) == f"it runs on {dog.node_ids[0]}"
    assert world.port.restarted == []
    assert world.restarts(dog).node_ids == moved.node_ids


def test_what_was_on_a_lost_node_is_decided_again(world: LeasedWorld):
    cat = world.start(**LONELY)
    world.lose(cat.node_ids[0])
    again = world.let_start(world.tell(restarting(cat)))
    assert again.node_ids not in (cat.node_ids, ())


def test_an_actor_whose_process_died_may_stay_where_it_was_on_a_full_node():
    """What it held is free for itself."""
    world = LeasedWorld("n1", cpus=2)
    cat = world.start(labels={"type": "cat"}, cpus=2)
    world.pass_time(3)
    assert world.restarts(cat).node_ids == ("n1",)


def test_a_follower_is_restarted_where_the_one_it_joined_went(world: LeasedWorld):
    leader = world.start(labels={"who": "A"})
    stays, follows = world.start(**near("A", "stay")), world.start(**near("A", "follow"))
    assert leader.node_ids == stays.node_ids == follows.node_ids
    world.taint(leader.node_ids[0], k="v")
    moved = world.restarts(leader)
    assert moved.node_ids != leader.node_ids
    world.round()
    assert world.port.restarted == [follows.work_id]
    assert world.restarts(follows).node_ids == moved.node_ids
    world.pass_time(3)
    assert world.port.restarted == [follows.work_id]  # once


def test_a_group_moves_together_to_a_node_that_fits_it_all(world: LeasedWorld):
    leader = world.start(labels={"who": "A"}, cpus=1)
    friend = world.start(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    assert friend.node_ids == (home,)
    small, large = (name for name in ("n1", "n2", "n3") if name != home)
    world.port.take(small, {"CPU": 3})  # room for the leader, but not for both
    world.taint(home, k="v")
    assert world.restarts(leader).node_ids == (large,)
    assert world.port.restarted == [friend.work_id]
    assert world.restarts(friend).node_ids == (large,)


def test_a_group_that_lost_its_node_comes_back_together(world: LeasedWorld):
    leader = world.start(labels={"who": "A"}, cpus=1)
    friend = world.start(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    small, large = (name for name in ("n1", "n2", "n3") if name != home)
    world.port.take(small, {"CPU": 3})
    world.lose(home)
    back = [world.let_start(world.tell(restarting(work))) for work in (leader, friend)]
    assert [work.node_ids for work in back] == [(large,), (large,)]


def test_where_no_node_fits_all_the_leader_goes_alone(world: LeasedWorld):
    leader = world.start(labels={"who": "A"}, cpus=1)
    friend = world.start(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    for name in ("n1", "n2", "n3"):
        if name != home:
            world.port.take(name, {"CPU": 3})
    world.taint(home, k="v")
    assert world.restarts(leader).node_ids not in ((home,), ())
    assert world.port.restarted == []
    assert world.why(friend) == f"it runs on {home}"
