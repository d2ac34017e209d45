"""The line that says what waits and why: once, again when the reason changes, and not while a queue moves."""

from __future__ import annotations

from typing import Any

import pytest

from remora.live.submit.wait_warnings import Waiting
from remora.wire.shapes import shape_key


class Asked:
    """Answers what waits, and hears what is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.lines: list[str] = []
        self.waiting = Waiting(lambda keys: [self.rows.get(key) for key in keys], self.lines.append)
        monkeypatch.setattr("remora.live.submit.wait_warnings.PATIENCE_SECONDS", 0.0)
        self.waiting.stop()  # the test looks itself

    def row(self, count: int, reason: str, *, busy: bool, fits: bool = False, came: int = 0) -> None:
        row = {"count": count, "reason": reason, "busy": busy, "fits": fits}
        wants = {"wants": "zone=z", "suggestions": ["add a node", "drop zone=z"]}
        self.rows[shape_key([{"CPU": 1.0, "t": 0.0001}])] = row | wants
        for _ in range(came):
            self.waiting.note({"CPU": 1.0, "t": 0.0001}, None, "train")
        self.waiting.look()


def test_what_waits_is_said_once_and_again_when_the_reason_changes(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    asked.row(2, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=2)
    asked.row(3, "0/5 nodes fit: 5 do not match zone=z", busy=False, came=1)
    (line,) = asked.lines
    assert line.startswith("remora: 2 x train (1 CPU, 0.0001 t), zone=z waits: 0/4 nodes fit: 4 do not match zone=z. ")
    assert line.endswith("What would help: add a node; or drop zone=z")
    asked.row(3, "0/5 nodes fit: 5 lack 1 CPU", busy=False)
    assert len(asked.lines) == 2


def test_a_queue_that_moves_is_no_news_and_one_that_stands_is(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for count, came in ((50, 60), (40, 0), (30, 0)):
        asked.row(count, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=came)
    assert asked.lines == []
    asked.row(30, "0/4 nodes fit: 4 lack 1 CPU", busy=True)
    assert len(asked.lines) == 1


def test_a_queue_that_is_refilled_as_fast_as_it_moves_is_no_news_either(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for count, came in ((50, 50), (50, 10), (60, 11)):
        asked.row(count, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=came)
    assert asked.lines == []
    asked.row(70, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=10)
    assert len(asked.lines) == 1


def test_what_is_about_to_start_is_no_news(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for _ in range(3):
        asked.row(50, "2/2 nodes fit: it is about to start", busy=True, fits=True, came=1)
    assert asked.lines == []


def test_what_no_longer_waits_is_forgotten_and_may_be_said_anew(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    asked.row(1, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=1)
    asked.rows.clear()
    asked.waiting.look()
    asked.row(1, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=1)
    assert len(asked.lines) == 2
