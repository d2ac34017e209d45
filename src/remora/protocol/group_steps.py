"""Placement groups: offered by the controller, created in GCS when their tokens are seen there, confirmed or taken back.

Ray does not look again at a group that it found infeasible, and one that waits in GCS reserves whatever comes back first, also
what it may not have. So a group that fits nowhere is *kept*: tried again and again, under the id that its handle has had from
the beginning. Whoever performs these for a process that has ended performs them on: what is kept says how far a group is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from remora.errors import ControllerError, RemoraError
from remora.model.groups import Bundle
from remora.model.resources import to_ray
from remora.protocol.steps import (
    Advance,
    Ask,
    CreateGroup,
    EndSignal,
    Forget,
    Found,
    IsNameFree,
    IsWanted,
    LookAtGroup,
    Pause,
    Recall,
    Remember,
    RemoveGroup,
    Signal,
    Steps,
    Tell,
    WaitForTokens,
)
from remora.wire.calls import ConfirmGroup, DropGroup, OfferGroup, ReleaseGroup
from remora.wire.group_plans import CREATED, REMOVED, WAITING, GroupPlan, LateEntry
from remora.wire.group_requests import class_of, decode_group
from remora.wire.timing import (
    GROUP_PATIENT_SECONDS,
    GROUP_RESERVED_SECONDS,
    GROUP_RETRY_SECONDS,
    GROUP_SEEN_SECONDS,
    SIGNAL_SECONDS,
)
from remora.wire.tokens import TAKEN, bundle_id, class_token, share_token

_SLOWER = 1.05
_UNSEEN = "its tokens are on their way to the nodes that were chosen"
_NO_ROOM = "Ray has no room for it on the nodes that were chosen; it is tried again"


class _End(Enum):
    RESERVED = "GCS has reserved it"
    IN_GCS = "GCS knows it and tries it by itself"
    REFUSED = "GCS will not have it"
    WAITS = "it fits nowhere yet"


class _Tried(NamedTuple):
    """What came of one attempt: with ``REFUSED`` and ``WAITS`` nothing of it is left. ``shapes`` of one that waits in GCS."""

    end: _End
    reason: str = ""
    suggestions: tuple[str, ...] = ()
    shapes: tuple[dict[str, float], ...] = ()


def make_group(plan: GroupPlan) -> Steps[dict[str, Any]]:
    """Create a group, or remember that it waits: then ``keep_group`` has to be performed. Return the answer to ``MakeGroup``,
    which is the same when it is asked twice."""
    known: LateEntry | None = yield Recall(plan.group_id)
    if known is not None:
        return _answer(known.state, known.reason, known.suggestions)
    if plan.name:
        is_free: bool = yield IsNameFree(plan)
        if not is_free:
            text = f"Failed to create placement group '{plan.group_id}' because name '{plan.name}' already exists."
            return _answer(REMOVED, error=text)
    tried = yield from _attempt(plan)
    if tried.end is _End.REFUSED:
        return _answer(REMOVED, error=tried.reason)
    if tried.end is _End.WAITS:
        yield Remember(LateEntry(WAITING, plan, tried.reason, list(tried.suggestions)))
        return _answer(WAITING, tried.reason, tried.suggestions)
    # GCS removes what a job had when the job ends; this may have come after that.
    if not (yield IsWanted(plan, lately=False)):
        yield RemoveGroup(plan.group_id)
        yield Tell(ReleaseGroup(plan.group_id))
        return _answer(REMOVED, error="the job or the actor that wanted it has ended")
    return _answer(CREATED, shapes=tried.shapes)


def keep_group(entry: LateEntry) -> Steps[None]:
    """Try a group that waits again and again, until it is created or nobody wants it any more; then tell those who wait for it.
    ``entry`` is what is kept of it. Whatever fails, GCS itself perhaps for a while, is tried again."""
    known: LateEntry | None = entry
    while known is not None:
        try:
            yield from _keep(known)
        except Exception:  # noqa: BLE001, PERF203 - whoever waits for it would wait for ever
            yield Pause(GROUP_PATIENT_SECONDS)
            with contextlib.suppress(Exception):
                known = yield Recall(entry.plan.group_id)
        else:
            return


def _keep(entry: LateEntry) -> Steps[None]:
    plan, pause = entry.plan, GROUP_RETRY_SECONDS
    found: Found = yield LookAtGroup(plan.group_id, 0.0, False)
    if entry.state == WAITING and found is Found.RESERVED:  # by one who died over it
        entry = yield from _advance(entry, CREATED)
    while entry.state == WAITING:
        yield Pause(pause)
        pause = min(_SLOWER * pause, GROUP_PATIENT_SECONDS)
        known: LateEntry | None = yield Recall(plan.group_id)
        if known is None or known.state != WAITING:
            entry = known or msgspec.structs.replace(entry, state=REMOVED)
            break
        if not (yield IsWanted(plan, lately=True)):
            entry = msgspec.structs.replace(entry, state=REMOVED)
            break
        tried = yield from _try_again(plan)
        state = CREATED if tried.end is _End.RESERVED else WAITING
        entry = yield from _advance(entry, state, tried.reason, tried.suggestions)
    # GCS removes what a job had when the job ends; this may have come after that.
    if entry.state == CREATED and not (yield IsWanted(plan, lately=False)):
        entry = msgspec.structs.replace(entry, state=REMOVED)
    if entry.state == REMOVED:
        yield RemoveGroup(plan.group_id)
        yield Tell(ReleaseGroup(plan.group_id))
    yield Signal(plan.group_id, entry.state == CREATED)
    yield Pause(SIGNAL_SECONDS)
    yield EndSignal(plan.group_id)
    yield Forget(plan.group_id)


def drop_group(group_id: str) -> Steps[None]:
    """Remove a group that waits, or that waited a moment ago. Whoever keeps it finds out, and undoes what it was just doing."""
    known: LateEntry | None = yield Recall(group_id)
    if known is not None:
        yield Advance(WAITING, msgspec.structs.replace(known, state=REMOVED))
    yield RemoveGroup(group_id)
    yield Tell(ReleaseGroup(group_id))
    if known is not None and known.state == WAITING:
        yield Signal(group_id, False)


def remove_group(group_id: str) -> Steps[None]:
    """Remove a group, for a client: one that waits is removed by whoever keeps it."""
    known: LateEntry | None = yield Recall(group_id)
    if known is not None and known.state == WAITING:
        with contextlib.suppress(ControllerError):  # without a controller nobody keeps it
            yield Ask(DropGroup(group_id))
            return
        yield Advance(WAITING, msgspec.structs.replace(known, state=REMOVED))
    yield RemoveGroup(group_id)
    yield Tell(ReleaseGroup(group_id))


def _try_again(plan: GroupPlan) -> Steps[_Tried]:
    """Return how an attempt ended, reserved or not at all: while GCS tries it by itself it is watched."""
    try:
        tried = yield from _attempt(plan)
    except RemoraError as error:  # its virtual cluster has ended, or the controller failed over it: others go on
        return _Tried(_End.WAITS, str(error))
    while tried.end is _End.IN_GCS:
        yield Pause(GROUP_RETRY_SECONDS)
        known: LateEntry | None = yield Recall(plan.group_id)
        if known is None or known.state != WAITING:
            return _Tried(_End.WAITS)
        found: Found = yield LookAtGroup(plan.group_id, 0.0, False)
        if found is Found.RESERVED:
            return _Tried(_End.RESERVED)
        if found is Found.HOPELESS:
            yield RemoveGroup(plan.group_id)
            return _Tried(_End.WAITS, _NO_ROOM)
    return tried


def _attempt(plan: GroupPlan) -> Steps[_Tried]:
    offer: dict[str, Any] = yield Ask(OfferGroup(plan.group_id, plan.group, plan.job_id))
    if offer["option"] is None:
        return _Tried(_End.WAITS, offer["reason"], tuple(offer["suggestions"]))
    share_id: str | None = offer["share_id"]
    try:
        tried = yield from _create(plan, offer["option"], offer["nodes"], share_id)
    except GeneratorExit:
        raise
    except BaseException:
        yield from _give_back(plan, share_id)
        raise
    if tried.end in (_End.REFUSED, _End.WAITS):
        yield from _give_back(plan, share_id)
    return tried


def _create(plan: GroupPlan, option: int, nodes: dict[str, list[str]], share_id: str | None) -> Steps[_Tried]:
    is_seen: bool = yield WaitForTokens(nodes, GROUP_SEEN_SECONDS)
    if not is_seen:
        return _Tried(_End.WAITS, _UNSEEN)
    bundles = _with_tokens(decode_group(plan.group).options[option], share_id)
    error: str = yield CreateGroup(plan, bundles)
    if error:
        return _Tried(_End.REFUSED, error)
    found: Found = yield LookAtGroup(plan.group_id, GROUP_RESERVED_SECONDS, share_id is not None)
    if found is Found.RESERVED:
        if share_id is not None:
            yield Tell(ConfirmGroup(share_id, plan.group_id))
        return _Tried(_End.RESERVED)
    # In a virtual cluster one that waited in GCS might get its share when it may not.
    if found is Found.QUEUED and share_id is None:
        return _Tried(_End.IN_GCS, "Ray has no room for it now", shapes=tuple(bundles))
    return _Tried(_End.WAITS, _NO_ROOM)


def _give_back(plan: GroupPlan, share_id: str | None) -> Steps[None]:
    yield RemoveGroup(plan.group_id)
    if share_id is not None:
        yield Tell(ReleaseGroup(share_id, plan.group_id))


def _advance(entry: LateEntry, state: str, reason: str = "", suggestions: Sequence[str] = ()) -> Steps[LateEntry]:
    """Return what is kept now: this, unless the group has been removed in this very moment."""
    after = msgspec.structs.replace(entry, state=state, reason=reason, suggestions=list(suggestions))
    if after != entry and not (yield Advance(WAITING, after)):
        return msgspec.structs.replace(entry, state=REMOVED)
    return after


def _with_tokens(bundles: Sequence[Bundle], share_id: str | None) -> list[dict[str, float]]:
    """Return what each bundle takes: of its class beside its resources, or in a virtual cluster of a share of its own, which
    stands where the bundle is to lie and nowhere else."""
    shapes = [{name: to_ray(units) for name, units in bundle.resources.pairs} for bundle in bundles]
    if share_id is None:
        classes = [class_of(bundle.nodes).class_id for bundle in bundles]
        return [{**shape, class_token(class_id): TAKEN} for shape, class_id in zip(shapes, classes, strict=True)]
    return [
        {**shape, **{share_token(bundle_id(share_id, index), name): amount for name, amount in shape.items()}}
        for index, shape in enumerate(shapes)
    ]


def _answer(
    state: str,
    reason: str = "",
    suggestions: Sequence[str] = (),
    error: str = "",
    shapes: Sequence[dict[str, float]] = (),
) -> dict[str, Any]:
    said = {"reason": reason, "suggestions": list(suggestions), "error": error}
    return {"state": state, **said, "shapes": list(shapes)}
