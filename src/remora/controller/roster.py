"""Which classes are offered: those that somebody uses, or said lately that they will. The others are only remembered.

Every class is a token on many nodes, and a node with thousands of tokens is slow. A class that sleeps wakes when a client
says that it needs it, or when work that waits for its token is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from remora.controller.memory import Memory
from remora.wire.classes import IDLE_SECONDS, ClassSpec

MOST_OFFERED = 900
"""Beyond this even classes that were used a moment ago make room, the one unused for longest first."""

_MOMENT_SECONDS = 5.0  # what was said to be needed may not be seen as waiting or running any sooner
_MOST_REMEMBERED = 10_000


class Roster:
    def __init__(self, memory: Memory, now: float) -> None:
        self._memory = memory
        self.offered: dict[str, ClassSpec] = dict(memory.classes)
        self._used_at: dict[str, float] = dict.fromkeys(memory.classes, now)

    def need(self, spec: ClassSpec, now: float) -> bool:
        """Somebody uses this class; whether it was not offered."""
        self._used_at.pop(spec.class_id, None)
        self._used_at[spec.class_id] = now  # the order is that of use
        if spec.class_id in self.offered:
            return False
        if spec.class_id not in self._memory.classes:
            self._memory.add_class(spec)
        self.offered[spec.class_id] = spec
        return True

    def see(self, in_use: Iterable[str], now: float) -> list[str]:
        """These are held or waited for; which of them had been asleep."""
        known = [class_id for class_id in in_use if class_id in self._memory.classes]
        return [class_id for class_id in known if self.need(self._memory.classes[class_id], now)]

    def sweep(self, in_use: set[str], now: float) -> list[str]:
        """Let the idle ones sleep, and forget those that have slept for longest; which went to sleep."""
        idle = [class_id for class_id in self._used_at if class_id in self.offered and class_id not in in_use]
        too_many = len(self.offered) - MOST_OFFERED
        asleep: list[str] = []
        for class_id in idle:
            age = now - self._used_at[class_id]
            if age > IDLE_SECONDS or (age > _MOMENT_SECONDS and len(asleep) < too_many):
                del self.offered[class_id]
                asleep.append(class_id)
        sleeping = [class_id for class_id in self._used_at if class_id not in self.offered]
        for class_id in sleeping[: max(0, len(self._used_at) - _MOST_REMEMBERED)]:
            self._memory.forget_class(class_id)
            del self._used_at[class_id]
        return asleep

    def drop(self, class_id: str) -> None:
        """Nobody will ever use it again."""
        self._memory.forget_class(class_id)
        self.offered.pop(class_id, None)
        self._used_at.pop(class_id, None)

    def clear(self) -> None:
        self.offered.clear()
        self._used_at.clear()
