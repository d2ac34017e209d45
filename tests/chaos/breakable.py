"""A real cluster on this machine whose parts can be killed, stopped and started again, one at a time."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.core.generated.gcs_pb2 import ActorTableData
from tests.live.conftest import LEAN, eventually

import remora
from remora.live.adapter import unpatched

SEED = int(os.environ.get("SEED", "1"))
_BEGAN = time.monotonic()
PART = float(os.environ.get("PART", "1"))

NOTICED = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
"""A dead node is noticed after a few seconds; one that is only slow on a busy machine is not taken for dead."""

HEAD: dict[str, Any] = {"num_cpus": 1, "labels": {"zone": "head"}, "include_dashboard": False}
WORKERS: dict[str, dict[str, Any]] = {
    "a": {"num_cpus": 2, "labels": {"zone": "a"}},
    "b": {"num_cpus": 2, "labels": {"zone": "b"}},
    "tainted": {"num_cpus": 1, "labels": {"zone": "t", "taint.remora.io/kept": "out"}},
}


def part(number: int) -> int:
    """So many of this many are done in this run: all of them, or with PART=0.1 a tenth, to try a scenario."""
    return max(1, round(number * PART))


class Breakable:
    """The cluster, its nodes by name, and every way to harm it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.chance = random.Random()  # each scenario has its own
        self.nodes: dict[str, Any] = {}
        self.arguments: dict[str, dict[str, Any]] = {}
        self.lock = threading.RLock()
        self._gcs: subprocess.Popen[bytes] | None = None  # the one that was started in the place of another
        self.tainted_ids: set[str] = set()  # of all nodes that ever were, those that keep untolerant work out

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    # Nodes

    def add(self, name: str, arguments: Mapping[str, Any]) -> None:
        with self.lock:
            self.arguments[name] = dict(arguments)
            node = self.nodes[name] = self._start(arguments)
            if any(label.startswith("taint.") for label in arguments.get("labels", ())):
                self.tainted_ids.add(str(node.node_id))

    def _start(self, arguments: Mapping[str, Any]) -> Any:
        """A node; on a machine that is very busy it may take longer than Ray waits for it, and is started again."""
        for _ in range(2):
            with contextlib.suppress(Exception):
                return self.cluster.add_node(**LEAN, **arguments)
        return self.cluster.add_node(**LEAN, **arguments)

    def node_id(self, name: str) -> str:
        node = self.cluster.head_node if name == "head" else self.nodes[name]
        return str(node.node_id)

    def kill_raylet(self, name: str) -> None:
        """End a raylet as a machine that dies does, and what it has started; a new node comes in its place."""
        with self.lock:
            node = self.nodes.pop(name)
            dead = str(node.node_id)
            os.kill(raylet_pid(node), signal.SIGKILL)
            self.cluster.remove_node(node, allow_graceful=False)
        eventually(lambda: dead not in alive())
        say(f"the raylet of {name} was killed")

    def put_back(self, name: str) -> None:
        self.add(name, self.arguments[name])

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    # Processes

    def controller_pid(self) -> int:
        """The process of the controller that lives, as GCS knows it: it need not answer."""
        return int(eventually(lambda: self._controller().pid if self._controller().state == ActorTableData.ALIVE else 0))

    def _controller(self) -> Any:
        handle = ray.get_actor("remora-controller", namespace="remora")
        accessor = ray._private.state.state._connect_and_get_accessor()
        return ActorTableData.FromString(accessor.get_actor_info(handle._actor_id))

    def kill_controller(self, before: int = 0) -> int:
        """End the controller, if it is another than it was, and return which one that was."""
        pid = int(eventually(lambda: self.controller_pid() if self.controller_pid() != before else 0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def worker_pids(self) -> list[int]:
        """Processes that run work, on any node; never the controller."""
        controller = self._controller().pid
        found: list[int] = []
        for node in [self.cluster.head_node, *self.nodes.values()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(raylet_pid(node)).children()
                found += [child.pid for child in children if child.pid != controller and is_worker(child)]
        return sorted(found)

    def kill_worker(self) -> int:
        """End one process that runs work, whichever; return it, or 0 where there was none."""
        pids = self.worker_pids()
        if not pids:
            return 0
        pid = self.chance.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def gcs_pid(self) -> int:
        return int(self._gcs_process().pid)

    def restart_gcs(self, away: float) -> None:
        """End GCS, and start it again some time later, at the same port; what it knows is in its store."""
        old = psutil.Process(self.gcs_pid())
        command, environment = old.cmdline(), old.environ()
        port = self.address.rpartition(":")[2]
        command = [f"--gcs_server_port={port}" if word.startswith("--gcs_server_port=") else word for word in command]
        self._gcs_process().kill()
        self._gcs_process().wait()
        say("GCS was killed")
        time.sleep(away)
        self._gcs = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _gcs_process(self) -> Any:
        return self._gcs or self.cluster.head_node.all_processes["gcs_server"][0].process

    def end(self) -> None:
        self.cluster.shutdown()
        if self._gcs is not None:
            self._gcs.kill()
            self._gcs.wait()

    def tenant(self, *arguments: str) -> Tenant:
        """Another driver, in a process of its own."""
        return Tenant(self.address, *arguments)


class Tenant:
    """A driver in a process of its own, which says what it does and may be told what to do, a line each."""

    def __init__(self, address: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.chaos.tenant", address, *arguments]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
        )
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, name="chaos-listener", daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.strip())

    def hear(self, timeout: float = 120) -> str:
        """The next line that it says."""
        return self._said.get(timeout=timeout)

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def is_well(self) -> bool:
        """Whether it ended as a program should."""
        return self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


def raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return bool(words) and (words[0].startswith("ray::") or any("default_worker.py" in word for word in words))
    return False


def alive() -> set[str]:
    return {node["NodeID"] for node in unpatched.nodes() if node["Alive"]}


class _Kept:
    """The cluster that runs now, and how it was asked for: the next scenario that asks the same takes it over."""

    rig: Breakable | None = None
    asked: Any = None
    environment: ClassVar[dict[str, str]] = {}


@contextlib.contextmanager
def breakable(
    name: str,
    *,
    workers: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
    is_quick: bool = True,
    is_kept: bool = True,
) -> Iterator[Breakable]:
    """A cluster for one scenario, attached; ``is_quick`` finds dead nodes in seconds in place of a minute. After a failure
    nobody else gets it, or where it is not ``is_kept``."""
    asked = (workers or WORKERS, {**(NOTICED if is_quick else {}), **(environment or {})})
    if _Kept.rig is None or _Kept.asked != asked:
        close()
        _start(*asked)
    assert _Kept.rig is not None
    _Kept.rig.chance = random.Random(f"{SEED} {name}")
    say(f"{name}: the cluster is there")
    try:
        yield _Kept.rig
    except BaseException:
        close()
        raise
    if not is_kept:
        close()


def _start(workers: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]) -> None:
    _Kept.environment, _Kept.asked = dict(os.environ), (workers, environment)
    os.environ.update(environment)
    try:
        cluster = Cluster(initialize_head=True, head_node_args={**LEAN, **HEAD})
        _Kept.rig = Breakable(cluster)
        for name, arguments in workers.items():
            _Kept.rig.add(name, arguments)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False, namespace="chaos")
        remora.attach()
    except BaseException:
        close()
        raise


