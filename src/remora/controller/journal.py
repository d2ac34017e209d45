"""What happened, for ``remora events``: the last few hundred entries, kept where a restarted controller finds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from remora.wire.calls import By

_MOST = 500


class Journal:
    """Entries are numbered, in the order in which they were written. A controller that takes over leaves a gap: the last
    numbers that the one before it gave may have been lost with it."""

    def __init__(self, entries: Iterable[dict[str, Any]] = ()) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=_MOST)
        self._number = 0
        for entry in entries:
            self._number = max(int(entry.get("number", 0)), self._number + 1)
            self._entries.append({**entry, "number": self._number})
        if self._entries:
            self._number += _MOST
        self.unsaved = False

    @property
    def number(self) -> int:
        """The number of the last entry."""
        return self._entries[-1]["number"] if self._entries else self._number

    def add(self, now: float, kind: str, subject: str, text: str, by: By | None = None) -> None:
        """Write one entry: ``kind`` is one word to filter by, ``subject`` the node, actor, class or cluster it is about."""
        self._number += 1
        at = datetime.fromtimestamp(now, tz=timezone.utc).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"number": self._number, "at": at, "kind": kind, "subject": subject, "text": text}
        said = {"who": by.who, "through": by.through, "from": by.origin, "reason": by.reason} if by is not None else {}
        if any(said.values()):
            entry["by"] = {name: value for name, value in said.items() if value}
        self._entries.append(entry)
        self.unsaved = True

    def entries(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the entries after the one with this number, oldest first. A number that is still to come was that of another
        journal: then all of them."""
        if since <= 0 or since > self._number:
            return list(self._entries)
        found = []
        for entry in reversed(self._entries):
            if entry["number"] <= since:
                break
            found.append(entry)
        return found[::-1]

    def clear(self) -> None:
        self._entries.clear()
        self.unsaved = False
