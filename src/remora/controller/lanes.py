"""Which effects are in flight: one at most in each lane, and none for a moment where the last one failed."""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.effects import Done, Effect

_AGAIN_SECONDS = 0.5


class Lanes:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._in_flight: dict[str, Effect] = {}
        self._closed: dict[str, float] = {}  # after an error, until when

    def is_free(self, lane: str) -> bool:
        """Return whether an effect may be planned in a lane."""
        if lane in self._in_flight:
            return False
        return not self._closed or self._closed.get(lane, 0.0) <= self._now()

    def is_busy(self, lane: str) -> bool:
        """Return whether an effect of this lane is in flight."""
        return lane in self._in_flight

    def start(self, effect: Effect) -> None:
        assert effect.lane not in self._in_flight, effect
        self._in_flight[effect.lane] = effect

    def finish(self, done: Done) -> None:
        self._in_flight.pop(done.effect.lane, None)
        if done.error:
            self._closed[done.effect.lane] = self._now() + _AGAIN_SECONDS
        else:
            self._closed.pop(done.effect.lane, None)

    @property
    def any_in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def any_closed(self) -> bool:
        """Return whether something may be tried again in a moment. Of what is gone nothing is."""
        return any(until > self._now() for until in self._closed.values())
