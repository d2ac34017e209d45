"""One actor or task that the kernel places by itself: a slot for it, its creation with the slot's token, and its claim."""

from __future__ import annotations

from remora.protocol.steps import Ask, CreateWithLease, Steps, Tell, TellWhenDone
from remora.wire.calls import Claim, GiveUp, Place


def create_with_lease(ask: str, request: str, job_id: str, worker_id: str = "") -> Steps[None]:
    """Have it placed, create it, and tell the controller what became of the slot. Whoever dies in between is found by the
    controller: a slot that nobody claims is taken back."""
    slot, node_id = yield Ask(Place(ask, request, job_id, worker_id))
    try:
        actor_id: str | None = yield CreateWithLease(slot, node_id)
    except GeneratorExit:
        raise
    except BaseException:
        yield Tell(GiveUp(slot, ask))
        raise
    if actor_id is not None:
        yield Tell(Claim(slot, actor_id, ask))
    else:
        yield TellWhenDone(GiveUp(slot, ask))
