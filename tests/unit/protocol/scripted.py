"""Perform a protocol by a script: for each kind of step what it is answered with, and everything that was done, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from remora.protocol.steps import Ask, Now, Pause, ReadFence, Step, Steps
from remora.wire.fences import OPEN

T = TypeVar("T")
Answer = Callable[[Any], Any]


class Scripted:
    """``answers`` by the type of a step, or of the call that is asked; whatever has none is answered with None. An answer that
    is an exception is raised. Time goes by with ``Pause`` only."""

    def __init__(self, answers: dict[type, Any] | None = None) -> None:
        self.answers = answers or {}
        self.done: list[Step] = []
        self.now = 100.0

    def perform(self, steps: Steps[T], die_at: int | None = None) -> T | None:
        """Return what came of it; None where the process dies before its step number ``die_at``."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            if len(self.done) == die_at:
                return None  # like a process: nothing of it runs any more
            self.done.append(step)
            answer, error = None, None
            try:
                answer = self._answer(step)
            except BaseException as raised:  # noqa: BLE001 - it is the protocol's
                error = raised

    def _answer(self, step: Step) -> Any:
        if isinstance(step, Now):
            return self.now
        if isinstance(step, Pause):
            self.now += step.seconds
        if isinstance(step, ReadFence) and ReadFence not in self.answers:
            return OPEN
        given = self.answers.get(type(step.call) if isinstance(step, Ask) else type(step))
        answer = given(step) if callable(given) else given
        if isinstance(answer, list) and answer and isinstance(given, list):
            answer = given.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def kinds(self) -> list[str]:
        """What was done, with the calls by their own names; but not how often somebody looked at the clock."""
        done = [step for step in self.done if not isinstance(step, Now)]
        return [type(call).__name__ if (call := getattr(step, "call", None)) else type(step).__name__ for step in done]
