"""The controller as a Ray actor: detached, restarting itself, on the head node, with no CPU of its own.

It hears calls as bytes (``hearing``) and hands them to the engine, which decides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.controller.engine import Engine
from remora.live import installed
from remora.live.adapter import unpatched
from remora.live.adapter.ray_port import RayPort
from remora.live.host.exporting import Exporter
from remora.live.host.group_host import GroupHost
from remora.live.host.hearing import Hearing
from remora.live.link import CONTROLLER, NAMESPACE, forget_class, link
from remora.live.submit.tickets import STOCK
from remora.wire.calls import FREQUENT, MAKING, PATIENT, RETURNING
from remora.wire.timing import AWAY_SECONDS

_AGAIN_SECONDS = 1.0
_THREADS = {FREQUENT: 1, PATIENT: 32, RETURNING: 32, MAKING: 8}
_log = logging.getLogger(__name__)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _heard(group: str) -> Callable[[_Method], _Method]:
    def mark(method: _Method) -> _Method:
        ray.method(concurrency_group=group)(method)
        return method

    return mark


class ControllerActor:
    def __init__(self) -> None:
        _hurry()
        try:
            engine = Engine(RayPort(), _utc_seconds)
            groups = GroupHost(engine.answer)
            groups.resume()
        except Exception:
            if not ray.get_runtime_context().was_current_actor_reconstructed:
                raise  # whoever starts it for the first time hears of it
            # Ray does not restart an actor whose constructor has raised an exception, but one whose process has ended.
            _log.exception("the controller could not start; it tries again")
            time.sleep(_AGAIN_SECONDS)
            os._exit(1)
        self._ends_at: float | None = None  # since everything was withdrawn
        self._hearing = Hearing(engine, groups, self._withdrawn)
        Exporter(engine).start()

    def ask(self, data: bytes) -> bytes:
        return self._hearing.answer(data)

    @_heard(FREQUENT)
    def ask_frequent(self, data: bytes) -> bytes:
        return self._hearing.answer(data)

    @_heard(PATIENT)
    def ask_patient(self, data: bytes) -> bytes:
        return self._hearing.answer(data)

    @_heard(RETURNING)
    def ask_returning(self, data: bytes) -> bytes:
        return self._hearing.answer(data)

    @_heard(MAKING)
    def ask_making(self, data: bytes) -> bytes:
        return self._hearing.answer(data)

    def pid(self) -> int:
        return os.getpid()

    def _withdrawn(self) -> None:
        """Whoever has withdrawn everything ends this process. If nobody does, it ends itself, and comes back as if new."""
        is_first, self._ends_at = self._ends_at is None, time.monotonic() + AWAY_SECONDS
        if is_first:
            threading.Thread(target=self._end, name="remora-end", daemon=True).start()

    def _end(self) -> None:
        while self._ends_at is not None and (left := self._ends_at - time.monotonic()) > 0:
            time.sleep(left)
        os._exit(1)


def _hurry() -> None:
    """Ray starts workers with less priority than its own servers; whoever decides for all of them should not have to wait for
    their start. It is not everywhere allowed."""
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def start_controller() -> Any:
    """Return the controller of this cluster; whoever comes first starts it, and two at once get the same one. Its calls are no
    tasks of the user's, so none of them is recorded as one."""
    known = link.find(anew=True)
    if known is not None:
        return known
    head = next(node["NodeID"] for node in unpatched.nodes() if node["Alive"] and "node:__internal_head__" in node["Resources"])
    options: dict[str, Any] = {
        "name": CONTROLLER,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": 16,
        "enable_task_events": False,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(head, soft=False),
    }
    if installed.current() is not None:
        options["label_selector"] = STOCK
    controller = ray.remote(concurrency_groups=_THREADS)(ControllerActor).options(**options).remote()
    forget_class()
    link.find(anew=True)
    return controller


def _utc_seconds() -> float:
    return datetime.now(tz=timezone.utc).timestamp()
