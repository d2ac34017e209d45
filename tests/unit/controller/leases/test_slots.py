"""Slots: names that are used again, a few in reserve, and what a decision costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LONELY, WITH_CAT, LeasedWorld, wanted

from remora.controller.commands import begin
from remora.port.contract import ACTOR, ENDED, RUNNING, Work
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL, encode_ask
from remora.wire.tokens import slot_of_token


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


def test_while_leases_are_asked_for_each_node_has_a_few_slots_in_reserve_that_start_at_once(world: LeasedWorld):
    cat = world.start(**LONELY)
    world.later(1)
    standing = world.slots()
    slot, node_id = world.place(wanted(**LONELY))
    assert node_id not in (None, *cat.node_ids)  # also where none was asked for yet
    assert slot in standing
    world.round()
    assert world.slots() >= standing  # and another takes its place
    assert len(world.slots()) == len(standing) + 1


def test_in_a_large_cluster_only_nodes_that_are_asked_for_have_reserves():
    world = LeasedWorld(*(f"n{number}" for number in range(100)))
    nodes = {world.place(wanted(**LONELY))[1] for _ in range(3)}
    world.later(1)
    reserved = {view.node_id for view in world.views() if any(slot_of_token(name) for name in view.total)}
    assert reserved == nodes


def test_slots_are_used_again_so_that_names_do_not_grow(world: LeasedWorld):
    slots = set()
    for _ in range(50):
        cat = world.start(**LONELY)
        slots.add(cat.labels[LEASE_LABEL])
        world.dies(cat)
        world.later(1)
    assert len(slots) <= 16


def test_no_two_leases_have_one_slot(world: LeasedWorld):
    slots = [world.place(wanted(cpus=0.001, labels={"a": "b"}))[0] for _ in range(100)]
    assert len(set(slots)) == 100


def test_a_decision_costs_the_same_however_many_leases_there_are(world: LeasedWorld):
    asked = encode_ask(wanted(cpus=0.0001, **WITH_CAT))
    world.start(**LONELY)

    def place(question: str) -> tuple[str, str | None]:
        reply = begin(world.controller, calls.Place(question, asked, JOB_ID)).poll()
        assert reply is not None
        slot, node_id = reply.result()
        return slot, node_id

    def one() -> None:
        slot, node_id = place("q")
        begin(world.controller, calls.Claim(slot, f"actor-{slot}"))
        work = Work(ACTOR, f"actor-{slot}", "", JOB_ID, RUNNING, "ALIVE", ({},), node_ids=(str(node_id),))
        world.controller.tell(work)
        assert world.controller.class_tokens.dirty
        world.controller.tell(replace(work, state=ENDED))

    one()
    few = calls_in(one)
    for number in range(300):
        place(f"q{number}")
    assert calls_in(one) < few + 20


def calls_in(action: Callable[[], None]) -> int:
    count = 0

    def tick(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
