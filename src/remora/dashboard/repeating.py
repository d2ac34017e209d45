"""Changes that are sent twice: with the same ``Idempotency-Key`` they are made once, and answered alike.

The key becomes the id of the question that the controller is asked, so it holds also when this server was restarted between.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from remora.dashboard.problems import problem
from remora.wire.calls import new_ask

_MOST_KEYS = 1000
_KEPT_SECONDS = 3600.0


@dataclass
class _Known:
    """What was asked with a key, and what was answered; None while that is on its way."""

    fingerprint: str
    at: float
    answer: tuple[int, bytes, str] | None = None


class Repeats:
    """The last keys that there were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def once(self, key: str | None, fingerprint: str, work: Callable[[str], Response]) -> Response:
        """Return what ``work`` answers, which is given the id of its question; for a key that was seen before the answer of
        then. What failed is tried again."""
        if key is None:
            return work(new_ask())
        with self._lock:
            self._forget()
            known = self._known.get(key)
            if known is not None and known.fingerprint != fingerprint:
                return problem(422, f"the idempotency key {key!r} was used for another change: use a new one for each change")
            if known is not None and known.answer is None:
                return problem(409, f"the change with the idempotency key {key!r} is being made: ask again in a moment")
            if known is not None and known.answer is not None:
                status, body, kind = known.answer
                return Response(body, status, {"Idempotency-Replayed": "true"}, kind)
            mine = self._known[key] = _Known(fingerprint, time.monotonic())
        try:
            answer = work(hashlib.sha256(f"{key}\n{fingerprint}".encode()).hexdigest()[:32])
        except BaseException:
            with self._lock:
                self._known.pop(key, None)
            raise
        with self._lock:
            if answer.status_code < 400:
                mine.answer = answer.status_code, bytes(answer.body), answer.media_type or "application/json"
            else:
                self._known.pop(key, None)
        return answer

    def _forget(self) -> None:
        now = time.monotonic()
        for key in [key for key, known in self._known.items() if known.answer is not None and now - known.at > _KEPT_SECONDS]:
            del self._known[key]
        while len(self._known) >= _MOST_KEYS:
            del self._known[next(iter(self._known))]
