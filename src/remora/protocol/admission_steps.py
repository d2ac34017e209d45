"""In front of everything that starts in a worker: does this node still accept it, and has its virtual cluster room for it?

A token that is in use cannot be taken from a full node, and the raylet hands a returned one to the next in its queue. So what
is *fenced* is submitted again, and waits for a token like any other. What would use more than its virtual cluster may waits
for admission, in ``ray.get``, so that its CPU is free for others meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from remora.protocol.insisting import insist
from remora.protocol.lending_steps import begin_turn, reclaim
from remora.protocol.steps import (
    ForgetOrphans,
    MarkIdle,
    ReadFence,
    RereadFence,
    StartRenewing,
    Steps,
    StopRenewing,
    UnmarkIdle,
)
from remora.wire.calls import Enter, SentOn, Who
from remora.wire.fences import ELSEWHERE, ROOT, Fence
from remora.wire.timing import RENEW_SECONDS


class Verdict(Enum):
    START = "start it here and now"
    RESUBMIT = "this node no longer accepts its class: submit it once more"
    QUEUE = "its virtual cluster is full here: wait for admission"


def judge(class_id: str | None, cluster_id: str | None, fence: Fence, orphans: Sequence[str]) -> Verdict:
    """Judge what is about to start; ``orphans`` are workers that died on this node over a share that they did not use. They are
    looked for before the fence is read: when they are forgotten, the fence that follows from them has been read."""
    if class_id is not None and class_id in fence.classes:
        return Verdict.RESUBMIT
    if orphans or (fence.full and (cluster_id or ROOT) in fence.full):
        return Verdict.QUEUE
    return Verdict.START


def wait_for_admission(who: Who, orphans: Sequence[str], *, class_id: str | None, in_group: bool) -> Steps[bool]:
    """Wait until the work may start here. Return False when it has to be submitted once more, because there will be no room for
    it on this node, or the node has ceased to accept its class meanwhile; only what has a class is told so.

    What runs in a placement group needs no room, because the group has it; but where its cluster uses too much it waits like
    all others. ``orphans`` are told of, and forgotten only when the fence that was written because of them has been read here:
    until then they alone stop the next to start. Who is told to go elsewhere stays marked: it lends its share from that moment
    on, and ``begin_resubmission`` follows.
    """
    if not who.amounts and not in_group:
        return True
    yield MarkIdle(who.worker_id)
    now = yield from begin_turn(who)
    answer = yield from insist(lambda again: Enter(now, again, class_id is not None, list(orphans)))
    if answer != ELSEWHERE or not _lends(who):
        yield UnmarkIdle(who.worker_id)
    if orphans:
        yield RereadFence()
        yield ForgetOrphans(tuple(orphans))
    if answer == ELSEWHERE or class_id is None:
        return answer != ELSEWHERE
    fence: Fence = yield ReadFence()
    return class_id not in fence.classes


def _lends(who: Who) -> bool:
    """Return whether a worker has a share that others may use."""
    return bool(who.amounts) and who.cluster_id != ROOT


def begin_resubmission(who: Who) -> Steps[None]:
    """The same call runs somewhere else from now on: this process keeps its token and uses nothing of its share."""
    yield MarkIdle(who.worker_id)
    now = yield from begin_turn(who)
    yield StartRenewing(SentOn(now), RENEW_SECONDS)


def end_resubmission(who: Who) -> Steps[None]:
    """Ask for the share again before this process ends: its raylet will give the token to whoever is next."""
    yield StopRenewing()
    yield from reclaim(who)
