"""A placement group that waits, as a process sees it: to everybody who looks it is one of Ray's own that is pending, and nobody
who looks waits. A dictionary takes the place of the cluster's store."""

from __future__ import annotations

from typing import Any

import pytest
from ray import PlacementGroupID

from remora.live.submit import waiting_groups
from remora.wire.group_plans import CREATED, REMOVED, WAITING, GroupPlan, LateEntry, signal_id
from remora.wire.group_requests import encode_group
from remora.wire.keys import LATE_GROUPS
from remora.wire.rewrite import Defaults, rewrite_group
from remora.wire.tokens import hold_name

ID = "cf5955fda917e352520c7f7fdb4a01000000"
GROUP = PlacementGroupID(bytes.fromhex(ID))
PLAN = GroupPlan(
    ID, encode_group(rewrite_group([{"CPU": 1}, {"CPU": 2}], "SPREAD", {}, Defaults())), "01000000", "here", "late", "SPREAD"
)


class Store:
    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.entries.get(key)

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.entries if key.startswith(prefix)]


class State:
    """What Ray knows: of a group that waits nothing."""

    def __init__(self, **rows: dict[str, Any]) -> None:
        self.rows = rows

    def placement_group_table(self, placement_group_id: Any = None) -> dict[str, Any]:
        return self.rows if placement_group_id is None else self.rows.get(placement_group_id.hex(), {})

    def get_placement_group_by_name(self, name: str, namespace: str) -> dict[str, Any] | None:
        return next((row for row in self.rows.values() if row["name"] == name), None)


class CoreWorker:
    """Knows of no group."""

    def wait_placement_group_ready(self, group_id: Any, _: Any) -> Any:
        raise ValueError(f"Placement group {group_id.hex()} does not exist.")


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep what is known of the group."""
    store = Store()
    monkeypatch.setattr(waiting_groups, "Kv", lambda: store)

    def keep(state: str) -> None:
        store.entries[LATE_GROUPS.key(ID)] = LATE_GROUPS.write(LateEntry(state, PLAN, "it is full"))

    return keep


def test_it_is_found_pending_by_its_id_by_its_name_and_among_all(keep: Any) -> None:
    keep(WAITING)
    ours, theirs = {"name": hold_name("n1", 0)}, {"name": "theirs"}
    state = State(ab=theirs, cd=ours)
    row = waiting_groups.shown(state.placement_group_table, GROUP)
    assert (row["state"], row["name"], row["strategy"]) == ("PENDING", "late", "SPREAD")
    assert row["bundles"] == {0: {"CPU": 1.0}, 1: {"CPU": 2.0}}
    assert waiting_groups.shown(state.placement_group_table) == {"ab": theirs, ID: row}
    assert waiting_groups.shown(state.get_placement_group_by_name, "late", "here") == row
    assert waiting_groups.shown(state.get_placement_group_by_name, "late", "elsewhere") is None
    assert waiting_groups.shown(state.get_placement_group_by_name, "theirs", "here") == theirs


@pytest.mark.parametrize("state", [CREATED, REMOVED])
def test_one_that_waits_no_more_is_what_ray_says(keep: Any, state: str) -> None:
    keep(state)
    row = {"name": "late", "state": state}
    assert waiting_groups.shown(State(**{ID: row}).placement_group_table, GROUP) == row
    assert waiting_groups.shown(State().placement_group_table) == {}
    assert waiting_groups.shown(State().get_placement_group_by_name, "late", "here") is None


def test_whoever_waits_for_it_waits_in_ray_for_its_signal_and_hears_of_it_by_its_own_name(keep: Any) -> None:
    """While it waits it comes and goes in GCS: Ray would say that it does not exist."""
    assert waiting_groups.to_wait_for(GROUP) == GROUP
    for state in (WAITING, REMOVED):
        keep(state)
        assert waiting_groups.to_wait_for(GROUP).hex() == signal_id(ID)
    with pytest.raises(ValueError, match=f"Placement group {ID} does not exist"):
        waiting_groups.wait(CoreWorker(), GROUP, 1)
    keep(CREATED)
    assert waiting_groups.to_wait_for(GROUP) == GROUP
