"""``shutdown_controller``: what is left behind, and what the controller does until it is ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.controller.leased import JOB_ID, LeasedWorld, spec, wanted, wanted_task

from remora import ControllerAwayError
from remora.controller.commands import begin
from remora.controller.effects import Effect, Hold, Put, Resize, perform
from remora.port.contract import ACTOR, RUNNING, Work
from remora.wire import calls
from remora.wire.keys import HOLDS, OUTLIVES_WITHDRAWAL, kind_of
from remora.wire.tokens import class_token

PLAIN = spec()
TOKEN = class_token(PLAIN.class_id)


def left_over(world: LeasedWorld) -> list[str]:
    return [key for key in world.port.keys("") if kind_of(key, OUTLIVES_WITHDRAWAL) is None]


def test_withdrawing_leaves_a_stock_cluster():
    world = LeasedWorld("n1", "n2")
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    world.create(flexible_resource_min={"CPU": 1})
    world.place(wanted_task(labels={"a": "b"}))
    world.label("n2", zone="a")
    assert world.ask_in_time(calls.Withdraw()) == []
    assert world.all_tokens() == set()
    assert world.port.holds == {}
    assert left_over(world) == []


def test_withdrawing_says_where_something_still_holds_a_token():
    world = LeasedWorld("n1", "n2")
    world.ensure(PLAIN)
    world.port.take("n1", {TOKEN: 0.0001})
    assert world.ask_in_time(calls.Withdraw()) == ["n1"]
    world.port.give("n1", {TOKEN: 0.0001})
    assert world.ask_in_time(calls.Withdraw()) == []
    assert world.all_tokens() == set()


CALLS = {
    "a class": calls.EnsureClass(PLAIN.encode()),
    "room in a cluster": calls.WantShares([calls.Hint(PLAIN.encode(), {"CPU": 1}, 1)]),
    "a slot": calls.Place("q", "", JOB_ID),
    "the status": calls.GetStatus(),
    "the clusters": calls.GetClusters(),
    "a taint": calls.TaintNode("n1", (("k", "v"),), []),
    "an object": calls.PutObject("o1", (("k", "v"),), "n1", "tests", JOB_ID),
}


@pytest.mark.parametrize("what", CALLS)
def test_once_withdrawn_nobody_is_served_and_nothing_is_written_again(what: str):
    world = LeasedWorld("n1", "n2")
    world.ensure(PLAIN)
    world.ask_in_time(calls.Withdraw())
    with pytest.raises(ControllerAwayError, match="was shut down: attach again"):
        world.ask(CALLS[what])
    world.port.join("n3", {"CPU": 4})
    world.port.submit(Work(ACTOR, "a1", "", JOB_ID, RUNNING, "ALIVE", ({},), ("n1",), labels={"type": "cat"}))
    world.pass_time(3)
    assert world.all_tokens() == set()
    assert left_over(world) == []


def test_what_was_being_written_when_it_was_withdrawn_is_taken_away_too():
    """Writes that were in flight are answered after the call came."""
    world = LeasedWorld("n1", "n2")
    begin(world.controller, calls.EnsureClass(PLAIN.encode()))
    for effect in world.controller.plan():  # a class is remembered before it is offered
        world.controller.done(perform(world.port, effect))
    in_flight = world.controller.plan()
    assert [type(each) for each in in_flight].count(Resize) == 2
    withdrawn = begin(world.controller, calls.Withdraw())
    world.host.pump()
    assert withdrawn.poll() is None
    for effect in in_flight:
        world.controller.done(perform(world.port, effect))
    world.host.pump()
    reply = withdrawn.poll()
    assert reply is not None
    assert reply.result() == []
    assert world.all_tokens() == set()
    assert left_over(world) == []


def test_a_node_that_cannot_be_written_to_is_tried_again():
    world = LeasedWorld("n1", "n2")
    world.host.allows_failures = True
    world.ensure(PLAIN)
    world.port.unwritable = {"n1"}
    assert world.ask_in_time(calls.Withdraw(), within=1.0) is None
    assert world.offers(PLAIN) == {"n1"}
    world.port.unwritable = set()
    assert world.ask_in_time(calls.Withdraw()) == []
    assert world.all_tokens() == set()


def test_a_node_that_never_answers_is_named_in_the_end():
    world = LeasedWorld("n1", "n2")
    world.host.allows_failures = True
    world.ensure(PLAIN)
    world.port.unwritable = {"n1"}
    assert world.ask_in_time(calls.Withdraw(), within=6.0) == ["n1"]
    assert world.offers(PLAIN) == {"n1"}


def test_a_node_that_leaves_meanwhile_holds_nobody_up():
    world = LeasedWorld("n1", "n2")
    world.ensure(PLAIN)
    withdrawn = begin(world.controller, calls.Withdraw())
    world.port.leave("n1")
    world.host.pump()
    reply = withdrawn.poll()
    assert reply is not None
    assert reply.result() == []
    assert world.all_tokens() == set()


def test_a_hold_that_is_just_being_made_is_let_go():
    world = LeasedWorld("n1")
    world.ensure(PLAIN)
    begin(world.controller, calls.TaintNode("n1", (("k", "v"),), []))
    in_flight = until_planned(world, lambda effect: isinstance(effect, Hold))
    withdrawn = begin(world.controller, calls.Withdraw())
    world.host.pump()
    for effect in in_flight:
        world.controller.done(perform(world.port, effect))
    assert world.port.holds != {}
    world.host.pump()
    reply = withdrawn.poll()
    assert reply is not None
    assert reply.result() == []
    assert world.port.holds == {}
    assert left_over(world) == []


def test_a_hold_that_was_only_wanted_is_not_made():
    world = LeasedWorld("n1")
    world.ensure(PLAIN)
    begin(world.controller, calls.TaintNode("n1", (("k", "v"),), []))
    in_flight = until_planned(world, lambda effect: isinstance(effect, Put) and effect.key.startswith(HOLDS.prefix))
    before = len(world.host.performed)
    withdrawn = begin(world.controller, calls.Withdraw())  # while it is being remembered that one is to be made
    for effect in in_flight:
        world.controller.done(perform(world.port, effect))
    world.host.pump()
    reply = withdrawn.poll()
    assert reply is not None
    assert reply.result() == []
    assert not any(isinstance(effect, Hold) for effect in world.host.performed[before:])
    assert left_over(world) == []


def test_slots_that_were_told_before_are_not_given_again_though_nobody_knows_of_them():
    """Whoever has one is about to create its actor."""
    world = LeasedWorld("n1", "n2")
    slot, _ = world.place(wanted(labels={"a": "b"}))
    world.ask_in_time(calls.Withdraw())
    world.restart()
    assert slot not in {world.place(wanted(cpus=0.01, labels={"a": "b"}))[0] for _ in range(20)}


def until_planned(world: LeasedWorld, is_it: Callable[[Effect], bool]) -> list[Effect]:
    """Perform effects until a certain one is planned, and return what was planned with it."""
    for _ in range(10):
        planned = world.controller.plan()
        if any(map(is_it, planned)):
            return planned
        for effect in planned:
            world.controller.done(perform(world.port, effect))
    raise AssertionError("it is never planned")
