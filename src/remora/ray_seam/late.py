"""Placement groups that cannot be created yet.

Ray does not look again at a placement group that it found infeasible, unless a node joins, and a node that joins has no
tokens yet. So a group that fits nowhere is not created until it does: its handle is already in the user's hands, ``wait``
and ``ready`` work, and whatever is submitted into it waits for it.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from remora.ray_seam.kv import Kv
from remora.ray_seam.tickets import STOCK
from remora.ray_seam.waiting import PATIENCE_SECONDS, line

LOOK_SECONDS = 0.25
_REMOVED = b"removed"

_log = logging.getLogger("remora")
_numbers = itertools.count()

Offer = Mapping[str, Any]
Try = Callable[[], "Offer | PlacementGroup"]


def late_key() -> str:
    context = ray.get_runtime_context()
    return f"group/{context.get_job_id()}/{context.get_worker_id()[:16]}/{next(_numbers)}"


class LateGroup(PlacementGroup):  # type: ignore[misc]
    """A placement group to be, wherever its handle went: ``key`` is where its id will stand."""

    def __init__(self, key: str, bundles: list[dict[str, float]]) -> None:
        self._key = key
        self._made: PlacementGroup | None = None
        self.bundle_cache = bundles
        self.why: Offer = {"reason": "it fits nowhere yet", "suggestions": ()}

    @property
    def key(self) -> str:
        return self._key

    @property
    def made(self) -> bool:
        return self._look()

    @property
    def id(self) -> Any:
        """Waits until there is one."""
        while not self._look():
            time.sleep(LOOK_SECONDS)
        assert self._made is not None
        return self._made.id

    def wait(self, timeout_seconds: float = 30) -> bool:
        until = time.monotonic() + timeout_seconds
        while not self._look():
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(LOOK_SECONDS, left))
        assert self._made is not None
        return bool(self._made.wait(math.ceil(max(0, until - time.monotonic()))))  # Ray counts whole seconds

    def ready(self) -> Any:
        if self._look():
            assert self._made is not None
            return self._made.ready()
        return ray.remote(num_cpus=0, max_retries=-1)(_ready).options(label_selector=STOCK).remote(self)

    def withdraw(self) -> bool:
        """Nobody wants it any more; whether it had not been created."""
        if self._look():
            return False
        Kv().put(self._key, _REMOVED)
        return True

    def _look(self) -> bool:
        if self._made is None:
            found = Kv().get(self._key)
            if found == _REMOVED:
                raise ValueError("the placement group was removed before it could be created")
            if found:
                made = json.loads(found)
                self.bundle_cache = made["bundles"]
                self._made = PlacementGroup(ray.PlacementGroupID(bytes.fromhex(made["id"])), self.bundle_cache)
        return self._made is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LateGroup):
            return self._key == other._key
        return isinstance(other, PlacementGroup) and other == self._made

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> Any:
        if self._made is not None:
            return PlacementGroup, (self._made.id, self.bundle_cache)
        return LateGroup, (self._key, self.bundle_cache)


def _ready(group: LateGroup) -> PlacementGroup:
    """In a worker: what ``ready`` promises."""
    while not group._look():
        time.sleep(LOOK_SECONDS)
    assert group._made is not None
    ray.get(group._made.ready())
    return group._made


def create_later(group: LateGroup, attempt: Try, what: str, stopped: threading.Event) -> None:
    """Look again and again whether it can be created, in a thread of the process that asked for it."""

    def keep_trying() -> None:
        since, said = time.monotonic(), ""
        while not stopped.wait(LOOK_SECONDS) and ray.is_initialized() and Kv().get(group.key) != _REMOVED:
            found = attempt()
            if isinstance(found, PlacementGroup):
                made = {"id": found.id.hex(), "bundles": found.bundle_cache}
                Kv().put(group.key, json.dumps(made).encode())
                return
            group.why = found
            if found["reason"] != said and time.monotonic() - since > PATIENCE_SECONDS:
                said = found["reason"]
                _log.warning(line(what, 1, {"wants": "", **found}))

    threading.Thread(target=keep_trying, name="remora-late-group", daemon=True).start()
