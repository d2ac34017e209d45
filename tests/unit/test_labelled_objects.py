"""Objects with labels that a process has put are dropped when nobody refers to them any more, also after it connected anew. A
stub takes the place of Ray's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import ray

from remora.live.submit import labelled_objects
from remora.live.submit.labelled_objects import Objects
from remora.wire.calls import DropObject


class Process:
    """Whether it is connected, the objects that it refers to, and what it has told the controller."""

    def __init__(self) -> None:
        self.is_connected = True
        self.held: set[bytes] = set()
        self.told: list[str] = []

    def get_all_reference_counts(self) -> dict[bytes, int]:
        return dict.fromkeys(self.held, 1)

    def tell(self, call: DropObject) -> None:
        self.told.append(call.object_id)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(ray, "is_initialized", lambda: process.is_connected)
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(core_worker=process))
    monkeypatch.setattr(labelled_objects, "link", process)
    monkeypatch.setattr(labelled_objects, "_LOOK_SECONDS", 0.005)
    return process


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("noticed", [True, False])
def test_those_of_a_program_that_connects_anew_are_dropped_too_and_those_of_before_are_nobodys(
    process: Process, noticed: bool
) -> None:
    """``noticed``: somebody looked in between."""
    objects = Objects()
    process.held = {b"aa"}
    objects.add("aa", "01")
    process.is_connected = not noticed
    eventually(lambda: (objects._thread is None) == noticed)
    process.is_connected, process.held = True, {b"bb"}
    objects.add("bb", "02")
    time.sleep(0.05)
    assert process.told == []
    process.held = set()
    eventually(lambda: process.told == ["bb"])
    eventually(lambda: objects._thread is None)
