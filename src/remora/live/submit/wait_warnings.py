"""One line for each thing that this process submitted and that waits longer than five seconds; again when the reason changes.

Per process, not per task: what is noted is the shape of what was submitted, and the controller is asked, at most every five
seconds and only while something was submitted, what of that waits in the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from remora.wire.shapes import shape_key
from remora.wire.tokens import is_token

PATIENCE_SECONDS = 5.0

_MOST_NOTED = 500

_log = logging.getLogger("remora")

Row = Mapping[str, Any]
Ask = Callable[[list[str]], list[Row | None]]


class _Noted:
    """A shape that was submitted: since when it may be waiting, how many waited when somebody looked, how many were submitted
    since, and what was last said about it."""

    __slots__ = ("count", "said", "since", "submitted", "what")

    def __init__(self, what: str, since: float) -> None:
        self.what = what
        self.since = since
        self.count = 0
        self.submitted = 0
        self.said = ""


def line(what: str, count: int, row: Row) -> str:
    """What waits, why, and what would help."""
    many = f"{count} x " if count > 1 else ""
    wants = f", {row['wants']}" if row["wants"] else ""
    text = f"remora: {many}{what}{wants} waits: {row['reason']}"
    return f"{text}. What would help: {'; or '.join(row['suggestions'])}" if row["suggestions"] else text


class Waiting:
    """Notes what is submitted, and says what waits. The thread starts with the first note and sleeps while nothing waits."""

    def __init__(self, ask: Ask, say: Callable[[str], None] = _log.warning, now: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._say = say
        self._now = now
        self._lock = threading.Lock()
        self._noted: dict[str, _Noted] = {}
        self._quick: dict[tuple[Any, ...], _Noted] = {}
        self._something = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def note(self, resources: dict[str, float], descriptor: Any, name: str) -> None:
        """On the way of every task: what was noted before costs a lookup."""
        quick = (id(descriptor), name, *resources, *resources.values())
        noted = self._quick.get(quick)
        if noted is None:
            named = name or descriptor.class_name or descriptor.function_name
            noted = self._start(shape_key((resources,)), f"{named} ({_amounts(resources)})")
            if len(self._quick) < 10 * _MOST_NOTED:
                self._quick[quick] = noted
        noted.submitted += 1

    def note_group(self, key: str, what: str) -> None:
        """A placement group that waits: by its id, or by its shape if it waits in GCS."""
        self._start(key, what).submitted += 1

    def stop(self) -> None:
        self._stopped.set()
        self._something.set()

    def _start(self, key: str, what: str) -> _Noted:
        with self._lock:
            noted = self._noted.get(key) or _Noted(what, self._now())
            if key in self._noted or len(self._noted) >= _MOST_NOTED:
                return noted
            self._noted[key] = noted
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="remora-waiting", daemon=True)
                self._thread.start()
        self._something.set()
        return noted

    def _watch(self) -> None:
        while self._something.wait() and not self._stopped.wait(PATIENCE_SECONDS):
            with contextlib.suppress(Exception):  # nobody's program may fail because we could not say why it waits
                self.look()

    def look(self) -> None:
        """Ask once, say what is new."""
        with self._lock:
            due = {key: noted for key, noted in self._noted.items() if self._now() - noted.since >= PATIENCE_SECONDS}
        if not due:
            return
        rows = self._ask(list(due))
        for (key, noted), row in zip(due.items(), rows, strict=True):
            if row is None:
                self._forget(key)
            else:
                self._tell(noted, row)

    def _forget(self, key: str) -> None:
        with self._lock:
            gone = self._noted.pop(key, None)
            self._quick = {quick: noted for quick, noted in self._quick.items() if noted is not gone}
            if not self._noted:
                self._something.clear()

    def _tell(self, noted: _Noted, row: Row) -> None:
        before, noted.count = noted.count, row["count"]
        came, noted.submitted = noted.submitted, 0
        moved = before + came > row["count"]
        if row["fits"] or (row["busy"] and (moved or not before)):
            return  # a queue that moves, or that we see for the first time, is no news
        kind = re.sub(r"\d+", "#", row["reason"])
        if kind != noted.said:
            noted.said = kind
            self._say(line(noted.what, row["count"], row))


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if not is_token(name)) or "no resources"
