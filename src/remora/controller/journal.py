"""What happened, for ``remora events``: the last few hundred entries, kept where a restarted controller finds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

_MOST = 500


class Journal:
    def __init__(self, entries: Iterable[dict[str, Any]] = ()) -> None:
        self._entries: deque[dict[str, Any]] = deque(entries, maxlen=_MOST)
        self.unsaved = False

    def add(self, now: float, kind: str, subject: str, text: str) -> None:
        """Write one entry: ``kind`` is one word to filter by, ``subject`` the node, actor, class or cluster it is about."""
        at = datetime.fromtimestamp(now, tz=timezone.utc).isoformat(timespec="milliseconds")
        self._entries.append({"at": at, "kind": kind, "subject": subject, "text": text})
        self.unsaved = True

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first."""
        return list(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self.unsaved = False
