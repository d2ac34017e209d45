"""Classes on nodes: offered where they are admitted, fenced, held and taken away where they are not, repaired where lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.leased import FaultyPort, LeasedWorld, spec

from remora import Exists
from remora.controller.effects import Hold, Put, Resize
from remora.wire.fences import fence_key, read_fence
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.timing import IDLE_SECONDS, REPORTED_SECONDS
from remora.wire.tokens import class_token

PLAIN = spec()
TOLERANT = spec(tolerations={"gpu": Exists()})
IN_B = spec(label_selector={"zone": "b"})
TOKEN = class_token(PLAIN.class_id)


@pytest.fixture
def world() -> LeasedWorld:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b", "taint.remora.io/gpu": "true"})
    return LeasedWorld(port=port)


def fenced(world: LeasedWorld, node_id: str) -> frozenset[str]:
    return read_fence(world.port.get(fence_key(node_id))).classes


def test_a_class_is_offered_on_the_nodes_that_it_admits(world: LeasedWorld):
    assert world.ensure(PLAIN) == ["n1"]
    assert world.ensure(TOLERANT) == ["n1", "n2"]
    assert world.ensure(IN_B) == []
    assert (world.offers(PLAIN), world.offers(TOLERANT), world.offers(IN_B)) == ({"n1"}, {"n1", "n2"}, set())


def test_a_node_that_joins_offers_nothing_until_the_controller_has_seen_its_taints(world: LeasedWorld):
    world.ensure(PLAIN)
    world.port.join("n3", {"CPU": 1}, {"taint.remora.io/x": "y"})
    world.port.join("n4", {"CPU": 1})
    assert world.offers(PLAIN) == {"n1"}
    world.round()
    assert world.offers(PLAIN) == {"n1", "n4"}


def test_a_round_with_nothing_to_do_writes_nothing(world: LeasedWorld):
    world.ensure(PLAIN)
    world.round()
    done, writes = len(world.host.performed), world.port.writes
    world.round()
    assert (len(world.host.performed), world.port.writes) == (done, writes)


def test_a_taint_takes_all_but_a_held_remnant_and_the_rest_when_it_is_given_back(world: LeasedWorld):
    world.ensure(PLAIN)
    world.port.take("n1", {TOKEN: 0.0003})
    assert world.taint("n1", k="v") is True
    assert fenced(world, "n1") == {PLAIN.class_id}
    assert (world.total_on("n1", TOKEN), world.free_on("n1", TOKEN)) == (0.0004, 0)
    assert not world.controller.settled
    world.port.give("n1", {TOKEN: 0.0003})
    world.round()
    assert (world.total_on("n1", TOKEN), world.free_on("n1", TOKEN)) == (0.0001, 0)
    assert world.controller.settled
    writes = world.port.writes
    world.round()
    assert world.port.writes == writes
    world.taint("n1", "k")
    assert world.offers(PLAIN) == {"n1"}
    assert fenced(world, "n1") == frozenset()


def test_a_class_is_fenced_first_then_held_then_taken_away(world: LeasedWorld):
    world.ensure(PLAIN)
    before = len(world.host.performed)
    world.taint("n1", k="v")
    about = [each for each in world.host.performed[before:] if is_about(each)]
    assert [type(each) for each in about] == [Put, Hold, Resize]
    assert isinstance(about[2], Resize)
    assert about[2].amounts == {TOKEN: 0.0}


def is_about(effect: Any) -> bool:
    match effect:
        case Put(key, _):
            return key == fence_key("n1")
        case Hold(_, "n1", _) | Resize("n1", _):
            return True
    return False


def test_the_remnant_is_kept_for_as_long_as_somebody_uses_the_class_and_no_longer(world: LeasedWorld):
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    world.restart()
    assert len(world.port.holds) == 1
    world.later(IDLE_SECONDS + 1)
    world.round()
    assert world.port.holds == {}
    assert world.total_on("n1", TOKEN) == 0


def test_nothing_is_taken_away_while_it_could_not_be_held(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    world.ensure(PLAIN)
    with monkeypatch.context() as broken:
        broken.setattr(world.port, "hold", lambda *_: False)
        world.taint("n1", k="v")
        assert world.offers(PLAIN) == {"n1"}
        assert fenced(world, "n1") == {PLAIN.class_id}
        assert not world.controller.settled
    world.later(0.2)
    assert world.offers(PLAIN) == set()


def test_a_taint_is_answered_when_what_is_free_is_gone_too(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    """Workers ask before they start a task; actors and placement groups start for as long as their tokens are free."""
    world.ensure(PLAIN)
    stock, refused = world.port.hold, [True] * 12
    monkeypatch.setattr(world.port, "hold", lambda *args: False if refused and refused.pop() else stock(*args))
    assert world.taint("n1", k="v") is True
    assert not refused
    assert world.offers(PLAIN) == set()


def test_what_was_lost_is_repaired_by_a_round_soon_after(world: LeasedWorld):
    world.ensure(PLAIN)
    world.port.resize("n1", {TOKEN: 0, "remora/class/stray": 5})
    world.later(REPORTED_SECONDS + 0.1)  # the report is not older any more than what was written
    assert world.offers(PLAIN) == {"n1"}
    assert not any("stray" in name for name in world.all_tokens())


def test_a_taint_right_after_an_untaint_holds_although_the_report_is_old():
    port = FaultyPort()
    world = LeasedWorld("n1", port=port)
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    port.freeze()  # without the token, for as long as it lasts
    world.taint("n1", "k")
    world.taint("n1", k="v")
    port.thaw()
    assert world.offers(PLAIN) == set()


def test_an_untaint_right_after_a_taint_lets_work_in_although_the_report_is_old():
    port = FaultyPort()
    world = LeasedWorld("n1", port=port)
    world.ensure(PLAIN)
    port.freeze()  # with the token
    world.taint("n1", k="v")
    world.taint("n1", "k")
    port.thaw()
    assert world.offers(PLAIN) == {"n1"}


def test_fallbacks_move_the_offer_only_when_the_first_choice_could_never_hold_it(world: LeasedWorld):
    chain = [{"label_selector": {"zone": "a"}}]
    options = {"label_selector": {"zone": "b"}, "fallback_strategy": chain, "tolerations": {"gpu": "true"}}
    small, large = (rewrite(options, Defaults(), {"CPU": cpus}).spec for cpus in (4, 5))
    assert world.ensure(small) == ["n2"]
    assert world.ensure(large) == []
    world.port.join("n3", {"CPU": 8}, {"zone": "a"})
    world.round()
    assert world.offers(large) == {"n1", "n3"}


def test_what_a_placement_group_has_reserved_of_a_token_is_left_alone(world: LeasedWorld):
    world.ensure(PLAIN)
    reserved = {f"{TOKEN}_group_0_ab": 0.0001, f"{TOKEN}_group_ab": 0.0001}
    world.port.resize("n1", reserved)
    world.later(REPORTED_SECONDS + 0.1)
    left = world.view("n1").total
    assert {name: left[name] for name in reserved} == reserved
    assert world.offers(PLAIN) == {"n1"}


# Two nodes whose ids begin alike: one hold each

ALIKE = [f"{'f' * 40}{number:016}" for number in range(2)]


def test_holds_on_nodes_whose_ids_begin_alike_do_not_get_in_each_others_way():
    world = LeasedWorld(*ALIKE)
    world.ensure(PLAIN)
    for node_id in ALIKE:
        assert world.taint(node_id, k="v") is True
    assert len(world.port.holds) == 2
    assert sorted(node_id for node_id, _ in world.port.holds.values()) == ALIKE
    assert [world.total_on(node_id, TOKEN) for node_id in ALIKE] == [0.0001, 0.0001]
    assert world.offers(PLAIN) == set()
    assert world.failures() == {}
