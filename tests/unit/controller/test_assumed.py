"""Assumed, then confirmed: a decision counts until a report shows it, once, and is made again when nothing comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import LONELY, WITH_CAT, FaultyPort, LeasedWorld, held_by, wanted, wanted_task

from remora.controller.assumed import START_SECONDS
from remora.controller.effects import Resize
from remora.port.contract import ENDED, RUNNING, Work
from remora.wire.asks import LEASE_LABEL
from remora.wire.keys import HOLDS
from remora.wire.tokens import TAKEN, hold_name, lease_token, share_token

CAT: dict[str, Any] = {"labels": {"type": "cat"}}


def decided(world: LeasedWorld, works: list[Work]) -> list[str | None]:
    return [world.token_on(work) for work in works]


# What ends is counted free once


@pytest.mark.parametrize("told_first", [True, False])
def test_what_ends_is_free_once_whether_its_report_or_the_message_comes_first(told_first: bool):
    world = LeasedWorld("n1", cpus=2)
    running = [world.start(**CAT) for _ in range(2)]
    waiting = [world.start(**CAT) for _ in range(2)]
    world.pass_time(3)
    assert decided(world, waiting) == [None, None]
    steps = [lambda: world.gives_back(running[0]), lambda: world.tell(replace(running[0], state=ENDED, node_ids=()))]
    for step in reversed(steps) if told_first else steps:
        step()
        world.round()
    assert decided(world, waiting) == ["n1", None]
    world.pass_time(3)
    assert decided(world, waiting) == ["n1", None]
    world.port.join("n2", {"CPU": 2})
    world.later(1)
    assert decided(world, waiting) == ["n1", "n2"]


def test_what_ends_is_free_once_when_report_and_message_come_together():
    world = LeasedWorld("n1", cpus=2)
    running = [world.start(**CAT) for _ in range(2)]
    waiting = [world.start(**CAT) for _ in range(2)]
    world.pass_time(3)
    world.dies(running[0])
    assert decided(world, waiting) == ["n1", None]


def test_what_ends_before_any_report_showed_it_is_free_once():
    port = FaultyPort()
    world = LeasedWorld("n1", cpus=2, port=port)
    port.freeze()  # reports say that all is free
    works = [world.submit(wanted(**CAT)) for _ in range(4)]
    for work in works[:2]:
        port.take("n1", held_by(work))
        world.tell(replace(work, state=RUNNING, detail="ALIVE", node_ids=("n1",)))
    world.later(0.1)
    port.give("n1", held_by(works[0]))
    world.tell(replace(works[0], state=ENDED, detail="DEAD", node_ids=()))
    world.later(0.1)
    assert len(world.slots() & {work.labels[LEASE_LABEL] for work in works[2:]}) == 1
    port.thaw()
    world.later(0.1)
    assert len(world.slots() & {work.labels[LEASE_LABEL] for work in works[2:]}) == 1


def test_the_share_of_what_ends_in_a_cluster_is_free_once():
    world = LeasedWorld("n1", cpus=4)
    cluster_id = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    running = [world.start(cluster=cluster_id, **CAT) for _ in range(2)]
    waiting = [world.start(cluster=cluster_id, **CAT) for _ in range(2)]
    world.pass_time(3)
    world.dies(running[0])
    assert decided(world, waiting) == ["n1", None]
    world.pass_time(3)
    assert decided(world, waiting) == ["n1", None]
    assert world.total_on("n1", share_token(cluster_id, "CPU")) == 2


def test_a_decision_counts_until_a_report_shows_it_however_late_that_is():
    port = FaultyPort()
    world = LeasedWorld("n1", cpus=2, port=port)
    port.freeze()
    work = world.submit(wanted(cpus=2, **CAT))
    port.take("n1", held_by(work))
    world.tell(replace(work, state=RUNNING, detail="ALIVE", node_ids=("n1",)))
    for _ in range(5):
        world.later(0.1)
        assert world.place(wanted(**CAT))[1] is None
    port.thaw()
    world.pass_time(5)
    assert world.place(wanted(**CAT))[1] is None


def test_a_task_counts_by_its_report_from_when_that_shows_its_token_in_use():
    world = LeasedWorld("n1", cpus=2)
    slot, node_id = world.place(wanted_task(**CAT))
    assert node_id == "n1"
    world.port.take("n1", {"CPU": 1, lease_token(slot): TAKEN})
    world.pass_time(3)
    assert [world.place(wanted(**CAT))[1] for _ in range(2)] == ["n1", None]


# Where it runs is what the cluster reports


def test_an_actor_that_runs_elsewhere_than_decided_is_counted_where_it_runs():
    world = LeasedWorld("n1", "n2")
    cat = world.submit(wanted(**LONELY))
    node_id = world.token_on(cat)
    other = "n2" if node_id == "n1" else "n1"
    cat = world.starts(cat, other)
    assert world.slots() - reserves(world) == set()
    second = world.start(**LONELY)
    assert second.node_ids == (node_id,)  # the cats keep apart by where they are
    assert world.restarts(cat).node_ids == (other,)
    assert any(text.startswith(f"runs on {other}, where {node_id} was decided") for text in world.events(cat.work_id))


def test_an_actor_that_runs_though_nothing_was_decided_is_counted_where_it_runs():
    world = LeasedWorld("n1", "n2", cpus=1)
    world.port.take("n1", {"CPU": 1})
    world.port.take("n2", {"CPU": 1})
    cat = world.submit(wanted(**LONELY))
    assert world.token_on(cat) is None
    world.port.give("n2", {"CPU": 1})
    world.starts(cat, "n2")
    world.port.give("n1", {"CPU": 1})
    world.later(1)
    assert world.start(**LONELY).node_ids == ("n1",)
    assert world.start(**LONELY).node_ids == ()


def test_an_actor_that_runs_elsewhere_in_its_cluster_takes_its_share_there():
    world = LeasedWorld("n1", "n2")
    cluster_id = world.create(
        fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 1}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]
    )
    cat = world.submit(wanted(cluster=cluster_id, **CAT))
    node_id = world.token_on(cat)
    other = "n2" if node_id == "n1" else "n1"
    world.starts(cat, other)
    world.pass_time(3)
    second = world.start(cluster=cluster_id, **CAT)
    assert second.node_ids == (node_id,)
    assert world.place(wanted(cluster=cluster_id, **CAT))[1] is None


def reserves(world: LeasedWorld) -> set[str]:
    """Return the slots that nobody has: their tokens wait for whoever comes."""
    return world.controller.leases.slots.reserved()


# What has not started in time


def test_what_has_not_started_in_time_is_decided_again_where_there_is_room():
    world = LeasedWorld("n1", "n2", cpus=2)
    world.port.take("n2", {"CPU": 2})
    work = world.submit(wanted(cpus=2, **CAT))
    assert world.token_on(work) == "n1"
    world.port.take("n1", {"CPU": 1})  # somebody who is not attached
    world.pass_time(START_SECONDS + 2)
    assert world.token_on(work) == "n1"  # there is nowhere better
    world.port.give("n2", {"CPU": 2})
    world.pass_time(START_SECONDS + 2)
    assert world.let_start(work).node_ids == ("n2",)
    assert any(text.startswith("had no room in time, and goes to n2") for text in world.events(work.work_id))


def test_what_runs_is_not_decided_again_though_the_message_that_it_does_was_lost():
    world = LeasedWorld("n1", "n2", cpus=1)
    work = world.submit(wanted(**CAT))
    node_id = world.token_on(work)
    assert node_id is not None
    world.kill()  # it hears nothing of what follows
    world.starts(work, node_id)
    world.listen()
    world.pass_time(START_SECONDS + 2)
    assert not any("goes to" in text for text in world.events(work.work_id))
    friend = world.start(**WITH_CAT)
    assert friend.node_ids == ()  # the cat is where it runs, and that node is full


def test_a_lease_whose_new_node_is_lost_goes_back_to_where_it_is_queued():
    """Ray fails what is queued at a raylet when no node has its token any more."""
    world = LeasedWorld("n1", "n2", cpus=2)
    world.port.take("n2", {"CPU": 2})
    work = world.submit(wanted(cpus=2, **CAT))
    token = lease_token(work.labels[LEASE_LABEL])
    world.port.take("n1", {"CPU": 1})
    world.port.give("n2", {"CPU": 2})
    while not world.total_on("n2", token):
        world.later(0.1)
    assert world.total_on("n1", token)
    world.port.leave("n2")
    world.pass_time(3)
    assert world.token_on(work) == "n1"
    world.port.give("n1", {"CPU": 1})
    assert world.let_start(work).node_ids == ("n1",)


def test_a_token_stands_on_the_new_node_before_it_is_taken_from_the_old_one():
    """Work that is queued at a raylet is failed by Ray when no node in the cluster has what it asks for."""
    world = LeasedWorld("n1", "n2", cpus=2)
    world.port.take("n2", {"CPU": 2})
    work = world.submit(wanted(cpus=2, **CAT))
    token = lease_token(work.labels[LEASE_LABEL])
    world.port.take("n1", {"CPU": 1})
    world.port.give("n2", {"CPU": 2})
    before = len(world.host.performed)
    world.pass_time(START_SECONDS + 3)
    writes = [each for each in world.host.performed[before:] if isinstance(each, Resize) and token in each.amounts]
    assert [(each.node_id, each.amounts[token]) for each in writes] == [("n2", TAKEN), ("n1", 0.0)]


def test_a_token_is_left_where_it_is_while_the_new_node_cannot_be_written_to():
    world = LeasedWorld("n1", "n2", cpus=2)
    world.host.allows_failures = True
    world.port.take("n2", {"CPU": 2})
    work = world.submit(wanted(cpus=2, **CAT))
    world.port.take("n1", {"CPU": 1})
    world.port.give("n2", {"CPU": 2})
    world.port.unwritable = {"n2"}
    world.pass_time(START_SECONDS + 5)
    assert world.token_on(work) == "n1"
    world.port.unwritable = set()
    world.pass_time(3)
    assert world.token_on(work) == "n2"


def test_a_token_is_left_where_it_is_until_the_share_beside_it_stands_on_the_new_node():
    """Ray looks for both on one node."""
    world = LeasedWorld("n1", "n2", cpus=2)
    world.host.allows_failures = True
    world.port.take("n2", {"CPU": 2})
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    work = world.submit(wanted(cpus=2, cluster=cluster_id, **CAT))
    token = lease_token(work.labels[LEASE_LABEL])
    world.port.take("n1", {"CPU": 1})
    world.port.give("n2", {"CPU": 2})
    world.port.unwritable = {HOLDS.key("n1", hold_name("n1", 0))}  # so its share on n1 cannot be taken away, and go to n2
    world.pass_time(START_SECONDS + 5)
    assert world.tokens(cluster_id) == {"n1": 2.0}
    assert world.total_on("n1", token) == TAKEN
    assert world.total_on("n2", token) == TAKEN
    world.port.unwritable = set()
    world.pass_time(3)
    assert world.total_on("n2", share_token(cluster_id, "CPU")) == 2.0
    assert world.token_on(work) == "n2"


def test_a_task_that_has_not_started_in_time_is_decided_again_too():
    world = LeasedWorld("n1", "n2", cpus=2)
    world.port.take("n2", {"CPU": 2})
    slot, node_id = world.place(wanted_task(cpus=2, **CAT))
    assert node_id == "n1"
    world.port.take("n1", {"CPU": 1})
    world.port.give("n2", {"CPU": 2})
    world.pass_time(START_SECONDS + 3)
    assert world.slot_on(slot) == "n2"


def test_what_has_room_stays_however_long_its_worker_takes_to_start():
    world = LeasedWorld("n1", "n2", cpus=2)
    work = world.submit(wanted(cpus=2, **CAT))
    node_id = world.token_on(work)
    world.pass_time(60)
    assert world.token_on(work) == node_id
    assert world.let_start(work).node_ids == (node_id,)


def test_two_actors_that_wait_are_not_both_promised_what_one_gives_back():
    world = LeasedWorld("n1", cpus=1)
    first = world.start(**CAT)
    waiting = [world.submit(wanted(**CAT)) for _ in range(3)]
    for _ in range(3):
        world.dies(first)
        assert [each is not None for each in decided(world, waiting)].count(True) == 1
        first = next(world.let_start(work) for work in waiting if world.token_on(work))
        waiting = [work for work in waiting if work.work_id != first.work_id]
    assert waiting == []
