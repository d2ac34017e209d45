"""``with VirtualCluster(...)``: reserve it, wait in the queue and say why, give it back."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from remora.errors import ControllerError, VirtualClusterTimeoutError
from remora.protocol.steps import Ask, Now, Pause, Say, Steps, Tell
from remora.wire.calls import CloseCluster, CreateCluster, LookAtCluster

_POLL_SECONDS = 0.2
_SAY_SECONDS = 2.0
_PATIENCE_SECONDS = 1.0


def open_cluster(create: CreateCluster, what: str, timeout: float | None) -> Steps[str]:
    """Return the id of a virtual cluster once its minimum is reserved. Say what it waits for; whoever stops waiting, in
    whatever way, gives its place in the queue back. ``what`` is the spec as people read it."""
    try:
        return (yield from _open(create, what, timeout))
    except GeneratorExit:
        raise
    except BaseException:
        with contextlib.suppress(ControllerError):  # then it ends with the job
            yield Ask(CloseCluster(create.ask, True))  # by the question: its answer may not have arrived
        raise


def close_cluster(cluster_id: str, *, unused: bool) -> Steps[None]:
    """Give a virtual cluster back. Where there is no controller to hear of it, it ends with its job."""
    yield Tell(CloseCluster(cluster_id, unused), urgent=False)  # whoever makes gang after gang says both in one


def _open(create: CreateCluster, what: str, timeout: float | None) -> Steps[str]:
    began: float = yield Now()
    said, said_at = "", began
    look: dict[str, Any] = yield Ask(create)
    cluster_id: str = look["cluster_id"]
    for warning in look.get("warnings", ()):
        yield Say(f"virtual cluster {cluster_id}: {warning}")
    while look["state"] == "QUEUED":
        now: float = yield Now()
        reason = look["reason"]
        left = _POLL_SECONDS if timeout is None else began + timeout - now
        if left <= 0:
            raise VirtualClusterTimeoutError(f"{what} was not reserved within {timeout:g} s: {reason}. It has left the queue")
        if (
            _without_age(reason) != _without_age(said)
            and (now - said_at > _SAY_SECONDS or not said)
            and now - began > _PATIENCE_SECONDS
        ):
            said, said_at = reason, now
            yield Say(f"virtual cluster {cluster_id} waits: {said}")
        yield Pause(min(_POLL_SECONDS, left))
        look = yield Ask(LookAtCluster(cluster_id))
    if said:
        now = yield Now()
        yield Say(f"virtual cluster {cluster_id} is ready after {now - began:.0f} s")
    return cluster_id


def _without_age(reason: str) -> str:
    """A reason that says how long ago something was asked for is the same a second later."""
    return re.sub(r"\d+ s ago", "", reason)
