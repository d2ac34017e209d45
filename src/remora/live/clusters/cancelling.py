"""What was submitted in a virtual cluster that stops its work at the end (``cancel=True``).

A task can only be stopped by a reference to its result, and whoever keeps that keeps the result too. So references are kept
until the tasks have ended: they are looked at now and then, while there are any.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import ray
from ray.exceptions import ActorHandleNotFoundError, RayError

_LOOK_SECONDS = 0.25
_SHARE = 0.1  # of a core, at the very most, for many of them


class Made:
    """Tasks that have not ended, by a result of theirs, and actors by their ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: list[Any] = []
        self._actors: list[Any] = []
        self._thread: threading.Thread | None = None

    def add(self, made: Any) -> None:
        """Remember an actor by its id, or a task by its results."""
        with self._lock:
            if isinstance(made, ray.ActorID):
                self._actors.append(made)
                return
            if made:
                self._tasks.append(made[0])
            if self._thread is None and self._tasks:
                self._thread = threading.Thread(target=self._forget_ended, name="remora-made", daemon=True)
                self._thread.start()

    def __len__(self) -> int:
        return len(self._tasks) + len(self._actors)

    def stop(self) -> None:
        """Stop everything; that something cannot be stopped any more is nobody's business."""
        with self._lock:
            tasks, actors, self._tasks, self._actors = self._tasks, self._actors, [], []
        if not ray.is_initialized():
            return
        for reference in tasks:
            with contextlib.suppress(RayError, ValueError, TypeError):
                ray.cancel(reference, force=True, recursive=True)
        for actor_id in actors:
            with contextlib.suppress(RayError, ActorHandleNotFoundError):
                ray._private.worker.global_worker.core_worker.kill_actor(actor_id, True)

    def _forget_ended(self) -> None:
        pause = _LOOK_SECONDS
        while True:
            time.sleep(pause)
            began = time.monotonic()
            with self._lock:
                tasks = list(self._tasks)
                if not tasks or not ray.is_initialized():
                    self._thread = None
                    return
            ended = self._ended(tasks)
            with self._lock:
                self._tasks = [task for task in self._tasks if task not in ended]
            del tasks, ended  # or they would be kept until the next look
            pause = max(_LOOK_SECONDS, (time.monotonic() - began) / _SHARE)

    def _ended(self, tasks: list[Any]) -> set[Any]:
        unique = list(dict.fromkeys(tasks))
        with contextlib.suppress(RayError):
            return set(ray.wait(unique, num_returns=len(unique), timeout=0, fetch_local=False)[0])
        return set()
