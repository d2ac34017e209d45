"""A hold whose name somebody has already, as Ray says it: stubs take the place of Ray's own, so no cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import RaySystemError

from remora.live.adapter import ray_port
from remora.live.adapter.ray_port import RayPort
from remora.port.contract import GROUP, RUNNING, WAITING, Work

NAME, NODE, AMOUNTS = "remora-hold-n1-0", "n1", {"remora/class/ab": 0.0001}


class Tables:
    def __init__(self, *groups: Work) -> None:
        self.groups = list(groups)

    def groups_named(self, name: str) -> list[Work]:
        return [group for group in self.groups if group.name == name]

    def group_ids(self, name: str) -> list[str]:
        return [group.work_id for group in self.groups_named(name)]


def held(node_id: str, state: str = RUNNING, name: str = NAME) -> Work:
    return Work(GROUP, "ab" * 18, name, "", state, "", (AMOUNTS,), (node_id,) if state == RUNNING else ())


@pytest.fixture(params=[ValueError, RaySystemError])
def removed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ray refuses a second group of a name, with one error or another; the groups that were removed."""
    removed: list[str] = []

    def refuse(*_: Any, **given: Any) -> None:
        raise request.param(f"name '{given['name']}' already exists.")

    monkeypatch.setattr(ray_port, "placement_group", refuse)
    monkeypatch.setattr(ray_port, "remove_placement_group", lambda group: removed.append(group.id.hex()))
    return removed


def port(*groups: Work) -> RayPort:
    made = RayPort(gcs_client=object())
    made._tables = Tables(*groups)  # type: ignore[assignment]
    return made


def test_what_is_held_there_already_is_held(removed: list[str]) -> None:
    assert port(held(NODE)).hold(NAME, NODE, AMOUNTS) is True
    assert removed == []


@pytest.mark.parametrize("other", [held("n2"), held(NODE, WAITING)], ids=["elsewhere", "not yet"])
def test_something_else_of_that_name_is_let_go_and_nothing_fails(removed: list[str], other: Work) -> None:
    assert port(other).hold(NAME, NODE, AMOUNTS) is False
    assert removed == [other.work_id]


def test_what_is_refused_for_another_reason_is_said(removed: list[str]) -> None:
    with pytest.raises((ValueError, RaySystemError), match="already exists"):
        port(held(NODE, name="another")).hold(NAME, NODE, AMOUNTS)
