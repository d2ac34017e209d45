"""What is answered to those who look is exactly what the types of the answers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec
import pytest
from tests.unit.controller.leased import FaultyPort, LeasedWorld, spec
from tests.unit.controller.worlds import World

from remora.wire import calls
from remora.wire.answers import Event, Status, VirtualClusterStatus
from remora.wire.tokens import TAKEN, class_token


def unnamed(value: Any, kind: Any, where: str = "") -> list[str]:
    """Return the keys of an answer that its type does not name."""
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        return [f"{where}.{key}" for key in value if key not in hints] + [
            found for key in value if key in hints for found in unnamed(value[key], hints[key], f"{where}.{key}")
        ]
    inner = [each for each in get_args(kind) if each is not type(None)]
    if isinstance(value, list) and inner:
        return [found for each in value for found in unnamed(each, inner[0], f"{where}[]")]
    if isinstance(value, Mapping) and len(inner) == 2:
        return [found for each in value.values() for found in unnamed(each, inner[1], f"{where}{{}}")]
    return []


def check(value: Any, kind: Any) -> None:
    msgspec.convert(value, kind, strict=False)  # an amount may be a whole number
    assert unnamed(value, kind) == []


def test_the_check_finds_what_is_not_named_and_what_is_of_another_type() -> None:
    right = {"number": 1, "at": "2026-01-01", "kind": "node", "subject": "n1", "text": "it came"}
    check([right], list[Event])
    with pytest.raises(AssertionError, match="why"):
        check([{**right, "why": ""}], list[Event])
    with pytest.raises(msgspec.ValidationError):
        check([{**right, "text": []}], list[Event])


def test_status() -> None:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    world = LeasedWorld(port=port)
    asked = spec(label_selector={"zone": "b"})
    world.ensure(asked)
    port.wait({"CPU": 1, class_token(asked.class_id): TAKEN}, count=3)
    world.later(2)
    status = world.ask(calls.GetStatus())
    assert status["waiting"][0]["count"] == 3
    check(status, Status)


def test_virtual_clusters_and_events(world: World) -> None:
    world.create(flexible_resource_min={"CPU": 6})
    queued = world.create(flexible_resource_min={"CPU": 4})
    rows = world.ask(calls.GetClusters())
    assert [row["position"] for row in rows] == [0, 1]
    assert rows[1]["cluster_id"] == queued
    check([{**row, "submission_id": None} for row in rows], list[VirtualClusterStatus])
    events = world.ask(calls.GetEvents())
    assert events
    check(events, list[Event])
