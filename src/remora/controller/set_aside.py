"""Things whose care failed: each is named, left alone for a moment and tried again, and nobody else is stopped by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_AGAIN_SECONDS = 1.0
_MOST_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass
class Failure:
    """What happened to one thing, since when and how often; it is left alone until ``again_at``."""

    kind: str
    subject: str
    error: str
    since: float
    count: int
    again_at: float


class Care:
    """The care of one thing, as a context: one bad thing stops nobody else."""

    __slots__ = ("_aside", "_kind", "_subject", "_what")

    def __init__(self, aside: SetAside, kind: str, subject: str, what: str) -> None:
        self._aside = aside
        self._kind = kind
        self._subject = subject
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None:
            self._aside.well(self._kind, self._subject, self._what)
            return False
        if isinstance(error, Exception):
            self._aside.add(self._kind, self._subject, error, self._what)
            return True
        return False


class SetAside:
    """A thing is known by its kind and its id. ``what`` tells apart what is done with it: what goes well says nothing about the
    rest."""

    def __init__(self, clock: Callable[[], float], note: Callable[[str, str, str], None]) -> None:
        self._now = clock
        self._note = note
        self._failures: dict[tuple[str, str, str], Failure] = {}

    def care_of(self, kind: str, subject: str, what: str = "") -> Care:
        """Contain whatever goes wrong with one thing. What went well makes up for what failed before."""
        return Care(self, kind, subject, what)

    def add(self, kind: str, subject: str, error: Exception | str, what: str = "") -> None:
        """Set one thing aside."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        known = self._failures.get((kind, subject, what))
        if known is None or known.error != text:
            self._note("set aside", subject, f"the {kind} is set aside and tried again: {text}")
            _log.error(
                "the %s %s is set aside: %s", kind, subject, text, exc_info=error if isinstance(error, Exception) else None
            )
        count = known.count + 1 if known is not None else 1
        since = known.since if known is not None else self._now()
        pause = min(_AGAIN_SECONDS * 2 ** min(count - 1, 10), _MOST_SECONDS)
        self._failures[kind, subject, what] = Failure(kind, subject, text, since, count, self._now() + pause)

    def well(self, kind: str, subject: str, what: str = "") -> None:
        """What failed before went well now."""
        if self._failures:
            self._failures.pop((kind, subject, what), None)

    def is_due(self, kind: str, subject: str, what: str = "") -> bool:
        """Return whether a thing may be cared for: it did not fail, or not in the last moment."""
        known = self._failures.get((kind, subject, what)) if self._failures else None
        return known is None or self._now() >= known.again_at

    def rename(self, kind: str, subject: str, other: str) -> None:
        """The thing is known by another id from now on."""
        for key in [key for key in self._failures if key[:2] == (kind, subject)] if self._failures else ():
            failure = self._failures.pop(key)
            failure.subject = other
            self._failures[kind, other, key[2]] = failure

    def forget(self, kind: str, subject: str) -> None:
        """The thing is gone, or everything about it is well."""
        for key in [key for key in self._failures if key[:2] == (kind, subject)] if self._failures else ():
            del self._failures[key]

    def __bool__(self) -> bool:
        return bool(self._failures)

    def rows(self) -> list[dict[str, Any]]:
        """Return everything that is set aside, in plain values."""
        return [
            {"kind": each.kind, "id": each.subject, "error": each.error, "since": each.since, "count": each.count}
            for each in self._failures.values()
        ]
