"""Virtual time, and chance that is the same in every replay."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any
from zlib import crc32

BEGIN = 1_000_000.0
"""Any time will do; one that looks like no other number in a story is found soonest."""

Event = list[Any]
"""When, a number that makes the order of equal times that of their making, what to call and with what; None was cancelled."""

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Timeline:
    """What happens next. Nobody else has a clock."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.count = 0
        self._events: list[Event] = []

    def after(self, seconds: float, action: Callable[..., None], *args: Any) -> Event:
        self.count += 1
        event: Event = [self.now + seconds, self.count, action, args]
        heapq.heappush(self._events, event)
        return event

    def at(self, when: float, action: Callable[..., None], *args: Any) -> Event:
        return self.after(max(when - self.now, 0.0), action, *args)

    @staticmethod
    def cancel(event: Event | None) -> None:
        if event is not None:
            event[2] = None

    def next_at(self) -> float | None:
        while self._events and self._events[0][2] is None:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def step(self, until: float) -> bool:
        """Let the next thing happen, if it does by then. Return whether it did; if not, it is then."""
        due = self.next_at()
        if due is None or due > until:
            self.now = max(self.now, until)
            return False
        when, _, action, args = heapq.heappop(self._events)
        self.now = max(self.now, when)
        action(*args)
        return True


class Chance:
    """Numbers that depend on the seed, a name, and how often that name was asked for before; and on nothing else. So what is
    removed from a story leaves the luck of everybody else as it was."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked: dict[str, int] = {}

    def of(self, name: str) -> float:
        """Return the next number of this name, from 0 to 1."""
        count = self._asked[name] = self._asked.get(name, 0) + 1
        mixed = (crc32(f"{self._seed}/{name}/{count}".encode()) * _GOLDEN) & _MASK
        mixed ^= mixed >> 29
        return ((mixed * _GOLDEN) & _MASK) / (_MASK + 1)

    def between(self, name: str, low: float, high: float) -> float:
        return low + (high - low) * self.of(name)

    def happens(self, name: str, probability: float) -> bool:
        return probability > 0.0 and self.of(name) < probability
