"""The state API outside of virtual clusters: without the controller, and with the labels that hold now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from remora.live.adapter import labels_now
from remora.live.inspect import state_api
from remora.wire.keys import Overrides

ACTORS = [
    {"actor_id": f"a{each}", "class_name": "Cat", "name": "", "ray_namespace": "tests", "state": "ALIVE"} for each in range(5)
]
CONTROLLER = {**ACTORS[0], "actor_id": "c", "name": "remora-controller", "ray_namespace": "remora"}
NAMESAKE = {**CONTROLLER, "actor_id": "n", "ray_namespace": "tests"}


class Server:
    """Answers as the dashboard does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, endpoint: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((endpoint, params.get("limit")))
        if endpoint.endswith("/nodes"):
            return {"result": [{"node_id": "n1", "labels": {"zone": "a"}}, {"node_id": "n2", "labels": {}}]}
        rows = [CONTROLLER, NAMESAKE, *ACTORS]
        return {"result": rows[: int(params.get("limit", len(rows)))], "num_filtered": len(rows)}


def ask(what: str, **params: Any) -> dict[str, Any]:
    return state_api._whole(Server(), what, params)


def test_the_controller_is_none_of_the_actors() -> None:
    assert [row["actor_id"] for row in ask("actors")["result"]] == ["n", "a0", "a1", "a2", "a3", "a4"]


def test_as_many_rows_come_as_were_asked_for() -> None:
    found = ask("actors", limit=3)
    assert [row["actor_id"] for row in found["result"]] == ["n", "a0", "a1"]


def test_nor_is_it_counted() -> None:
    summary = ask("actors/summarize")["result"]["node_id_to_summary"]["cluster"]
    assert summary["total_actors"] == 6


def test_nodes_have_the_labels_that_hold_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_now, "overrides", lambda: {"n1": Overrides({"zone": "b"}, {"k": "v"})})
    assert [row["labels"] for row in ask("nodes")["result"]] == [{"zone": "b", "taint.remora.io/k": "v"}, {}]
    assert ask("tasks")["num_filtered"] == 7  # anything else is as the server says
