"""How a client gets an answer that it needs before it can go on."""

from __future__ import annotations

from collections.abc import Callable

from remora.errors import ControllerAwayError, ControllerError, RemoraError
from remora.protocol.steps import Ask, Pause, Say, Steps
from remora.wire.calls import Call
from remora.wire.fences import GO, LATER
from remora.wire.timing import CROWDED_SECONDS

_AGAIN_SECONDS = 0.5
_MOST_FAILURES = 20


def insist(call: Callable[[bool], Call]) -> Steps[str]:
    """Ask until the controller says something; ``call`` makes the question, told whether it is asked again. Return the answer.

    ``GO`` where there is no controller any more, where it knows nothing of what it is asked about, and after many failures:
    what it protects is not worth a program that stands still for ever.
    """
    again, failures = False, 0
    while True:
        try:
            answer: str | None = yield Ask(call(again))
        except ControllerAwayError:
            return GO
        except ControllerError as error:
            failures += 1
            if failures == 1:
                yield Say(f"{error}; it is asked again")
            if failures >= _MOST_FAILURES:
                return GO
            yield Pause(_AGAIN_SECONDS)
            continue
        except RemoraError:
            return GO
        again = True
        if answer == LATER:
            yield Pause(CROWDED_SECONDS)
        elif answer is not None:
            return answer
