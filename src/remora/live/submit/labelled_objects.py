"""Objects with labels that this process has put: told to the controller, and told again when nobody refers to them any more."""

from __future__ import annotations

import threading
import time

import ray

from remora.live.link import link
from remora.wire.calls import DropObject

_LOOK_SECONDS = 0.5


class Objects:
    """References cannot be watched, so they are looked at, twice a second, while there are any. Those of a job end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._job_id = ""
        self._thread: threading.Thread | None = None

    def add(self, object_id: str, job_id: str) -> None:
        with self._lock:
            if self._job_id != job_id:  # this process has connected anew
                self._job_id, self._known = job_id, set()
            self._known.add(object_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="remora-objects", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                if not self._known or not ray.is_initialized():
                    self._known.clear()
                    self._thread = None
                    return
            for object_id in self._dropped():
                link.tell(DropObject(object_id))

    def _dropped(self) -> list[str]:
        counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts()
        held = {str(object_id, "ascii") for object_id in counts}
        with self._lock:
            gone = [object_id for object_id in self._known if object_id not in held]
            self._known.difference_update(gone)
        return gone


objects = Objects()
