"""The way to the controller: what can wait goes with the next question, and what nothing is asked after goes by itself."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from remora.live.link import Link
from remora.wire.calls import CloseCluster, GetStatus, GiveUp, Several, decode_call, encode_answer


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
