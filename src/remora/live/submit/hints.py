"""What is on its way to a virtual cluster, told to the controller before Ray reports it: so that shares are there in time.

One-way messages, a few in the first moments and two a second in a long stream; a lost one costs the moment until Ray itself
reports what waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from remora.wire.calls import Hint
from remora.wire.classes import ClassSpec

_LEAST_SECONDS, _MOST_SECONDS = 0.03, 0.5

Later = Callable[[float, Callable[[], None]], Any]


def _later(seconds: float, then: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, then)
    timer.daemon = True
    timer.start()


class Hints:
    """``now`` and ``later`` are the clock, and how something is done after so many seconds."""

    def __init__(
        self, send: Callable[[list[Hint]], None], now: Callable[[], float] = time.monotonic, later: Later = _later
    ) -> None:
        self._send = send
        self._now = now
        self._later = later
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, tuple[tuple[str, float], ...]], int] = {}
        self._specs: dict[str, bytes] = {}
        self._sent_at = -_MOST_SECONDS
        self._apart = _LEAST_SECONDS
        self._flushing = False

    def note(self, spec: ClassSpec, resources: Mapping[str, float]) -> None:
        """One more of this."""
        key = (spec.class_id, tuple(resources.items()))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            if spec.class_id not in self._specs:
                self._specs[spec.class_id] = spec.encode()
            if self._flushing:
                return
            wait = self._sent_at + self._apart - self._now()
            self._flushing = wait > 0
        if wait > 0:
            self._later(wait, self._flush)
        else:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, {}
            self._flushing = False
            # The first words matter; of a long stream the controller hears less and less.
            now = self._now()
            steady = now - self._sent_at < 2 * self._apart
            self._apart = min(2 * self._apart, _MOST_SECONDS) if steady else _LEAST_SECONDS
            self._sent_at = now
        if counts:
            self._send([Hint(self._specs[class_id], dict(shape), count) for (class_id, shape), count in counts.items()])
