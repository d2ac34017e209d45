"""The way to the controller: what can wait goes with the next question, and what nothing is asked after goes by itself; one
that does not answer is waited for with a bound, and that is said in our words."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, ObjectLostError, RayTaskError

from remora.errors import ControllerAwayError, ControllerError
from remora.live import link as link_module
from remora.live.link import Link, _wait
from remora.wire.calls import CloseCluster, GetStatus, GiveUp, Several, decode_call, encode_answer
from remora.wire.timing import AWAY_SECONDS


class Heard(Link):
    """The real one, but for the network: what is sent is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []
        self.any = threading.Event()

    def find(self, *, anew: bool = False) -> Any:
        return SimpleNamespace(ask=SimpleNamespace(remote=self._hear))

    def _get(self, method: str, data: bytes) -> bytes:
        self._hear(data)
        return encode_answer("fine")

    def _hear(self, data: bytes) -> None:
        self.sent.append(decode_call(data))
        self.any.set()


@pytest.fixture
def link() -> Heard:
    return Heard()


def unpacked(call: Any) -> list[Any]:
    return [*map(decode_call, call.told), decode_call(call.asked)] if isinstance(call, Several) else [call]


ENDS, ALSO = CloseCluster("q1", unused=True), CloseCluster("q2", unused=False)


def test_what_can_wait_goes_with_the_next_question_in_its_order(link: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remora.live.link._SOON_SECONDS", 60.0)
    link.tell_soon(ENDS)
    link.tell_soon(ALSO)
    assert link.ask(GetStatus()) == "fine"
    assert [unpacked(each) for each in link.sent] == [[ENDS, ALSO, GetStatus()]]
    link.ask(GetStatus())
    assert link.sent[1:] == [GetStatus()]


def test_what_nothing_is_asked_after_goes_by_itself_and_once(link: Heard) -> None:
    link.tell_soon(ENDS)
    assert link.any.wait(10)
    link.ask(GetStatus())
    assert link.sent == [ENDS, GetStatus()]


def test_it_does_not_go_with_what_is_heard_by_other_threads(link: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remora.live.link._SOON_SECONDS", 60.0)
    link.tell_soon(ENDS)
    link.ask(GiveUp("s1", "q1"))
    assert link.sent == [GiveUp("s1", "q1")]


def test_many_threads_say_everything_once(link: Heard) -> None:
    def say(number: int) -> None:
        for each in range(50):
            link.tell_soon(CloseCluster(f"{number}.{each}", unused=True))
            if each % 3 == 0:
                link.ask(GetStatus())

    threads = [threading.Thread(target=say, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def told() -> list[str]:
        return [call.cluster_id for each in list(link.sent) for call in unpacked(each) if isinstance(call, CloseCluster)]

    deadline = time.monotonic() + 10
    while len(told()) < 200 and time.monotonic() < deadline:
        link.any.clear()
        link.any.wait(0.05)
    assert len(told()) == len(set(told())) == 200


# Where it does not answer


class Controller:
    """What a question to it comes to, again and again. The last outcome stays."""

    def __init__(self, name: str, *outcomes: Any) -> None:
        self._actor_id = SimpleNamespace(hex=lambda: name)
        self._outcomes = list(outcomes)
        self.asked = 0

    def outcome(self) -> Any:
        self.asked += 1
        return self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]

    @property
    def ask(self) -> Any:
        return SimpleNamespace(remote=lambda _: self)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Link]:
    """A way to controllers that are found one after the other, in a time that passes by waiting only."""
    now = [1000.0]

    def wait(handle: Any, reference: Any) -> bytes:
        now[0] += 1.0
        found = reference.outcome()
        if isinstance(found, Exception):
            raise found
        return encode_answer(found)

    def made(*controllers: Any) -> Link:
        made = Link()
        monkeypatch.setattr(made, "find", lambda *, anew=False: controllers[-1 if anew else 0])
        return made

    monkeypatch.setattr(link_module, "_wait", wait)
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None))
    monkeypatch.setattr(link_module, "quiet", contextlib.nullcontext)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    return made


def test_where_there_is_none_that_is_said_at_once(away: Any) -> None:
    with pytest.raises(ControllerAwayError, match="there is no controller in this cluster"):
        away(None).ask(GetStatus())


def test_one_that_is_being_restarted_is_asked_again(away: Any) -> None:
    restarting = Controller("a", unavailable(), unavailable(), "an answer")
    assert away(restarting).ask(GetStatus()) == "an answer"


def test_one_that_does_not_come_back_is_not_waited_for_for_ever(away: Any) -> None:
    gone = Controller("a", unavailable())
    with pytest.raises(ControllerAwayError, match="has not answered for"):
        away(gone).ask(GetStatus())
    assert gone.asked <= AWAY_SECONDS + 2


def test_one_that_was_shut_down_and_started_anew_is_found(away: Any) -> None:
    dead = Controller("a", ActorDiedError())
    assert away(dead, Controller("b", "an answer")).ask(GetStatus()) == "an answer"
    with pytest.raises(ControllerAwayError):
        away(dead).ask(GetStatus())


@pytest.mark.parametrize("error", [RayTaskError("ask", "its traceback", ValueError("inside")), ObjectLostError("", None, "")])
def test_what_ray_says_of_it_is_an_error_of_ours_without_its_traceback(away: Any, error: Exception) -> None:
    with pytest.raises(ControllerError) as raised:
        away(Controller("a", error)).ask(GetStatus())
    assert "its traceback" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def unavailable() -> ActorUnavailableError:
    return ActorUnavailableError("it restarts", b"1" * 16)


@pytest.mark.parametrize(
    ("state", "is_waited_for"), [("ALIVE", True), ("PENDING_CREATION", True), ("RESTARTING", False), ("", False)]
)
def test_a_controller_that_is_being_started_on_a_slow_machine_is_waited_for_longer_than_one_that_is_away(
    state: str, is_waited_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [GetTimeoutError("30 s"), GetTimeoutError("60 s"), b"there"]

    def get(_: Any, timeout: float) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(sys.modules[Link.__module__], "_state", lambda _: state)
    if is_waited_for:
        assert _wait(None, None) == b"there"
    else:
        with pytest.raises(ControllerAwayError):
            _wait(None, None)
