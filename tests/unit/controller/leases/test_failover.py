"""Failover: where an actor goes that restarts, and who goes with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.leased import LONELY, WITH_CAT, LeasedWorld, near, restarting

from remora import actor_affinity, label_in, label_not_in


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


def racks() -> LeasedWorld:
    """Three racks of two nodes each, with four CPUs a node."""
    names = [f"{rack}{number}" for rack in ("r", "s", "t") for number in (1, 2)]
    world = LeasedWorld(*names)
    for name in names:
        world.label(name, rack=name[0])
    return world


def mate(size: int) -> dict[str, Any]:
    """One that is in the rack of its leader, on a node without another one, and moves with the gang."""
    join = actor_affinity(label_in("who", ["A"], topology="rack"), on_failover="together")
    apart = actor_affinity(label_not_in("in", ["gang"]))
    return {"affinity": [join, apart], "labels": {"in": "gang"}, "cpus": size}


def test_a_gang_that_lost_one_node_of_its_rack_stays_there_if_there_is_room():
    world = racks()
    leader = world.start(labels={"who": "A"}, cpus=1)
    friend = world.start(**mate(1))
    rack = leader.node_ids[0][0]
    assert friend.node_ids[0][0] == rack
    home = leader.node_ids[0]
    other = next(name for name in (f"{rack}1", f"{rack}2") if name != home)
    world.lose(home)
    back = [world.let_start(world.tell(restarting(work))) for work in (leader, friend) if work.node_ids == (home,)]
    assert back
    assert {work.node_ids for work in back} == {(other,)}


def test_a_gang_without_room_in_its_rack_moves_to_another_one_as_one():
    world = racks()
    leader = world.start(labels={"who": "A"}, cpus=3)
    friend = world.start(**mate(3))
    home = leader.node_ids[0]
    rack = home[0]
    assert friend.node_ids[0][0] == rack
    assert friend.node_ids[0] != home
    narrow, wide = (name for name in "rst" if name != rack)
    world.port.take(f"{narrow}2", {"CPU": 3})  # room for one of them, and not for both
    world.pass_time(3)
    world.lose(home)
    world.round()
    assert world.port.restarted == [friend.work_id]
    back = [world.let_start(world.tell(restarting(work))) for work in (leader, friend)]
    homes = {work.node_ids[0] for work in back}
    assert len(homes) == 2
    assert {name[0] for name in homes} == {wide}


def test_a_gang_whose_whole_rack_is_lost_moves_as_one_also_when_it_waited():
    world = racks()
    leader = world.start(labels={"who": "A"}, cpus=3)
    friend = world.start(**mate(3))
    rack = leader.node_ids[0][0]
    first, second = leader.node_ids[0], friend.node_ids[0]
    for name in ("r1", "r2", "s1", "s2", "t1", "t2"):
        if name[0] != rack:
            world.port.take(name, {"CPU": 3})
    world.pass_time(3)
    world.lose(first)  # no other rack has room: the leader waits
    for name in ("r1", "r2", "s1", "s2", "t1", "t2"):
        if name[0] != rack:
            world.port.give(name, {"CPU": 3})
    world.lose(second)
    world.pass_time(3)
    back = [world.let_start(world.tell(restarting(work))) for work in (leader, friend)]
    assert len({work.node_ids[0][0] for work in back}) == 1


def test_the_rules_of_its_members_hold_where_a_gang_moves_to():
    world = racks()
    leader = world.start(labels={"who": "A"}, cpus=2)
    friends = [world.start(**mate(1)) for _ in range(2)]
    rack = leader.node_ids[0][0]
    assert {friend.node_ids[0] for friend in friends} == {f"{rack}1", f"{rack}2"}
    world.pass_time(3)
    lost = leader.node_ids[0]
    world.lose(lost)
    world.round()
    world.pass_time(3)
    gang = [leader, *friends]
    back = [
        world.let_start(world.tell(restarting(work)))
        for work in gang
        if work.node_ids[0] == lost or work.work_id in world.port.restarted
    ]
    apart = [work.node_ids[0] for work in back if work.work_id != leader.work_id]
    assert len(set(apart)) == len(apart)
    assert len({work.node_ids[0][0] for work in back}) == 1
    assert len(back) == 3  # two of them cannot be in what is left of the rack, so all have moved
