"""What a worker that waits says to the controller, and in which order; and what it does when that fails or is away."""

from __future__ import annotations

import time
from typing import Any

import pytest
import ray
from tests.live.conftest import World

from remora.errors import ControllerAwayError, ControllerError
from remora.live import link as linking
from remora.live.link import Link, link
from remora.live.worker import blocking
from remora.wire import timing
from remora.wire.calls import GetEvents, GetStatus, decode_call, encode_answer, encode_error


class _Slow:
    """A controller that hears of waits late, as one does that was killed: Ray sends it again what it had been told."""

    def __init__(self) -> None:
        self._heard: list[str] = []

    @ray.method(concurrency_group="slow")
    def ask_frequent(self, data: bytes) -> bytes:
        time.sleep(0.5)
        self._heard.append(type(decode_call(data)).__name__)
        return encode_answer(None)

    def ask_returning(self, data: bytes) -> bytes:
        self._heard.append(type(decode_call(data)).__name__)
        return encode_answer("go")

    def ask(self, data: bytes) -> bytes:
        if isinstance(decode_call(data), GetEvents):
            raise RuntimeError("a bug")
        return encode_error(ValueError("a bug that was caught"))

    def heard(self) -> list[str]:
        return self._heard


@pytest.fixture
def slow(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    actor = ray.remote(concurrency_groups={"slow": 4})(_Slow).options(num_cpus=0).remote()
    monkeypatch.setattr(linking, "_look_up", lambda: actor)
    link.find(anew=True)
    yield actor
    monkeypatch.undo()
    link.find(anew=True)
    ray.kill(actor)


@pytest.mark.core
def test_whoever_comes_back_was_heard_before_to_wait(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remora.protocol.lending_steps.RENEW_SECONDS", 0.05)
    waits = iter([False, False, False, True])
    worker = ray._private.worker.global_worker

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return next(waits)

    assert blocking._lend(worker, ("vc", {"CPU": 1.0}), None, wait)
    assert ray.get(slow.heard.remote(), timeout=60) == ["Lend", "Lend", "Lend", "Reclaim"]


@pytest.mark.parametrize("call", [GetStatus(), GetEvents()], ids=["caught", "not caught"])
def test_what_goes_wrong_in_the_controller_is_an_error_of_ours(slow: Any, call: Any) -> None:
    with pytest.raises(ControllerError, match="a bug") as raised:
        link.ask(call)
    assert "Traceback" not in str(raised.value)


def test_one_that_is_gone_is_said_to_be_and_nothing_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "_look_up", lambda: None)
    mine = Link()
    with pytest.raises(ControllerAwayError, match="there is no controller in this cluster"):
        mine.ask(GetStatus())
    assert mine.tell(GetStatus()) is None
    mine.until_heard([None])


def test_one_that_never_comes_back_is_waited_for_with_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that cannot be placed: it may be about to be started, so it is waited for longer than one that is away."""
    never = ray.remote(concurrency_groups={"slow": 4})(_Slow).options(num_cpus=0, resources={"nowhere": 1}).remote()
    monkeypatch.setattr(linking, "_look_up", lambda: never)
    monkeypatch.setattr(linking, "AWAY_SECONDS", 1.0)
    monkeypatch.setattr(linking, "_BUSY_SECONDS", 1.5)
    began = time.monotonic()
    with pytest.raises(ControllerAwayError, match="has not answered for 2 s"):
        Link().ask(GetStatus())
    assert time.monotonic() - began < 10
    assert timing.AWAY_SECONDS == 30
    ray.kill(never)
