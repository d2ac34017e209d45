"""The steps that protocols are made of. Each says what it is answered with."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any, TypeVar

import msgspec

from remora.wire.calls import Call
from remora.wire.group_plans import GroupPlan, LateEntry

T = TypeVar("T")


class Step(msgspec.Struct, frozen=True):
    """Something that a protocol cannot do by itself."""


Steps = Generator[Step, Any, T]
"""A protocol whose outcome is a ``T``."""


class Ask(Step, frozen=True):
    """Ask the controller. Answered with the value of its answer; raises its error, ``ControllerAwayError`` when there is none.

    A controller that is just being restarted is waited for, and the call may arrive twice.
    """

    call: Call


class Tell(Step, frozen=True):
    """Send the controller a message, without waiting for it. Answered with the message, for ``UntilHeard``. Where there is no
    controller it is lost, and nothing is raised.

    One that is not ``urgent`` goes with the next question of this process, or a moment later; it is answered with None."""

    call: Call
    urgent: bool = True


class UntilHeard(Step, frozen=True):
    """Wait until these messages have been heard, or never will be."""

    messages: tuple[Any, ...]


class StartRenewing(Step, frozen=True):
    """Send the message now, and again every ``seconds`` from beside, until ``StopRenewing``."""

    call: Call
    seconds: float


class StopRenewing(Step, frozen=True):
    """Stop that, and wait until all of it has been heard, or never will be."""


class Now(Step, frozen=True):
    """Answered with the time in seconds, by a clock that never goes back."""


class Pause(Step, frozen=True):
    """Wait for so many seconds."""

    seconds: float


class Say(Step, frozen=True):
    """Tell the user one line."""

    text: str


class ReadFence(Step, frozen=True):
    """Answered with the fence of this node, as it was at most ``FENCE_SECONDS`` ago."""


class RereadFence(Step, frozen=True):
    """From now on no worker of this node trusts what was read before."""


class MarkIdle(Step, frozen=True):
    """Leave a marker on this node that lives as long as this process: it holds a token whose share it does not use."""

    worker_id: str


class UnmarkIdle(Step, frozen=True):
    """Remove the marker. It is also removed when the protocol ends in whatever way but the death of the process."""

    worker_id: str


class FindOrphans(Step, frozen=True):
    """Answered with the workers of this node that died over their markers."""


class ForgetOrphans(Step, frozen=True):
    """Remove the markers of these dead workers."""

    worker_ids: tuple[str, ...]


class WaitForObjects(Step, frozen=True):
    """Wait for what the user waits for, at most so long. Answered with whether it is there; raises what the user gets."""

    seconds: float


class CreateWithLease(Step, frozen=True):
    """Create the actor or submit the task with the token of this slot; ``node_id`` is a hint where to. Answered with the id of
    the actor, or None for a task."""

    slot: str
    node_id: str | None


class TellWhenDone(Step, frozen=True):
    """Send the message when the task that was submitted last has ended."""

    call: Call


# Placement groups


class WaitForTokens(Step, frozen=True):
    """Wait until these tokens are seen on these nodes, where GCS looks for them, at most so long. Answered with whether."""

    nodes: dict[str, list[str]]
    seconds: float


class CreateGroup(Step, frozen=True):
    """Create a placement group in GCS under the id that its plan has; that it is there already is no error. Answered with what
    GCS refuses it for, or ""."""

    plan: GroupPlan
    bundles: list[dict[str, float]]


class Found(Enum):
    """What GCS says of a group."""

    RESERVED = "all of its bundles are reserved"
    QUEUED = "it has no room now; GCS tries again by itself"
    HOPELESS = "GCS will not try again, or does not know it"


class LookAtGroup(Step, frozen=True):
    """Answered with a ``Found``, after at most so long: with ``QUEUED`` as soon as GCS has tried once, or if one is ``patient``
    only at the end."""

    group_id: str
    seconds: float
    patient: bool


class RemoveGroup(Step, frozen=True):
    """Remove a placement group from GCS; that it is not there is no error."""

    group_id: str


class IsNameFree(Step, frozen=True):
    """Answered with whether no other group of the namespace has the name of this one, in GCS or waiting."""

    plan: GroupPlan


class IsWanted(Step, frozen=True):
    """Answered with whether the job and the actor live that a group would end with, as GCS says now; if ``lately`` is enough,
    as it said a moment ago."""

    plan: GroupPlan
    lately: bool


class Remember(Step, frozen=True):
    """Keep that a group waits where everybody finds it, also after this process has died."""

    entry: LateEntry


class Recall(Step, frozen=True):
    """Answered with what is kept of a group that waits, or None."""

    group_id: str


class Advance(Step, frozen=True):
    """Keep this instead of what was kept of the group, if that was in the state ``before``; at once, so that of two that want
    different things one gets its will. Answered with whether it was."""

    before: str
    entry: LateEntry


class Forget(Step, frozen=True):
    """Keep nothing of a group any more."""

    group_id: str


class Signal(Step, frozen=True):
    """Tell those who wait for a group in GCS (by ``signal_id``) that it has been created, or that it never will be."""

    group_id: str
    created: bool


class EndSignal(Step, frozen=True):
    """Take away what ``Signal`` left in GCS."""

    group_id: str
