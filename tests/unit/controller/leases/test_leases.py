"""Leases: one decision each, steered by a token, until the work lives or has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.leased import LONELY, WITH_CAT, LeasedWorld, wanted, wanted_task

from remora import label_in, task_affinity
from remora.port.contract import RUNNING
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL
from remora.wire.timing import CLAIM_SECONDS
from remora.wire.tokens import TAKEN, lease_token


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


def test_cats_spread_and_the_one_too_many_waits_with_the_reason_until_one_is_gone(world: LeasedWorld):
    cats = [world.start(**LONELY) for _ in range(4)]
    assert sorted(cat.node_ids for cat in cats) == [(), ("n1",), ("n2",), ("n3",)]
    left_over = next(cat for cat in cats if not cat.node_ids)
    assert world.why(left_over) == "0/3 nodes fit: 3 already host an actor with type in (cat)"
    gone = next(cat for cat in cats if cat.node_ids)
    world.dies(gone)
    assert world.let_start(left_over).node_ids == gone.node_ids


def test_a_running_actor_holds_no_token_and_a_dead_one_leaves_no_name(world: LeasedWorld):
    cat = world.start(**LONELY)
    assert world.token_on(cat) is None
    world.dies(cat)
    world.later(60)  # nobody asks any more: what was in reserve goes too
    assert world.slots() == set()
    assert world.controller.settled


def test_the_dog_waits_for_the_cat_and_starts_with_it(world: LeasedWorld):
    dog = world.start(**WITH_CAT)
    assert dog.node_ids == ()
    cat = world.start(**LONELY)
    assert world.let_start(dog).node_ids == cat.node_ids


def test_between_rounds_tokens_come_with_the_decision_and_go_when_the_actor_runs_or_has_ended(world: LeasedWorld):
    dog = world.start(**WITH_CAT)
    slot, node_id = world.place(wanted(**LONELY), "q1")
    assert world.token_on(dog) == node_id  # it was decided because the cat was
    world.tell(replace(dog, state=RUNNING, detail="ALIVE", node_ids=(node_id or "",)))
    assert slot in world.slots()
    world.ask(calls.GiveUp(slot, "q1"))
    assert world.token_on(dog) is None
    assert slot not in world.slots()


def test_a_lease_is_the_smallest_amount_so_that_one_can_take_it(world: LeasedWorld):
    slot, node_id = world.place(wanted_task(labels={"a": "b"}))
    assert world.where(lease_token(slot)) == {node_id: TAKEN}


def test_a_lease_that_nobody_claims_is_taken_back(world: LeasedWorld):
    slot, node_id = world.place(wanted(**LONELY))
    assert world.slot_on(slot) == node_id
    world.pass_time(CLAIM_SECONDS + 30)
    assert slot not in world.slots()
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1  # its place is free again


def test_whoever_was_stopped_and_comes_late_has_its_slot_alone(world: LeasedWorld):
    slot, _ = world.place(wanted(**LONELY), worker_id="stopped")
    world.pass_time(CLAIM_SECONDS + 30)
    others = [world.start(**LONELY) for _ in range(3)]
    assert slot not in {each.labels[LEASE_LABEL] for each in others}
    late = world.created(slot, wanted(**LONELY))
    assert world.let_start(late).node_ids == ()  # its place is somebody's by now
    world.dies(others[0])
    assert world.let_start(late).node_ids == others[0].node_ids


@pytest.mark.parametrize("how", ["its process ended", "it gave up"])
def test_a_slot_that_was_kept_for_who_never_came_is_given_again(world: LeasedWorld, how: str):
    slot, _ = world.place(wanted(**LONELY), "q1", worker_id="stopped")
    world.pass_time(CLAIM_SECONDS + 30)
    if how == "it gave up":
        world.ask(calls.GiveUp(slot, "q1"))
    else:
        world.worker_ended("stopped")
    world.pass_time(CLAIM_SECONDS)
    assert slot in {world.place(wanted(**LONELY))[0] for _ in range(12)}


def test_a_claimed_one_is_not_taken_back_however_long_it_waits(world: LeasedWorld):
    dog = world.submit(wanted(**WITH_CAT))
    world.pass_time(10 * CLAIM_SECONDS)
    cat = world.start(**LONELY)
    assert world.let_start(dog).node_ids == cat.node_ids


def test_an_actor_whose_claim_was_lost_is_known_by_its_label(world: LeasedWorld):
    dog = world.submit(wanted(**WITH_CAT), claim=False)
    world.pass_time(10 * CLAIM_SECONDS)
    cat = world.start(**LONELY)
    assert world.let_start(dog).node_ids == cat.node_ids


def test_two_in_one_moment_are_not_promised_the_same_cpus(world: LeasedWorld):
    nodes = [world.place(wanted(cpus=4, labels={"k": str(number)}))[1] for number in range(4)]
    assert sorted(nodes, key=str) == sorted(["n1", "n2", "n3", None], key=str)
    world.round()  # the report of the nodes still says that all is free
    assert world.place(wanted(labels={"k": "v"}))[1] is None


def test_a_labelled_task_counts_until_it_is_done(world: LeasedWorld):
    beside = wanted_task(scheduling_strategy=task_affinity(label_in("stage", ["load"], False)))
    slot, node_id = world.place(wanted_task(labels={"stage": "load"}), "q1")
    assert world.place(beside)[1] == node_id
    world.ask(calls.GiveUp(slot, "q1"))
    world.round()
    assert world.place(beside)[1] is None
    assert slot not in world.slots()


@pytest.mark.parametrize("late", [False, True])
def test_an_actor_that_could_not_be_created_gives_its_slot_back_at_once(world: LeasedWorld, late: bool):
    slot, _ = world.place(wanted(**LONELY), "q1")
    world.later(1 if late else 0)
    world.ask(calls.GiveUp(slot, "q1"))
    assert slot not in world.slots()
    assert world.place(wanted(**LONELY))[1] is not None


def test_the_label_of_a_slot_that_was_never_given_is_believed(world: LeasedWorld):
    """It was given by a controller that was killed before it wrote anything."""
    cat = world.created("7.5", wanted(**LONELY))
    assert cat.labels[LEASE_LABEL] == "7.5"
    assert world.let_start(cat).node_ids != ()
