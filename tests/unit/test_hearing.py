"""What the controller's host does with a call: every answer is bytes, the crowd is heard, nothing is heard after the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from remora.errors import ControllerAwayError, ControllerError, UnknownNameError
from remora.live.host.hearing import MOST_KEPT, Hearing
from remora.wire.calls import (
    ANSWERED_BY_HOST,
    Call,
    CloseCluster,
    DropGroup,
    Enter,
    GetEvents,
    GetStatus,
    LookAtCluster,
    MakeGroup,
    Several,
    Who,
    Withdraw,
    encode_call,
    read_answer,
)
from remora.wire.fences import GO, LATER
from remora.wire.group_plans import GroupPlan


class Decides:
    """An engine: ``answers`` by the kind of call, and everything that it heard."""

    def __init__(self, answers: dict[type[Call], Any] | None = None) -> None:
        self.answers = answers or {}
        self.heard: list[Call] = []

    def answer(self, call: Call, told: Sequence[Call] = ()) -> Any:
        self.heard += [*told, call]
        found = self.answers.get(type(call))
        if isinstance(found, Exception):
            raise found
        return found(call) if callable(found) else found

    def close(self) -> None: ...


class Keeps:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def make(self, plan: GroupPlan) -> dict[str, Any]:
        self.heard.append(plan)
        return {"state": "CREATED"}

    def drop(self, group_id: str) -> None:
        self.heard.append(group_id)

    def stop(self) -> None:
        self.heard.append("stopped")


def make(answers: dict[type[Call], Any] | None = None) -> tuple[Hearing, Decides, Keeps, list[str]]:
    engine, groups, ended = Decides(answers), Keeps(), []
    return Hearing(engine, groups, lambda: ended.append("ends")), engine, groups, ended


def ask(hearing: Hearing, call: Call) -> Any:
    return read_answer(hearing.answer(encode_call(call)))


def test_an_answer_is_the_engines() -> None:
    hearing, engine, _, _ = make({GetStatus: {"nodes": [1, 2.5, None]}})
    assert ask(hearing, GetStatus()) == {"nodes": [1, 2.5, None]}
    assert engine.heard == [GetStatus()]


def test_our_errors_are_themselves_and_all_others_say_what_happened() -> None:
    hearing, *_ = make({LookAtCluster: UnknownNameError("there is no vc9"), GetEvents: KeyError("n1")})
    with pytest.raises(UnknownNameError, match="there is no vc9"):
        ask(hearing, LookAtCluster("vc9"))
    with pytest.raises(ControllerError, match=r"the controller failed over this call: KeyError: 'n1'"):
        ask(hearing, GetEvents())


def test_what_is_no_call_is_said_to_be_of_another_version() -> None:
    hearing, *_ = make()
    for data in (b"", b"\x81\xa4type\xa5Dance", b"{}"):
        with pytest.raises(ControllerError, match="another version of Remora"):
            read_answer(hearing.answer(data))


def test_placement_groups_are_made_beside_the_engine() -> None:
    hearing, engine, groups, _ = make()
    plan = GroupPlan("ab" * 18, b"{}", "01")
    assert ask(hearing, MakeGroup(plan)) == {"state": "CREATED"}
    ask(hearing, DropGroup(plan.group_id))
    assert groups.heard == [plan, plan.group_id]
    assert engine.heard == []
    assert set(ANSWERED_BY_HOST) == {MakeGroup, DropGroup, Several}


def test_what_is_told_with_a_question_is_heard_before_it() -> None:
    hearing, engine, groups, _ = make({GetStatus: "fine", CloseCluster: UnknownNameError("nobody waits for this answer")})
    ends = CloseCluster("q1", unused=True)
    assert ask(hearing, Several([encode_call(ends)], encode_call(GetStatus()))) == "fine"
    assert engine.heard == [ends, GetStatus()]
    ask(hearing, Several([encode_call(ends)], encode_call(DropGroup("ab"))))
    assert (engine.heard[2:], groups.heard) == ([ends], ["ab"])
    with pytest.raises(ControllerError, match="another version of Remora"):
        ask(hearing, Several([b"Dance"], encode_call(GetStatus())))


def test_more_than_can_be_kept_are_heard_and_told_to_ask_again_later() -> None:
    """Those who wait are forgotten if they are not heard of: so they must never stand in a queue of threads."""
    inside, go = threading.Semaphore(0), threading.Event()

    def enter(call: Enter) -> str | None:
        if call.patience:
            inside.release()
            go.wait(20)
            return GO
        return GO if call.who.worker_id == "lucky" else None

    hearing, engine, *_ = make({Enter: enter})

    def enters(name: str) -> Any:
        return ask(hearing, Enter(Who(name, "vc1", "n1", {"CPU": 1.0}), False, True, []))

    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(enters("kept"))) for _ in range(MOST_KEPT)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=20)
    assert [enters("late") for _ in range(200)] == [LATER] * 200
    assert enters("lucky") == GO
    assert len(engine.heard) == MOST_KEPT + 201
    go.set()
    for thread in threads:
        thread.join(20)
    assert answers == [GO] * MOST_KEPT
    assert enters("kept") == GO


def test_once_everything_is_withdrawn_nothing_else_is_heard() -> None:
    hearing, engine, groups, ended = make({Withdraw: ["n1"]})
    assert ask(hearing, Withdraw()) == ["n1"]
    with pytest.raises(ControllerAwayError, match="is being shut down"):
        ask(hearing, GetStatus())
    assert ask(hearing, Withdraw()) == ["n1"]
    assert engine.heard == [Withdraw(), Withdraw()]
    assert ended == ["ends"] * 2
    assert groups.heard == ["stopped"] * 2
