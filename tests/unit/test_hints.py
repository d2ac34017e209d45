"""What clients tell of work on its way: at once, all of it, and ever less often in a long stream."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from remora.live.submit.hints import Hints
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.wire.calls import Hint
from remora.wire.classes import ClassSpec

SPEC = ClassSpec((NodeClass(LabelSelector(), Tolerations()),), cluster="vc1")


class Clock:
    """Time that goes by when somebody says so, and what is due then."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, len(self._due), then))

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, then = heapq.heappop(self._due)
            then()
        self.now = end


class Told:
    """What was told, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: list[float] = []
        self.hints: list[Hint] = []

    def __call__(self, hints: list[Hint]) -> None:
        self.at.append(self._clock.now)
        self.hints += hints

    @property
    def gaps(self) -> list[float]:
        return [round(after - before, 6) for before, after in zip(self.at, self.at[1:], strict=False)]


def make() -> tuple[Clock, Told, Hints]:
    clock = Clock()
    told = Told(clock)
    return clock, told, Hints(told, lambda: clock.now, clock.later)


def test_the_first_is_told_at_once() -> None:
    _, told, hints = make()
    hints.note(SPEC, {"CPU": 1.0})
    assert told.hints == [Hint(SPEC.encode(), {"CPU": 1.0}, 1)]


def test_of_a_stream_all_is_told_and_each_word_comes_twice_as_late_as_the_one_before_up_to_half_a_second() -> None:
    clock, told, hints = make()
    for _ in range(3_000):
        hints.note(SPEC, {"CPU": 1.0})
        clock.pass_by(0.001)
    clock.pass_by(1.0)
    assert sum(hint.count for hint in told.hints) == 3_000
    assert told.gaps[:6] == [0.03, 0.06, 0.12, 0.24, 0.48, 0.5]


def test_after_a_silence_the_first_is_told_at_once_again() -> None:
    clock, told, hints = make()
    for _ in range(1_000):
        hints.note(SPEC, {"CPU": 1.0})
        clock.pass_by(0.001)
    clock.pass_by(5.0)
    before = len(told.at)
    hints.note(SPEC, {"CPU": 2.0})
    assert told.at[before:] == [clock.now]
    hints.note(SPEC, {"CPU": 2.0})
    clock.pass_by(0.03)
    assert len(told.at) == before + 2


def test_equal_ones_are_counted_and_others_told_beside_them() -> None:
    clock, told, hints = make()
    hints.note(SPEC, {"CPU": 1.0})
    for cpus in (1.0, 2.0, 1.0):
        hints.note(SPEC, {"CPU": cpus})
    clock.pass_by(1.0)
    assert [(hint.resources["CPU"], hint.count) for hint in told.hints] == [(1.0, 1), (1.0, 2), (2.0, 1)]
