"""Classes that sleep and wake: offered while somebody uses them or said lately that they will."""

from __future__ import annotations

import pytest
from tests.unit.controller.leased import FaultyPort, LeasedWorld, spec

from remora import Exists
from remora.controller.commands import begin
from remora.controller.effects import perform
from remora.controller.tokens.roster import MOST_OFFERED
from remora.wire import calls
from remora.wire.timing import IDLE_SECONDS
from remora.wire.tokens import TAKEN, class_token

PLAIN, IN_A, IN_B = spec(), spec(label_selector={"zone": "a"}), spec(label_selector={"zone": "b"})


@pytest.fixture
def world() -> LeasedWorld:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b"})
    return LeasedWorld(port=port)


def test_a_class_that_nobody_uses_is_no_longer_offered_and_wakes_when_it_is_needed(world: LeasedWorld):
    world.ensure(PLAIN)
    world.ensure(IN_A)
    world.later(IDLE_SECONDS - 1)
    world.ensure(PLAIN)  # said again: it stays
    world.later(5)
    assert (world.offers(PLAIN), world.offers(IN_A)) == ({"n1", "n2"}, set())
    assert world.ensure(IN_A) == ["n1"]
    assert world.offers(IN_A) == {"n1"}


def test_a_class_that_is_held_or_waited_for_does_not_sleep(world: LeasedWorld):
    world.ensure(IN_A)
    world.ensure(IN_B)
    world.port.take("n1", {class_token(IN_A.class_id): TAKEN})
    world.port.wait({"CPU": 9, class_token(IN_B.class_id): TAKEN})
    for _ in range(4):
        world.later(IDLE_SECONDS)
    assert (world.offers(IN_A), world.offers(IN_B)) == ({"n1"}, {"n2"})


@pytest.mark.parametrize("restarted", [False, True])
def test_work_that_waits_for_a_sleeping_class_wakes_it_also_after_a_restart(world: LeasedWorld, restarted: bool):
    world.ensure(IN_A)
    world.later(IDLE_SECONDS + 1)
    assert world.offers(IN_A) == set()
    if restarted:
        world.restart()
        world.later(IDLE_SECONDS + 1)  # what is remembered is offered for a while
        assert world.offers(IN_A) == set()
    world.port.wait({"CPU": 1, class_token(IN_A.class_id): TAKEN})
    world.round()
    assert world.offers(IN_A) == {"n1"}


def test_a_class_that_is_only_held_on_a_node_where_it_is_not_admitted_sleeps(world: LeasedWorld):
    """What our own hold takes is no use."""
    world.ensure(IN_A)
    world.taint("n1", k="v")
    world.pass_time(IDLE_SECONDS + 5, every=5)
    assert world.all_tokens() == set()
    assert world.port.holds == {}


def test_a_hold_that_is_reported_before_its_answer_came_is_no_use_either(world: LeasedWorld):
    world.ensure(IN_A)
    begin(world.controller, calls.TaintNode("n1", (("k", "v"),), []))
    for _ in range(5):
        answers = [perform(world.port, effect) for effect in world.controller.plan()]
        world.controller.report(world.port.observe())
        for done in answers:
            world.controller.done(done)
    assert world.port.holds != {}
    world.pass_time(IDLE_SECONDS + 5, every=5)
    assert world.all_tokens() == set()


def test_there_are_never_many_more_tokens_on_a_node_than_the_limit(world: LeasedWorld):
    classes = [spec(tolerations={f"k{number}": Exists()}) for number in range(MOST_OFFERED + 50)]
    for made in classes:
        world.host.ask(calls.EnsureClass(made.encode()))
    world.port.take("n1", {class_token(classes[0].class_id): TAKEN})
    world.later(10)
    for view in world.views():
        assert sum(name.startswith("remora/") for name in view.total) == MOST_OFFERED
    assert world.offers(classes[0]) == {"n1", "n2"}  # in use
    assert world.offers(classes[1]) == set()  # the one unused for longest made room
    assert world.offers(classes[-1]) == {"n1", "n2"}