def close() -> None:
    """Stop the cluster that runs now, if one does."""
    remora.detach()
    ray.shutdown()
    rig, _Kept.rig = _Kept.rig, None
    if rig is not None:
        rig.end()
    if _Kept.environment:
        os.environ.clear()
        os.environ.update(_Kept.environment)


def say(text: str) -> None:
    """One line for whoever watches (``pytest -s``)."""
    sys.stdout.write(f"{time.monotonic() - _BEGAN:6.1f}  {text}\n")
    sys.stdout.flush()


class Times:
    """How often something was done meanwhile, and what came of it."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.done: list[Any] = []
        self.failed: BaseException | None = None

    def is_over(self) -> bool:
        """Whether it was done as often as it should be; raise what it failed with."""
        if self.failed is not None:
            raise self.failed
        return len(self.done) >= self.wanted


@contextlib.contextmanager
def repeatedly(action: Callable[[], Any], chance: random.Random, least: float, most: float, times: int) -> Iterator[Times]:
    """Do something this often meanwhile, after pauses between ``least`` and ``most`` seconds; what came of each is collected.
    When the ``with`` is over before, it is left at that."""
    found, over = Times(times), threading.Event()

    def run() -> None:
        try:
            while len(found.done) < times and not over.wait(chance.uniform(least, most)):
                found.done.append(action())
        except BaseException as error:  # noqa: BLE001 - raised where it can be seen
            found.failed = error

    thread = threading.Thread(target=run, name="chaos-faults")
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(120)
    found.is_over()
