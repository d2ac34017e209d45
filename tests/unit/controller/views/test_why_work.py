"""Why something waits, as ``remora explain`` tells it: by its state, and by the class whose token it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, FaultyPort, LeasedWorld, spec

from remora import actor_affinity, affinity
from remora.controller.views.status import status
from remora.model.requests import parse_request
from remora.port.contract import ACTOR, ENDED, GROUP, RUNNING, TASK, WAITING, Demand, Work
from remora.wire import calls
from remora.wire.asks import Ask
from remora.wire.tokens import TAKEN, class_token, lease_token

IN_B = spec(label_selector={"zone": "b"})
TOKEN = {class_token(IN_B.class_id): TAKEN}


def work(state: str, detail: str, shape: dict[str, float], kind: str = TASK, **more: Any) -> Work:
    return Work(kind, "id", "it", JOB_ID, state, detail, (shape,), **more)


WHYS = {
    "runs": (work(RUNNING, "RUNNING", {"CPU": 1}, node_ids=("n1",)), "it runs on n1"),
    "cancelled": (work(ENDED, "CANCELLED", {"CPU": 1}), "it was cancelled"),
    "ended": (work(ENDED, "FAILED: boom", {"CPU": 1}), "it has ended (FAILED: boom)"),
    "arguments": (work(WAITING, "PENDING_ARGS_AVAIL", {"CPU": 1, **TOKEN}), "its arguments are not there yet"),
    "no token": (work(WAITING, "PENDING_NODE_ASSIGNMENT", {"CPU": 1}), "submitted by a job that is not attached"),
    "too large": (
        work(WAITING, "PENDING_CREATION", {"CPU": 9, **TOKEN}, ACTOR),
        "0/2 nodes fit: 1 does not match zone=b, 1 is too small for 9 CPU",
    ),
    "fits": (work(WAITING, "PENDING_NODE_ASSIGNMENT", {"CPU": 1, **TOKEN}), "1/2 nodes fit: it is about to start"),
    "a group": (
        Work(GROUP, "id", "it", JOB_ID, WAITING, "PENDING", ({"CPU": 9, **TOKEN},), strategy="PACK"),
        "1 bundle fits nowhere (of 1): 0/2 nodes fit: 1 does not match zone=b, 1 is too small for 9 CPU",
    ),
    "in a group": (work(WAITING, "PENDING_CREATION", {"CPU_group_ab": 1}, ACTOR), "its placement group has no room"),
}


@pytest.fixture
def world() -> LeasedWorld:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b"})
    world = LeasedWorld(port=port)
    world.ensure(IN_B)
    return world


@pytest.mark.parametrize("by", ["id", "it"])
@pytest.mark.parametrize("name", WHYS)
def test_work_is_explained_by_its_state_and_its_class(world: LeasedWorld, name: str, by: str):
    asked, reason = WHYS[name]
    world.port.submit(asked)
    (row,) = world.ask(calls.Explain(by))
    assert row["reason"].startswith(reason)
    assert not any(resource.startswith("remora/") for shape in row["resources"] for resource in shape)


def test_what_nobody_knows_has_no_reason(world: LeasedWorld):
    assert world.ask(calls.Explain("nobody")) == []


def test_it_is_looked_up_anew_each_time(world: LeasedWorld):
    asked, _ = WHYS["fits"]
    world.port.submit(asked)
    world.ask(calls.Explain("id"))
    world.port.submit(replace(asked, state=ENDED, detail="FINISHED"))
    (row,) = world.ask(calls.Explain("id"))
    assert row["reason"] == "it has ended (FINISHED)"


def test_what_waits_alike_is_one_row() -> None:
    """Each of these asks for a token of its own, so that the cluster reports it as a demand of its own."""
    port = FaultyPort()
    port.join("n1", {"CPU": 4})
    world = LeasedWorld(port=port)
    near = Ask(parse_request(ACTOR, resources={"CPU": 1}, scheduling_strategy=actor_affinity({"type": "cat"})), ())
    slots = [world.place(near)[0] for _ in range(3)]
    world.controller.picture.demands = tuple(Demand({"CPU": 1.0, lease_token(slot): 1.0}, 1) for slot in slots)
    (row,) = status(world.controller)["waiting"]
    assert (row["count"], row["resources"]) == (3, [{"CPU": 1.0}])
    assert "host no actor with type in (cat)" in row["reason"].replace("hosts", "host")


def test_who_waits_for_an_actor_that_has_ended_is_told_so() -> None:
    port = FaultyPort()
    port.join("n1", {"CPU": 4})
    world = LeasedWorld(port=port)
    gone = "ab" * 16
    near = Ask(parse_request(ACTOR, resources={"CPU": 1}, scheduling_strategy=actor_affinity(affinity([gone]))), ())
    slot, _ = world.place(near)
    world.pass_time(3, every=0.5)  # it may just be being created
    world.controller.picture.demands = (Demand({"CPU": 1.0, lease_token(slot): 1.0}, 1),)
    (row,) = status(world.controller)["waiting"]
    assert row["reason"].endswith("the actor abababababab is placed nowhere: it has ended")
