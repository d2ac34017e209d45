"""Calls that arrive twice, late, or for what is somebody else's by now: Ray sends a call again whose answer was lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LONELY, LeasedWorld, spec, wanted, wanted_task
from tests.unit.controller.worlds import World

from remora import label_not_in, task_affinity
from remora.controller.commands import begin
from remora.controller.effects import Resize, perform
from remora.errors import InvalidVirtualClusterError
from remora.port.contract import ENDED
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL, Ask, encode_ask
from remora.wire.keys import OVERRIDES
from remora.wire.tokens import lease_token

LONELY_TASK: dict[str, Any] = {
    "labels": {"type": "cat"},
    "scheduling_strategy": task_affinity(label_not_in("type", ["cat"], False)),
}


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


# Placing


def test_a_question_that_is_asked_twice_has_one_slot(world: LeasedWorld):
    first = world.place(wanted(**LONELY), "q1")
    assert world.place(wanted(**LONELY), "q1") == first
    others = [world.place(wanted(**LONELY))[1] for _ in range(3)]
    assert others.count(None) == 1  # it counts once


@pytest.mark.parametrize("waits", [False, True])
def test_a_question_about_a_task_that_is_asked_of_the_next_controller_has_the_same_slot(world: LeasedWorld, waits: bool):
    for _ in range(3 if waits else 0):
        world.place(wanted_task(**LONELY_TASK))
    first = world.place(wanted_task(**LONELY_TASK), "q1")
    assert (first[1] is None) == waits
    world.restart()
    assert world.place(wanted_task(**LONELY_TASK), "q1") == first
    assert world.port.keys("lease/").count(f"lease/{first[0]}") == 1


def test_a_slot_is_told_to_nobody_before_a_task_is_remembered_for_it(world: LeasedWorld):
    """Otherwise a controller that dies now is not known by the next one to have given it."""
    pending = begin(world.controller, calls.Place("q1", encode_ask(wanted_task(**LONELY_TASK)), JOB_ID))
    assert pending.poll() is None
    world.host.pump()
    reply = pending.poll()
    assert reply is not None
    slot, _ = reply.result()
    assert world.port.get(f"lease/{slot}") is not None


@pytest.mark.parametrize("asked", [wanted(**LONELY), wanted_task(**LONELY_TASK)])
def test_a_question_that_comes_again_when_all_is_over_is_not_answered_anew(world: LeasedWorld, asked: Ask):
    """Nobody would ever give that up."""
    slot, _ = world.place(asked, "q1")
    world.ask(calls.GiveUp(slot, "q1"))
    assert world.place(asked, "q1") == (slot, None)
    world.later(1)
    assert slot not in world.controller.leases.by_slot
    assert not world.port.keys("lease/")
    world.pass_time(20)
    assert [world.place(asked)[1] for _ in range(4)].count(None) == 1


def test_a_virtual_cluster_that_is_asked_for_again_when_it_is_gone_is_not_made_again(world: LeasedWorld):
    call = calls.CreateCluster("q1", '{"flexible_resource_min": {"CPU": 1}}', None, JOB_ID, 0, [], 5.0)
    made = world.ask(call)
    world.ask(calls.CloseCluster("q1", unused=True))
    assert not world.controller.registry.records
    again = world.ask(call)
    assert (again["cluster_id"], again["state"]) == (made["cluster_id"], "CLOSED")
    assert not world.controller.registry.records


def test_a_virtual_cluster_that_was_refused_and_is_asked_for_again_is_not_made_when_it_would_fit(world: LeasedWorld):
    call = calls.CreateCluster("q1", '{"flexible_resource_min": {"CPU": 16}}', None, JOB_ID, 0, [], 5.0)
    with pytest.raises(InvalidVirtualClusterError):
        world.ask(call)
    world.ask(calls.CloseCluster("q1", unused=True))
    world.port.join("n4", {"CPU": 4})
    world.later(1)
    world.ask(call)
    assert not world.controller.registry.records


# Giving up and claiming


def test_giving_up_a_slot_that_is_somebody_elses_by_now_does_nothing(world: LeasedWorld):
    slot, _ = world.place(wanted_task(labels={"a": "b"}), "q1")
    world.ask(calls.GiveUp(slot, "q1"))
    question, node_id = used_again(world, slot, wanted_task(cpus=0.01, labels={"a": "b"}))
    world.ask(calls.GiveUp(slot, "q1"))  # the message came twice
    assert world.slot_on(slot) == node_id
    assert world.place(wanted_task(cpus=0.01, labels={"a": "b"}), question) == (slot, node_id)


def used_again(world: LeasedWorld, slot: str, asked: Ask) -> tuple[str, str | None]:
    """Ask until a slot is given again. Return the question that it was given for, and its node."""
    for _ in range(100):
        world.later(0.5)
        question = world.new_ask()
        given, node_id = world.place(asked, question)
        if given == slot:
            return question, node_id
    raise AssertionError(f"{slot} is never used again")


def test_giving_up_twice_is_giving_up_once(world: LeasedWorld):
    slot, _ = world.place(wanted(**LONELY), "q1")
    for _ in range(2):
        world.ask(calls.GiveUp(slot, "q1"))
    assert slot not in world.slots()
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1


def test_claiming_a_slot_that_is_somebody_elses_by_now_does_nothing(world: LeasedWorld):
    slot, _ = world.place(wanted(labels={"a": "b"}), "q1")
    world.ask(calls.GiveUp(slot, "q1"))
    asked = wanted(cpus=0.01, labels={"a": "b"})
    question, node_id = used_again(world, slot, asked)
    world.ask(calls.Claim(slot, "late", "q1"))
    mine = world.created(slot, asked, claim=False)
    world.ask(calls.Claim(slot, mine.work_id, question))
    assert world.let_start(mine).node_ids == (node_id,)
    assert world.events("late") == []
    assert f"runs on {node_id}" in world.events(mine.work_id)


def test_claiming_twice_is_claiming_once(world: LeasedWorld):
    cat = world.submit(wanted(**LONELY))
    for _ in range(2):
        world.ask(calls.Claim(cat.labels[LEASE_LABEL], cat.work_id))
    assert world.let_start(cat).node_ids != ()


def test_a_slot_that_is_still_in_use_though_it_was_given_back_is_given_to_nobody_else(world: LeasedWorld):
    """Its actor was taken for gone: what the cluster shows counts."""
    cat = world.start(labels={"type": "cat"})
    slot = cat.labels[LEASE_LABEL]
    world.port.hidden = {cat.work_id}
    world.pass_time(20)
    world.port.hidden = set()
    world.pass_time(90)  # what is told of it is not taken for old any more
    given = {world.place(wanted(cpus=0.01, labels={"a": "b"}))[0] for _ in range(30)}
    assert slot not in given


def test_a_claim_that_comes_before_gcs_knows_of_the_actor_is_believed_for_a_while(world: LeasedWorld):
    world.pass_time(14)
    asked = wanted(**LONELY)
    slot, node_id = world.place(asked, "q1")
    world.ask(calls.Claim(slot, "actor0-" + slot, "q1"))
    world.pass_time(3)  # once in a while all are looked up, and this one is not there
    assert world.slot_on(slot) == node_id
    assert world.let_start(world.created(slot, asked)).node_ids == (node_id,)


def test_a_claim_whose_actor_never_comes_is_taken_back(world: LeasedWorld):
    slot, _ = world.place(wanted(**LONELY), "q1")
    world.ask(calls.Claim(slot, "nobody", "q1"))
    world.pass_time(40)
    assert slot not in world.slots()
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1


def test_the_claim_may_come_after_the_actor_has_ended(world: LeasedWorld):
    cat = world.submit(wanted(**LONELY), claim=False)
    world.dies(cat)
    world.ask(calls.Claim(cat.labels[LEASE_LABEL], cat.work_id))
    world.pass_time(2)
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1
    assert world.failures() == {}


def test_an_old_message_about_an_actor_that_has_ended_changes_nothing(world: LeasedWorld):
    cat = world.start(**LONELY)
    world.dies(cat)
    world.host.controller.tell(cat)  # the feed sends "ALIVE" after "DEAD"
    world.later(1)
    assert world.failures() == {}
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1


def test_an_old_message_that_an_actor_restarts_moves_nobody(world: LeasedWorld) -> None:
    cat = world.start(**LONELY)
    restarting = world.stops(cat)
    back = world.let_start(restarting)
    events = world.events(cat.work_id)
    for late in (restarting, cat):  # the feed doubles what it said before
        world.host.controller.tell(late)
        world.later(1)
    assert world.events(cat.work_id) == events
    assert world.restarts(back).node_ids


# Tasks whose caller died


def test_the_tasks_of_a_worker_end_with_it(world: LeasedWorld):
    for number in range(3):
        world.place(wanted_task(**LONELY_TASK), f"q{number}", worker_id="w1")
    assert world.place(wanted_task(**LONELY_TASK), "q3", worker_id="w2")[1] is None
    world.worker_ended("w1")
    world.round()
    assert world.place(wanted_task(**LONELY_TASK), "q3", worker_id="w2")[1] is not None
    assert len(world.port.keys("lease/")) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_task_whose_caller_died_is_found_though_the_message_was_lost(world: LeasedWorld, restarted: bool):
    for number in range(3):
        world.place(wanted_task(**LONELY_TASK), f"q{number}", worker_id="w1")
    world.kill()
    world.worker_ended("w1")  # nobody hears of it
    if restarted:
        world.restart()
    else:
        world.listen()
    world.pass_time(20)
    assert world.port.keys("lease/") == []
    assert world.place(wanted_task(**LONELY_TASK))[1] is not None


def test_a_task_whose_caller_lives_is_kept_however_long_it_runs(world: LeasedWorld):
    slot, node_id = world.place(wanted_task(**LONELY_TASK), "q1", worker_id="w1")
    world.pass_time(3600, every=30)
    assert world.slot_on(slot) == node_id


def test_tasks_end_with_their_job(world: LeasedWorld):
    world.place(wanted_task(**LONELY_TASK), worker_id="w1")
    world.job(JOB_ID, ENDED)
    world.round()
    assert world.port.keys("lease/") == []


# Nodes


def test_a_taint_that_is_said_again_after_somebody_took_it_away_stays_away(world: LeasedWorld):
    plain = spec()
    world.ensure(plain)
    first = calls.TaintNode("n1", (("k", "v"),), [], "q1")
    world.ask_in_time(first)
    world.ask_in_time(calls.TaintNode("n1", (), ["k"], "q2"))
    world.ask_in_time(first)  # its answer was lost, and Ray sends it again
    assert world.offers(plain) == {"n1", "n2", "n3"}
    assert [text for text in world.events("n1") if "k" in text.split("=")[0]] == ["k=v", "k-"]


def test_a_label_that_is_said_again_after_somebody_changed_it_is_not_set_again(world: LeasedWorld):
    in_a = spec(label_selector={"zone": "a"})
    first = calls.LabelNode("n1", (("zone", "a"),), [], "q1")
    world.ask_in_time(first)
    world.ask_in_time(calls.LabelNode("n1", (("zone", "b"),), [], "q2"))
    world.ask_in_time(first)
    assert world.ensure(in_a) == []


NODE_CALLS = {
    "label": calls.LabelNode("n1", (("k", "v"),), [], "q1"),
    "taint": calls.TaintNode("n1", (("k", "v"),), [], "q1"),
}


@pytest.mark.parametrize("what", NODE_CALLS)
def test_a_change_of_a_node_is_answered_when_it_is_remembered(world: LeasedWorld, what: str):
    world.host.allows_failures = True
    begin(world.controller, calls.Place("q7", encode_ask(wanted_task(labels={"a": "b"})), JOB_ID))
    world.port.unwritable = {key for key in world.controller.store.all_keys() if key.startswith("lease/")}
    assert world.port.unwritable != set()  # somebody else's: it holds nobody up
    world.ask_in_time(NODE_CALLS[what])
    assert world.time < 1002
    world.restart(allows_failures=True)
    assert world.controller.picture.overrides("n1").asks == ["q1"]


@pytest.mark.parametrize("what", NODE_CALLS)
def test_a_change_of_a_node_is_not_answered_before_it_is_remembered(world: LeasedWorld, what: str):
    world.host.allows_failures = True
    world.port.unwritable = {OVERRIDES.key("n1")}
    pending = begin(world.controller, NODE_CALLS[what])
    world.pass_time(3)
    assert pending.poll() is None
    world.port.unwritable = set()
    world.pass_time(3)
    assert pending.poll() is not None


# Writes in flight


def test_what_is_decided_while_a_write_is_in_flight_is_written_after_it(world: LeasedWorld):
    """No token comes to stand where it was just taken from, or was never wanted."""
    pending = begin(world.controller, calls.Place("q1", encode_ask(wanted(**LONELY)), JOB_ID))
    reply = pending.poll()
    assert reply is not None
    slot, node_id = reply.result()
    in_flight = world.controller.plan()
    assert [each.node_id for each in in_flight if isinstance(each, Resize) and lease_token(slot) in each.amounts] == [node_id]
    begin(world.controller, calls.GiveUp(slot, "q1"))
    assert not any(isinstance(each, Resize) and each.node_id == node_id for each in world.controller.plan())
    for effect in in_flight:
        world.controller.done(perform(world.port, effect))
    assert world.slot_on(slot) == node_id
    world.host.pump()
    assert world.slot_on(slot) is None


# After a shutdown


def test_slots_of_actors_that_outlive_a_shutdown_are_not_given_again(world: LeasedWorld):
    old = world.start(**LONELY)
    world.ask_in_time(calls.Withdraw())
    world.restart()
    new = world.start(**LONELY)
    assert new.labels[LEASE_LABEL] != old.labels[LEASE_LABEL]
    assert new.node_ids not in ((), old.node_ids)
    world.dies(old)
    assert world.restarts(new).node_ids != ()
    world.dies(new)
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1
    assert world.failures() == {}


def test_a_running_actor_that_is_told_twice_is_counted_once(world: LeasedWorld):
    cat = world.start(**LONELY)
    for _ in range(3):
        world.tell(replace(cat, detail="ALIVE"))
        world.later(1)
    world.dies(cat)
    assert [world.place(wanted(**LONELY))[1] for _ in range(4)].count(None) == 1


# What is said once, by whoever does not wait for the answer


def test_a_lease_that_is_given_up_is_forgotten_before_that_is_answered(world: LeasedWorld):
    """Whoever is answered does not say it again, and the next controller would take the task for one that waits."""
    slot, _ = world.place(wanted_task(**LONELY_TASK), "q1")
    pending = begin(world.controller, calls.GiveUp(slot, "q1"))
    assert pending.poll() is None
    world.host.pump()
    assert pending.poll() is not None
    assert world.port.get(f"lease/{slot}") is None


def test_an_object_is_remembered_and_forgotten_before_that_is_answered(world: LeasedWorld):
    for call, is_there in (
        (calls.PutObject("o1", (("type", "cat"),), "n1", "", JOB_ID), True),
        (calls.DropObject("o1"), False),
    ):
        pending = begin(world.controller, call)
        assert pending.poll() is None
        world.host.pump()
        assert pending.poll() is not None
        assert (world.port.get("object/o1") is not None) == is_there


@pytest.mark.parametrize("unused", [False, True])
def test_a_virtual_cluster_is_remembered_to_be_closed_before_that_is_answered(unused: bool):
    world = World()
    outer = world.create(flexible_resource_min={"CPU": 3})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 1})
    world.want(inner)
    pending = begin(world.controller, calls.CloseCluster(outer, unused))
    assert pending.poll() is None
    world.host.pump()
    assert pending.poll() is not None
    world.restart()
    assert all(world.state(each) in ("CLOSED", "GONE") for each in (outer, inner))
