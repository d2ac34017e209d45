"""Placement groups that wait to be created: what is asked of GCS in the end, and what is remembered until then.

Ray does not look again at a group that it found infeasible, so one that fits nowhere is not created before it does. Its id is
chosen by us, and GCS takes it: the handle is an ordinary one from the beginning, and what is submitted into it waits in Ray.
"""

from __future__ import annotations

import msgspec

WAITING, CREATED, REMOVED = "WAITING", "CREATED", "REMOVED"
"""How far a group is that waits, or did. ``CREATED`` and ``REMOVED`` last for a moment: until everybody has been told."""


class GroupPlan(msgspec.Struct, frozen=True):
    """One placement group as its creator wants it: ``group`` is the encoded request (``wire.groups``), the rest is what GCS is
    told besides. ``strategy`` is that of the nodes, ``topology`` that of other labels."""

    group_id: str
    group: bytes
    job_id: str
    namespace: str = ""
    name: str = ""
    strategy: str = "PACK"
    detached: bool = False
    soft_target: str = ""
    topology: dict[str, str] = {}
    actor_id: str = ""
    actor_detached: bool = False


class LateEntry(msgspec.Struct, frozen=True):
    """A group that waits: its plan, and why it waits."""

    state: str
    plan: GroupPlan
    reason: str = ""
    suggestions: list[str] = []


def signal_id(group_id: str) -> str:
    """Return the id of a group that is created when this one has been, and removed when this one has been.

    Whoever waits for a group that waits, waits for that one in GCS: while we try, the group itself comes and goes there.
    """
    return f"{int(group_id[:2], 16) ^ 1:02x}{group_id[2:]}"
