"""Placement groups that wait to be created, as processes see them: what is kept of them in the cluster's store.

To everybody who looks they are groups that are pending. Who creates them is beside the controller (``group_host``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ray import PlacementGroupID

from remora.errors import UnreadableEntryError
from remora.live.adapter.kv import Kv
from remora.live.perform import Body, perform
from remora.port.contract import GROUP
from remora.port.contract import WAITING as STATE
from remora.protocol import steps
from remora.protocol.group_steps import remove_group
from remora.wire.group_plans import REMOVED, WAITING, LateEntry, signal_id
from remora.wire.group_requests import decode_group
from remora.wire.keys import LATE_GROUPS
from remora.wire.tokens import is_hold

_ID_SIZE = 36


def recall(group_id: str, kv: Kv | None = None) -> LateEntry | None:
    """Return what is kept of a group that waits, or waited until a moment ago."""
    data = (kv or Kv()).get(LATE_GROUPS.key(group_id))
    return LATE_GROUPS.read(data) if data else None


def put(entry: LateEntry, kv: Kv | None = None) -> None:
    (kv or Kv()).put(LATE_GROUPS.key(entry.plan.group_id), LATE_GROUPS.write(entry))


def waiting(kv: Kv | None = None) -> Iterator[LateEntry]:
    """Every group that waits; what cannot be read is left out."""
    store = kv or Kv()
    for key in store.keys(LATE_GROUPS.prefix):
        data = store.get(key)
        try:
            entry = LATE_GROUPS.read(data) if data else None
        except UnreadableEntryError:
            continue
        if entry is not None and entry.state == WAITING:
            yield entry


def by_name(name: str, namespace: str, kv: Kv | None = None) -> LateEntry | None:
    """Return the group of this name that waits."""
    return next((each for each in waiting(kv) if (each.plan.name, each.plan.namespace) == (name, namespace)), None)


def to_wait_for(group_id: Any) -> Any:
    """Return the id that GCS is asked about instead, by whoever waits for a group."""
    entry = recall(group_id.hex())
    if entry is None or entry.state not in (WAITING, REMOVED):
        return group_id
    return PlacementGroupID(bytes.fromhex(signal_id(group_id.hex())))


def wait(core_worker: Any, group_id: Any, seconds: Any) -> Any:
    """Return what Ray's own wait returns, and raise what it raises, in the words of the group that is waited for."""
    asked = to_wait_for(group_id)
    try:
        return core_worker.wait_placement_group_ready(asked, seconds)
    except Exception as error:
        if asked == group_id:
            raise
        raise type(error)(str(error).replace(asked.hex(), group_id.hex())) from None


def remove(core_worker: Any, group_id: Any) -> None:
    """Remove a group; one that waits too."""

    def advance(step: steps.Advance) -> bool:
        # There is no controller, so there is nobody who could want something else.
        put(step.entry)
        return True

    given: dict[type, Callable[[Any], Any]] = {
        steps.Recall: lambda step: recall(step.group_id),
        steps.Advance: advance,
        steps.RemoveGroup: lambda _: core_worker.remove_placement_group(group_id),
    }
    perform(remove_group(group_id.hex()), Body(given))


def is_group(key: str) -> bool:
    """Return whether something that a process noted is the id of a group."""
    return len(key) == _ID_SIZE and "|" not in key and ":" not in key


def why(group_id: str) -> dict[str, Any] | None:
    """Return why a group waits, as the controller says it of other things; None if it does not."""
    entry = recall(group_id)
    if entry is None or entry.state != WAITING:
        return None
    how = {"count": 1, "wants": "", "fits": False, "busy": False}
    return {**how, "reason": entry.reason, "suggestions": entry.suggestions}


def find(id_or_name: str) -> LateEntry | None:
    """Return the group of this id or name that waits, whatever its namespace."""
    entry = recall(id_or_name) if is_group(id_or_name) else None
    if entry is not None:
        return entry if entry.state == WAITING else None
    return next((each for each in waiting() if each.plan.name and each.plan.name == id_or_name), None)


def explained(entry: LateEntry) -> dict[str, Any]:
    """Return what the controller says of other things that wait."""
    plan = entry.plan
    what = {"kind": GROUP, "id": plan.group_id, "name": plan.name, "job": plan.job_id, "state": STATE, "detail": "PENDING"}
    bundles = list(row(entry)["bundles"].values())
    why = {"wants": "", "reason": entry.reason, "suggestions": entry.suggestions, "refusals": [], "busy": False, "fits": False}
    return {**what, "nodes": [], "resources": bundles, **why}


# As Ray shows them


def shown(stock: Any, *args: Any) -> Any:
    """Return what this function of Ray's ``state`` says, with those that wait in it."""
    look: Callable[..., Any] = _named if stock.__name__ == "get_placement_group_by_name" else _table
    return look(stock, *args)


def _table(stock: Any, placement_group_id: Any = None) -> dict[str, Any]:
    """All of them, without our own; or one."""
    if placement_group_id is not None:
        entry = recall(placement_group_id.hex())
        return row(entry) if entry is not None and entry.state == WAITING else stock(placement_group_id)
    found: dict[str, Any] = {key: each for key, each in stock().items() if not is_hold(each["name"])}
    return {**found, **{entry.plan.group_id: row(entry) for entry in waiting()}}


def _named(stock: Any, name: str, namespace: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = stock(name, namespace)
    if found is not None:
        return found
    entry = by_name(name, namespace)
    return row(entry) if entry is not None else None


def row(entry: LateEntry) -> dict[str, Any]:
    """Return what Ray's table says of a group that is pending."""
    bundles = [bundle.resources.to_dict() for bundle in decode_group(entry.plan.group).options[0]]
    stats = {
        "end_to_end_creation_latency_ms": 0.0,
        "scheduling_latency_ms": 0.0,
        "scheduling_attempt": 0,
        "highest_retry_delay_ms": 0.0,
        "scheduling_state": "INFEASIBLE",
    }
    return {
        "placement_group_id": entry.plan.group_id,
        "name": entry.plan.name,
        "bundles": dict(enumerate(bundles)),
        "bundles_to_node_id": dict.fromkeys(range(len(bundles)), ""),
        "strategy": entry.plan.strategy,
        "state": "PENDING",
        "stats": stats,
    }
