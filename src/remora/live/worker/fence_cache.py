"""What the workers of one node know of its fence: read from GCS by one of them at a time, shared by all through memory.

Shared memory holds what was read last and when (the monotonic clock is that of the machine). A worker that finds it fresh
reads nothing; one that finds it old reads GCS and writes it, unless another is just doing so. Before it is old it is read
again in the background, so that work which follows work does not wait for GCS. So GCS hears from a node a few times a
second while it is busy, however many workers it has.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_SIZE = 16_384  # to begin with: it grows with what is in it
_AGING = 0.8  # of the time that it may be trusted: then it is read ahead
_HEAD = struct.Struct("<QdI")  # an even number while nobody writes, when it was read, how long it is


class SharedFence:
    """``read`` asks GCS; ``data`` is at most ``seconds`` old."""

    def __init__(self, path: Path, read: Callable[[], bytes], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._file, 0, _SIZE)  # never less than others have made of it
        self._page = mmap.mmap(self._file, 0)
        self._here = threading.Lock()
        self._ahead: threading.Thread | None = None
        self._aging = threading.Event()

    def data(self) -> bytes:
        found = self._shared()
        if found is not None:
            return found
        with self._alone() as alone:
            if alone:
                return self._refresh()
        # Another worker is reading it: wait for that, and read it oneself only if it has died over it.
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            time.sleep(0.0005)
            found = self._shared()
            if found is not None:
                return found
        return self._read()

    def refresh(self) -> None:
        """Read it now, for all."""
        with self._here:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # nobody writes what it began to read before
            try:
                self._refresh()
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether nobody else refreshes the page, in this process or another; then nobody does until the end."""
        if not self._here.acquire(blocking=False):
            yield False
            return
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._here.release()

    def _refresh(self) -> bytes:
        at = time.monotonic()  # before reading: it may be older than it looks, never younger
        data = self._read()
        if _HEAD.size + len(data) > len(self._page):
            os.posix_fallocate(self._file, 0, _HEAD.size + 2 * len(data))
            self._page = mmap.mmap(self._file, 0)  # the old one is left to those who just look at it
        page = self._page
        turn = (_HEAD.unpack_from(page)[0] // 2 + 1) * 2
        _HEAD.pack_into(page, 0, turn - 1, 0.0, 0)
        page[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(page, 0, turn, at, len(data))
        return data

    def _shared(self) -> bytes | None:
        """What another worker has read, if it is fresh and nobody is writing."""
        page = self._page
        turn, at, length = _HEAD.unpack_from(page)
        age = time.monotonic() - at
        if turn % 2 or not 0 <= age < self._seconds or not turn:
            return None
        if age > self._seconds * _AGING and not self._aging.is_set():
            self._read_ahead()
        if _HEAD.size + length > len(page):  # another worker has made it larger
            self._page = page = mmap.mmap(self._file, 0)
        data = page[_HEAD.size : _HEAD.size + length]
        return data if _HEAD.unpack_from(page)[0] == turn and len(data) == length else None

    def _read_ahead(self) -> None:
        self._aging.set()
        if self._ahead is None:
            self._ahead = threading.Thread(target=self._keep_fresh, name="remora-fence", daemon=True)
            self._ahead.start()

    def _keep_fresh(self) -> None:
        while self._aging.wait():
            # Whoever finds it old reads it himself, and says what went wrong.
            with contextlib.suppress(Exception), self._alone() as alone:
                if alone:
                    self._refresh()
            if not alone:
                time.sleep(self._seconds / 10)
            self._aging.clear()
