"""What a process says about its work that waits: one line for each kind, when it has waited for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from remora.live.submit.wait_warnings import PATIENCE_SECONDS, Waiting
from remora.wire.shapes import shape_key
from remora.wire.tokens import TAKEN, class_token, share_token

F = SimpleNamespace(class_name="", function_name="f")


def shape(class_id: str) -> dict[str, float]:
    """As in a virtual cluster: the share, equal for all, comes last."""
    return {"CPU": 1.0, class_token(class_id): TAKEN, share_token("vc1", "CPU"): 1.0}


def make(rows: dict[str, Any]) -> tuple[Waiting, list[str], list[list[str]]]:
    now = [0.0]
    said: list[str] = []
    asked: list[list[str]] = []

    def ask(keys: list[str]) -> list[Any]:
        asked.append(keys)
        return [rows.get(key) for key in keys]

    waiting = Waiting(ask, said.append, lambda: now[0])
    waiting._thread = SimpleNamespace()  # type: ignore[assignment] # we look ourselves
    now[0] = PATIENCE_SECONDS
    waiting.look()
    now[0] = 0.0
    return waiting, said, asked


def row(reason: str) -> dict[str, Any]:
    return {"count": 1, "wants": "", "reason": reason, "suggestions": [], "fits": False, "busy": False}


def later(waiting: Waiting) -> None:
    waiting._now = lambda: PATIENCE_SECONDS + 1


def test_two_selectors_in_one_virtual_cluster_are_two_kinds() -> None:
    rows = {shape_key((shape(name),)): row(f"no node is {name}") for name in ("vc1.aa", "vc1.bb")}
    waiting, said, asked = make(rows)
    for name in ("vc1.aa", "vc1.bb"):
        waiting.note(shape(name), F, "")
    later(waiting)
    waiting.look()
    assert said == ["remora: f (1 CPU) waits: no node is vc1.aa", "remora: f (1 CPU) waits: no node is vc1.bb"]
    assert asked == [list(rows)]


def test_equal_ones_are_asked_about_once_and_said_once() -> None:
    rows = {shape_key((shape("aa"),)): {**row("full"), "count": 3}}
    waiting, said, asked = make(rows)
    for _ in range(3):
        waiting.note(shape("aa"), F, "")
    later(waiting)
    waiting.look()
    waiting.look()
    assert said == ["remora: 3 x f (1 CPU) waits: full"]
    assert asked == [list(rows)] * 2


def test_a_group_that_waits_is_asked_about_by_its_id() -> None:
    group_id = "ab" * 18
    waiting, said, asked = make({group_id: {**row("it is full"), "suggestions": ["wait"]}})
    waiting.note_group(group_id, "placement group mine")
    later(waiting)
    waiting.look()
    assert said == ["remora: placement group mine waits: it is full. What would help: wait"]
    assert asked == [[group_id]]
