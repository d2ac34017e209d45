"""What happened, for ``remora events``: the last few hundred entries, kept where a restarted controller finds them."""

from __future__ import annotations

import json
from collections import deque
from datetime import datetime, timezone
from typing import Any

from remora.seam.port import Port

_KEY = "events"
_MOST = 500


class Journal:
    def __init__(self, port: Port) -> None:
        self._port = port
        self._entries: deque[dict[str, Any]] = deque(json.loads(port.get(_KEY) or b"[]"), maxlen=_MOST)
        self._unsaved = False

    def add(self, now: float, kind: str, subject: str, text: str) -> None:
        """``kind`` is one word to filter by, ``subject`` the node or class it is about."""
        at = datetime.fromtimestamp(now, tz=timezone.utc).isoformat(timespec="milliseconds")
        self._entries.append({"at": at, "kind": kind, "subject": subject, "text": text})
        self._unsaved = True

    def save(self) -> None:
        if self._unsaved:
            self._port.put(_KEY, json.dumps(list(self._entries), separators=(",", ":")).encode())
            self._unsaved = False

    def entries(self) -> list[dict[str, Any]]:
        return list(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self._port.put(_KEY, None)
        self._unsaved = False
