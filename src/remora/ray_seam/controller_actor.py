"""The controller as a Ray actor: detached, restarting itself, on the head node, with no CPU of its own."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.controller.core import Controller
from remora.controller.status import status
from remora.controller.why import why_waiting, why_work
from remora.model.labels import Labels
from remora.model.resources import Resources
from remora.model.virtual_clusters import VirtualCluster
from remora.ray_seam import hooks, raw
from remora.ray_seam.layer import CONTROLLER, NAMESPACE
from remora.ray_seam.ray_port import RayPort
from remora.ray_seam.tickets import STOCK
from remora.seam.port import JOB, WORKER, Work
from remora.wire.classes import ClassSpec, choice_from
from remora.wire.fences import RENEW_SECONDS, TOLD_SECONDS
from remora.wire.groups import decode_group
from remora.wire.leases import decode_ask
from remora.wire.shapes import shape_key

FULL_ROUND_SECONDS = 1.0
"""However quiet the feeds are, this often everything is compared."""

UNSETTLED_SECONDS = 0.1
"""As often, while a fence stands: what is given back is taken away before it is given on."""

_AGAIN_SECONDS = 1.0
_LEAST_SECONDS = 0.05  # between two rounds, however much happens

_FREQUENT = "frequent"
_PATIENT, _RETURNING = "patient", "returning"
_MOST_AT_ONCE = 32

_log = logging.getLogger(__name__)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _frequent(method: _Method) -> _Method:
    """What comes by the thousand has a thread of its own: several would only wait for each other, and a command that takes
    its time holds nobody up."""
    ray.method(concurrency_group=_FREQUENT)(method)
    return method


def _patient(method: _Method) -> _Method:
    """What may take seconds because it waits for others."""
    ray.method(concurrency_group=_PATIENT)(method)
    return method


def _returning(method: _Method) -> _Method:
    """What waits for a moment only, and not behind those who wait for long."""
    ray.method(concurrency_group=_RETURNING)(method)
    return method


class ControllerActor:
    """One core behind a lock. A thread makes the rounds from the start, so a restarted controller needs nobody to wake it."""

    def __init__(self) -> None:
        _hurry()
        try:
            self._begin()
        except Exception:
            if not ray.get_runtime_context().was_current_actor_reconstructed:
                raise  # whoever starts it for the first time hears of it
            # Ray does not restart an actor whose constructor has raised an exception, but one whose process has ended.
            _log.exception("the controller could not start; it tries again")
            time.sleep(_AGAIN_SECONDS)
            os._exit(1)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._steering = threading.Lock()  # taken before the other
        self._stopped = False
        self._awake = threading.Event()
        self._rounded = threading.Condition()
        self._core = Controller(RayPort())
        self._core.round()
        self._rounded_at = self._round_at = time.monotonic()
        self._core.port.watch(self._told)
        threading.Thread(target=self._rounds, name="rounds", daemon=True).start()

    def _told(self, work: Work | None) -> None:
        """Of an actor, a job or a worker we know what it means; after anything else everything is looked at."""
        if work is not None and work.kind == WORKER and not self._core.sharing.returned.bury(work.work_id):
            return  # they come and go all the time
        if work is not None:
            self._core.inbox.append(work)
        if work is None or work.kind in (JOB, WORKER):
            self._soon()
        self._awake.set()

    def _soon(self) -> None:
        """Everything is looked at again, though not more often than a few times a second."""
        self._round_at = min(self._round_at, self._rounded_at + _LEAST_SECONDS)
        self._awake.set()

    def _rounds(self) -> None:
        while not self._stopped:
            self._awake.wait(max(0.0, self._round_at - time.monotonic()))
            self._awake.clear()
            try:
                if time.monotonic() >= self._round_at:
                    self._round()
                else:
                    self._steer_leases()
            except Exception:  # noqa: BLE001 - whatever it was, the next round looks at the cluster anew
                _log.exception("a round failed")

    def _round(self) -> None:
        with self._lock:
            self._rounded_at = time.monotonic()
            self._round_at = self._rounded_at + FULL_ROUND_SECONDS
            if not self._stopped:
                self._core.round()
            if not self._core.settled:
                self._round_at = min(self._round_at, self._rounded_at + UNSETTLED_SECONDS)
        with self._rounded:
            self._rounded.notify_all()

    def _steer_leases(self) -> None:
        """Between rounds. While tokens are written, the next decisions are made; after that for as long again, because raylets
        tell each other of all their tokens after every write."""
        with self._steering:
            with self._lock:
                self._core.hear()
                due = {} if self._stopped else self._core.due()
            began = time.monotonic()
            self._core.steer_leases(due)
        time.sleep(min(time.monotonic() - began, _LEAST_SECONDS))

    def ensure(self, data: bytes) -> list[str]:
        with self._lock:
            return self._core.ensure(ClassSpec.decode(data))

    @_frequent
    def place(self, text: str, job_id: str) -> tuple[str, str | None]:
        with self._lock:
            placed = self._core.place(decode_ask(text), job_id)
        self._awake.set()
        return placed

    @_frequent
    def claim(self, slot: str, actor_id: str) -> None:
        with self._lock:
            self._core.leases.claim(slot, actor_id)

    @_frequent
    def give_up(self, slot: str) -> None:
        with self._lock:
            self._core.leases.give_up(slot)
        self._awake.set()

    @_frequent
    def put_object(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        with self._lock:
            self._core.leases.ghosts.put_object(object_id, labels, node_id, namespace, job_id)
        self._awake.set()

    @_frequent
    def drop_object(self, object_id: str) -> None:
        with self._lock:
            self._core.leases.ghosts.drop_object(object_id)
        self._awake.set()

    def offer_group(self, data: bytes, job_id: str, ask: str) -> dict[str, Any]:
        with self._lock:
            offer = self._core.offer_group(decode_group(data), job_id, ask)
            why = {"reason": offer.why.reason, "suggestions": [str(each) for each in offer.why.suggestions]}
            return {"option": offer.option, "nodes": offer.nodes, "berth": offer.berth, **why}

    def take_berth(self, berth: str, group_id: str) -> None:
        """GCS has reserved a placement group in a virtual cluster."""
        with self._lock:
            self._core.sharing.take_berth(berth, group_id)

    def leave_berth(self, berth_or_group: str) -> None:
        """A placement group in a virtual cluster has ended, or will not be created."""
        with self._lock:
            is_known = self._core.sharing.leave_berth(berth_or_group)
        if is_known:
            self._soon()

    def create_cluster(
        self, spec: str, parent: str | None, job_id: str, priority: int, tolerations: list[Any], idle_seconds: float
    ) -> dict[str, Any]:
        tolerated = choice_from([], tolerations, [], None).tolerations
        with self._lock:
            made = self._core.create_cluster(VirtualCluster.parse(spec), parent, job_id, priority, tolerated, idle_seconds)
        self._soon()
        return made

    def look_cluster(self, cluster_id: str) -> dict[str, Any]:
        with self._lock:
            return self._core.sharing.look(cluster_id)

    def close_cluster(self, cluster_id: str, unused: bool) -> None:
        with self._lock:
            self._core.sharing.close(cluster_id, unused=unused)
        self._soon()

    def clusters(self) -> list[dict[str, Any]]:
        with self._lock:
            self._core.round()
            return self._core.sharing.tree()

    def look_clusters(self) -> list[dict[str, Any]]:
        with self._lock:
            return self._core.look_clusters()

    def want(self, hints: list[tuple[bytes, dict[str, float], int]]) -> None:
        """What is on its way in virtual clusters."""
        with self._lock:
            self._core.want([(_spec(data), Resources.parse(resources), count) for data, resources, count in hints])

    def request(self, cluster_id: str, hints: list[tuple[bytes, dict[str, float], int]]) -> None:
        """A virtual cluster should have room for all of this together."""
        with self._lock:
            asked = [(_spec(data), Resources.parse(resources), count) for data, resources, count in hints]
            self._core.request(cluster_id, asked)

    @_frequent
    def wait_in(self, worker_id: str, cluster_id: str, node_id: str, amounts: dict[str, float]) -> None:
        with self._lock:
            self._core.sharing.wait(worker_id, cluster_id, node_id, Resources.parse(amounts))

    @_frequent
    def sent_on(self, worker_id: str, cluster_id: str, node_id: str, amounts: dict[str, float]) -> None:
        with self._lock:
            self._core.sharing.sent_on(worker_id, cluster_id, node_id, Resources.parse(amounts))
        self._soon()

    @_returning
    def come_back(self, worker_id: str, cluster_id: str, node_id: str, amounts: dict[str, float], again: bool) -> str | None:
        """What a worker that has what it waited for is told; nothing after a while, to be asked again."""
        who = worker_id, cluster_id, node_id, Resources.parse(amounts)
        return self._answer(worker_id, lambda again: self._core.sharing.come_back(*who, again=again), again)

    @_patient
    def enter(
        self,
        worker_id: str,
        cluster_id: str,
        node_id: str,
        amounts: dict[str, float],
        again: bool,
        may_go: bool,
        dead: list[str],
    ) -> str | None:
        """What work that was held up is told; nothing after a while, to be asked again. ``dead`` are workers that it has found
        on its node to have ended while they waited."""
        who = worker_id, cluster_id, node_id, Resources.parse(amounts)

        def ask(again: bool) -> None:
            for each in dead:
                self._core.sharing.worker_ended(each)
            self._core.sharing.enter(*who, may_go=may_go, again=again)

        return self._answer(worker_id, ask, again)

    def _answer(self, worker_id: str, ask: Callable[[bool], None], again: bool) -> str | None:
        with self._lock:
            ask(again)
        until = time.monotonic() + RENEW_SECONDS
        while True:
            with self._lock:
                answer = self._core.sharing.answer(worker_id)
                if answer is None and not self._core.sharing.returned.waits(worker_id):
                    ask(True)
            if answer is not None or time.monotonic() > until:
                return answer
            self._soon()
            with self._rounded:
                self._rounded.wait(UNSETTLED_SECONDS)

    def find_node(self, node_id: str | None, address: str | None) -> str:
        with self._lock:
            return self._core.find_node(node_id, address)

    def label(self, node_id: str, set_: Labels, drop: list[str]) -> None:
        with self._lock:
            self._core.label(node_id, set_, drop)

    def taint(self, node_id: str, set_: Labels, drop: list[str]) -> None:
        """Returns when nothing that does not tolerate the taints can start there any more."""
        with self._lock:
            fenced = self._core.taint(node_id, set_, drop)
        self._told(None)
        if fenced:
            time.sleep(TOLD_SECONDS)

    def status(self) -> dict[str, Any]:
        with self._lock:
            self._core.round()
            return status(self._core)

    def waiting(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """For each shape that a client submitted: how many of it wait in the whole cluster and why, or None."""
        with self._lock:
            demands = {shape_key(demand.shapes): demand for demand in self._core.demands}
            found = [demands.get(key) for key in keys]
            return [
                None if each is None else {"count": each.count, **why_waiting(self._core, each.shapes, each.strategy)}
                for each in found
            ]

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        found = [work for work in self._core.port.find(id_or_name) if work.kind != JOB]
        with self._lock:
            self._core.round()
            return [why_work(self._core, work) for work in found if work.kind != JOB]

    def events(self) -> list[dict[str, Any]]:
        with self._lock:
            return self._core.journal.entries()

    def withdraw(self) -> list[str]:
        with self._steering, self._lock:
            self._stopped = True
            return self._core.withdraw()

    def pid(self) -> int:
        return os.getpid()


def _hurry() -> None:
    """Ray starts workers with less priority than its own servers; whoever decides for all of them should not have to wait for
    their start. It is not everywhere allowed."""
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


@functools.lru_cache(maxsize=1024)
def _spec(data: bytes) -> ClassSpec:
    return ClassSpec.decode(data)


def start_controller() -> Any:
    """The controller of this cluster; whoever comes first starts it, and two at once get the same one."""
    head = next(node["NodeID"] for node in raw.nodes() if node["Alive"] and "node:__internal_head__" in node["Resources"])
    options: dict[str, Any] = {
        "name": CONTROLLER,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": 16,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(head, soft=False),
    }
    if hooks.current() is not None:
        options["label_selector"] = STOCK
    groups = {_FREQUENT: 1, _PATIENT: _MOST_AT_ONCE, _RETURNING: _MOST_AT_ONCE}
    return ray.remote(concurrency_groups=groups)(ControllerActor).options(**options).remote()
