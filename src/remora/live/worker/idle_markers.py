"""What a worker leaves on its node while it holds a token that it does not use: a file, locked for as long as it lives.

When such a worker is killed, its raylet gives the token to the next in its queue within a moment, sooner than GCS tells anybody
of the death; and somebody else has the share. So whoever starts on the node looks for files that nobody locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import ray

_COARSE_NS = 50_000_000
"""Two changes that are closer than this may bear the same time."""

_UNFINISHED = "."
"""How the names of files begin that are not locked yet."""


class IdleMarkers:
    """Those of one node, in a folder of the machine's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self._own: set[str] = set()  # to look at one's own lock would end it
        self._empty_since = 0  # when the folder was last changed, if it is known to be empty since

    @contextlib.contextmanager
    def held(self, worker_id: str) -> Iterator[None]:
        if worker_id in self._own:  # a second lock of the same process would end with the first of both
            yield
            return
        # Locked before it has its name: whoever finds it finds it locked, or finds that its worker has died.
        path, new = self._folder / worker_id, self._folder / f"{_UNFINISHED}{worker_id}"
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)  # a process that this one starts does not inherit it
            self._own.add(worker_id)
            new.rename(path)
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(file)
            self._own.discard(worker_id)

    def orphaned(self) -> list[str]:
        """Return the workers that died over one. Asked before every start, so that it costs little where there are none."""
        changed = os.fstat(self._file).st_mtime_ns
        if changed == self._empty_since:
            return []
        found = [path.name for path in self._folder.iterdir() if not path.name.startswith(_UNFINISHED)]
        if not found and time.time_ns() - changed > _COARSE_NS:
            self._empty_since = changed
        return [name for name in found if name not in self._own and not self._is_kept(name)]

    def forget(self, worker_ids: list[str]) -> None:
        for worker_id in worker_ids:
            (self._folder / worker_id).unlink(missing_ok=True)

    def _is_kept(self, name: str) -> bool:
        """Return whether its worker lives. Two may look at once: a lock that both can have tells both."""
        try:
            file = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True  # taken back just now
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False


_here: list[IdleMarkers] = []


def idle_markers() -> IdleMarkers:
    """Those of the node that this process runs on."""
    if not _here:
        _here.append(IdleMarkers(shared_path("idle-markers")))
    return _here[0]


def shared_path(what: str) -> Path:
    """Where the workers of a node keep something that they share."""
    node_id = ray.get_runtime_context().get_node_id()
    return Path(ray._private.worker._global_node.get_session_dir_path()) / f"remora-{what}-{node_id}"
