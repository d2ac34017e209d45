"""What is kept of what was submitted in a cluster with ``cancel=True``: only tasks that have not ended. Stubs take the place of
Ray's references."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import ray

from remora.live.clusters import cancelling
from remora.live.clusters.cancelling import Made


class Ref:
    has_ended = False


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[Ref]:
    """The tasks that were stopped."""
    stopped: list[Ref] = []

    def wait(refs: list[Ref], **_: Any) -> tuple[list[Ref], list[Ref]]:
        return [ref for ref in refs if ref.has_ended], [ref for ref in refs if not ref.has_ended]

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "cancel", lambda ref, **_: stopped.append(ref))
    monkeypatch.setattr(cancelling, "_LOOK_SECONDS", 0.005)
    return stopped


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_results_are_kept_no_longer_than_their_tasks_run(stopped: list[Ref]) -> None:
    made, ended, runs = Made(), Ref(), Ref()
    made.add([ended])
    made.add([runs])
    ended.has_ended, kept = True, weakref.ref(ended)
    del ended
    eventually(lambda: len(made) == 1)
    eventually(lambda: kept() is None)
    made.stop()
    assert stopped == [runs]
    eventually(lambda: made._thread is None)


def test_what_is_added_when_all_others_have_ended_is_looked_at_too(stopped: list[Ref]) -> None:
    made = Made()
    for _ in range(2):
        task = Ref()
        made.add([task])
        task.has_ended = True
        eventually(lambda: len(made) == 0 and made._thread is None)
    made.stop()
    assert stopped == []
