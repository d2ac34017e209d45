"""Objects with labels that this process has put: told to the controller, and told again when nobody refers to them any more."""

from __future__ import annotations

import threading
from typing import Any

import ray

_LOOK_SECONDS = 0.5


class Objects:
    """References cannot be watched, so they are looked at, twice a second, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}

    def add(self, object_id: str, controller: Any) -> None:
        with self._lock:
            self._known[object_id] = controller
            if len(self._known) == 1:
                threading.Thread(target=self._watch, name="remora-objects", daemon=True).start()

    def _watch(self) -> None:
        while not threading.Event().wait(_LOOK_SECONDS):
            if not ray.is_initialized():
                return
            counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts()
            held = {str(object_id, "ascii") for object_id in counts}
            with self._lock:
                gone = [object_id for object_id in self._known if object_id not in held]
                dropped = [(object_id, self._known.pop(object_id)) for object_id in gone]
                last = not self._known
            for object_id, controller in dropped:
                controller.drop_object.remote(object_id)
            if last:
                return


objects = Objects()
