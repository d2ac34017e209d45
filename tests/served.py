"""The dashboard over a cluster in memory, with the real controller between: for tests that need no Ray, and for benchmarks."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from random import Random
from typing import Any

import uvicorn

from remora import VirtualCluster
from remora.controller.engine import Engine
from remora.dashboard.app import build
from remora.dashboard.guarding import App, Rules
from remora.dashboard.hub import Hub
from remora.errors import ControllerAwayError
from remora.port.contract import ACTOR, JOB, RUNNING, Work
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.tokens import TAKEN, class_token, share_token


class MemoryBackend:
    """A controller over a cluster in memory. ``away``: it does not answer, as while it is restarted."""

    def __init__(self, port: MemoryPort | None = None) -> None:
        self.port = port if port is not None else MemoryPort()
        self.engine = Engine(self.port, lambda: datetime.now(tz=timezone.utc).timestamp())
        self.away = False
        self.asked: list[str] = []
        self._asks = 0

    def ask(self, call: calls.Call) -> Any:
        self.asked.append(type(call).__name__)
        if self.away:
            raise ControllerAwayError("there is no controller in this cluster: remora.init() starts one")
        return self.engine.answer(call)

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(calls.Explain(id_or_name))
        return found

    def start(self) -> None:
        self.away = False

    def close(self) -> None:
        self.engine.close()

    # What happens in the cluster

    def job(self, job_id: str) -> None:
        self.port.submit(Work(JOB, job_id, "", job_id, RUNNING, "", ()))

    def create(self, job_id: str = "j1", parent: str | None = None, priority: int = 0, **spec: Any) -> str:
        """Ask for a virtual cluster. Return its id."""
        self.job(job_id)
        self._asks += 1
        text = json.dumps(VirtualCluster(**spec).to_dict())
        call = calls.CreateCluster(f"ask {self._asks}", text, parent, job_id, priority, [], 3600.0)
        return str(self.ask(call)["cluster_id"])

    def offer(self, cluster_id: str | None = None, **options: Any) -> ClassSpec:
        """Announce a class."""
        made = rewrite(options, Defaults()).spec
        spec = ClassSpec(made.choices, made.demand, cluster_id)
        self.ask(calls.EnsureClass(spec.encode()))
        return spec

    def wait(self, count: int, cpus: float = 1, **options: Any) -> ClassSpec:
        """So many tasks of a class wait."""
        spec = self.offer(**options)
        self.port.wait({class_token(spec.class_id): TAKEN, "CPU": cpus}, count)
        return spec

    def grow(self, cluster_id: str, count: int, cpus: float = 1) -> None:
        """Work of a virtual cluster is on its way."""
        spec = self.offer(cluster_id)
        self.ask(calls.WantShares([calls.Hint(spec.encode(), {"CPU": cpus}, count)]))

    def use(self, cluster_id: str, part: float = 0.7, chance: Random | None = None) -> None:
        """Work of a virtual cluster runs on a part of what stands of it."""
        token = share_token(cluster_id, "CPU")
        for view in self.port.observe().nodes:
            free = min(view.available.get(token, 0.0), view.available.get("CPU", 0.0))
            amount = float(int(free * (chance.random() if chance is not None else part) + 0.5))
            if 0 < amount <= free:
                self.port.take(view.node_id, {token: amount, "CPU": amount})

    def actor(self, actor_id: str, name: str, **more: Any) -> None:
        self.port.submit(Work(ACTOR, actor_id, name, "j1", RUNNING, "ALIVE", ({},), **more))


def populate(backend: MemoryBackend, nodes: int, waiting: int = 12, seed: int = 0) -> None:
    """Make a cluster to look at: zones, GPUs, taints, teams that share it, and work that waits for different reasons."""
    chance = Random(f"cluster {seed}")
    for number in range(nodes):
        has_gpus = number % 5 == 4
        labels = {"zone": "abc"[number % 3], "node-group": "gpu" if has_gpus else ("spot" if number % 7 == 3 else "cpu")}
        if has_gpus:
            labels |= {"ray.io/accelerator-type": "H100", "taint.remora.io/gpu_node": "true"}
        resources = {"CPU": 16.0, "memory": 64e9, **({"GPU": 8.0} if has_gpus else {})}
        backend.port.join(f"{number:04x}{'8d3f1c6a9be2' * 4}"[:56], resources, labels)
    settled(backend)
    cores = 16 * nodes
    teams = [
        backend.create("search", None, 0, flexible_resource_min={"CPU": cores // 8}, flexible_resource_max={"CPU": cores // 3}),
        backend.create("ads", None, 0, flexible_resource_min={"CPU": cores // 8}, flexible_resource_max={"CPU": cores // 2}),
        backend.create("nightly", None, 0, flexible_resource_max={"CPU": cores // 4}),
    ]
    teams.append(backend.create("search", teams[0], 0, flexible_resource_min={"CPU": max(cores // 32, 1)}))
    for team, count in zip(teams, (cores // 4, cores // 3, cores // 6, cores // 32), strict=True):
        backend.grow(team, max(count, 1))
    settled(backend)
    for team in teams:
        backend.use(team, chance=chance)
    for view in backend.port.observe().nodes:
        free = int(view.available.get("CPU", 0.0))
        outside = float(chance.randint(0, max(free // 3, 0)))
        if outside:
            backend.port.take(view.node_id, {"CPU": outside})
    backend.create("training", None, 5, flexible_resource_min={"CPU": cores * 3 // 4})
    backend.create("evaluation", None, 1, flexible_resource_min={"CPU": cores * 5 // 8})
    backend.wait(max(waiting // 2, 1), label_selector={"ray.io/accelerator-type": "A100"})
    backend.wait(max(waiting // 3, 1), cpus=64)
    spec = backend.offer(teams[2])
    backend.port.wait(
        {class_token(spec.class_id): TAKEN, share_token(teams[2], "CPU"): 1.0, "CPU": 1.0}, min(max(waiting // 6, 1), 20)
    )


def settled(backend: MemoryBackend, seconds: float = 10.0) -> None:
    """Return when the controller has nothing under way, or after a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        backend.ask(calls.GetStatus())
        with backend.engine._lock:
            if backend.engine._controller.settled:
                return
        time.sleep(0.02)


@contextlib.contextmanager
def served(app: App) -> Iterator[str]:
    """Serve an app on loopback. Yields its address."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    assert server.started, "the server did not start"
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        bound.close()


@contextlib.contextmanager
def simulated(nodes: int, waiting: int = 12, rules: Rules | None = None, **hub: float) -> Iterator[tuple[str, MemoryBackend]]:
    """Serve a cluster to look at. Yields its address, and the backend to do things to it."""
    backend = MemoryBackend()
    try:
        populate(backend, nodes, waiting)
        with served(build(backend, rules, Hub(backend, **hub))) as address:
            yield address, backend
    finally:
        backend.close()
