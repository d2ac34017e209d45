"""What the workers of one node know of its fence: read from GCS by one of them at a time, shared by all through memory.

A page of shared memory holds what was read last and when (the monotonic clock is that of the machine). A worker that finds
it fresh reads nothing; one that finds it old reads GCS and writes it, unless another is just doing so. So GCS hears from a
node a few times a second while it is busy, however many workers it has.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

_SIZE = 16_384
_HEAD = struct.Struct("<QdI")  # an even number while nobody writes, when it was read, how long it is


class SharedFence:
    """``read`` asks GCS; ``data`` is at most ``seconds`` old."""

    def __init__(self, path: Path, read: Callable[[], bytes], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, _SIZE)
        self._page = mmap.mmap(self._file, _SIZE)

    def data(self) -> bytes:
        found = self._shared()
        if found is not None:
            return found
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another worker is reading it: wait for that, and read it oneself only if it has died over it.
            until = time.monotonic() + self._seconds
            while time.monotonic() < until:
                time.sleep(0.0005)
                found = self._shared()
                if found is not None:
                    return found
            return self._read()
        try:
            return self._refresh()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _refresh(self) -> bytes:
        at = time.monotonic()  # before reading: it may be older than it looks, never younger
        data = self._read()
        if len(data) <= _SIZE - _HEAD.size:
            turn = (_HEAD.unpack_from(self._page)[0] // 2 + 1) * 2
            _HEAD.pack_into(self._page, 0, turn - 1, 0.0, 0)
            self._page[_HEAD.size : _HEAD.size + len(data)] = data
            _HEAD.pack_into(self._page, 0, turn, at, len(data))
        return data

    def _shared(self) -> bytes | None:
        """What another worker has read, if it is fresh and nobody is writing."""
        turn, at, length = _HEAD.unpack_from(self._page)
        if turn % 2 or not 0 <= time.monotonic() - at < self._seconds or not turn:
            return None
        data = self._page[_HEAD.size : _HEAD.size + length]
        return data if _HEAD.unpack_from(self._page)[0] == turn else None
