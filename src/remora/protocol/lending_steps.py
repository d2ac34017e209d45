"""A worker that waits for others lends its share of a virtual cluster for as long, as Ray gives its CPU back.

Waits that end within a moment are not told. While a longer one lasts it is told again and again: then a controller that was
restarted knows of it, and one whose worker has died forgets it. Before the worker goes on it reclaims its share. Where others
use that now, it waits until every worker of the cluster knows that nothing new may start, and then goes on beside them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remora.protocol.insisting import insist
from remora.protocol.steps import MarkIdle, Now, Steps, Tell, UnmarkIdle, UntilHeard, WaitForObjects
from remora.wire.calls import Lend, Reclaim, Who
from remora.wire.timing import RENEW_SECONDS

_LEAST_TURN = 1e-6
MOMENT_SECONDS = 0.01
"""A wait that is over by then is nobody's business."""


def wait_and_lend(who: Who, until: float | None) -> Steps[bool]:
    """Wait for the user's objects, at most until a time, with the share lent meanwhile. Return whether they are there."""
    messages: list[Any] = []
    said: list[Who] = [who]
    try:
        ready = yield from _wait(who, until, messages, said)
    except GeneratorExit:
        raise
    except BaseException:
        yield from _reclaim(said[-1], messages)
        raise
    yield from _reclaim(said[-1], messages)
    return ready


def reclaim(who: Who) -> Steps[None]:
    """Return when this process may use its share again, and take its marker away."""
    now = yield from begin_turn(who)
    yield from insist(lambda again: Reclaim(now, again))
    yield UnmarkIdle(who.worker_id)


def begin_turn(who: Who) -> Steps[Who]:
    """Return the same worker, about to say something else than before."""
    now: float = yield Now()
    return msgspec.structs.replace(who, turn=max(now, who.turn + _LEAST_TURN))


def _wait(who: Who, until: float | None, messages: list[Any], said: list[Who]) -> Steps[bool]:
    while True:
        part = RENEW_SECONDS if messages else MOMENT_SECONDS
        if until is not None:
            now: float = yield Now()
            part = max(min(part, until - now), 0.0)
        ready: bool = yield WaitForObjects(part)
        if ready:
            return True
        if until is not None:
            now = yield Now()
            if now >= until:
                return False
        if not messages:
            yield MarkIdle(who.worker_id)
            who = yield from begin_turn(who)
        message = yield Tell(Lend(who))
        said[:] = [who]
        messages[:] = [*messages[-2:], message]  # of a long wait the last are enough: they are heard in order


def _reclaim(who: Who, messages: list[Any]) -> Steps[None]:
    if messages:
        # A controller that was restarted might hear one of them after what follows.
        yield UntilHeard(tuple(messages))
        yield from reclaim(who)
