"""One real Ray of four raylets on this machine for all tests here, and a driver that is attached to it."""

from __future__ import annotations

import contextlib
import os
import pprint
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import remora
from remora.live.adapter import unpatched

QUICK = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "2",
}

LEAN: dict[str, Any] = {"include_log_monitor": False}
"""Nobody reads the workers' output here, and on each node a process would follow hundreds of files."""

NODES: dict[str, dict[str, Any]] = {
    "head": {"num_cpus": 1, "labels": {"zone": "head", "rare-resource.remora.io/jewel": "true"}, "include_dashboard": False},
    "a": {"num_cpus": 2, "labels": {"zone": "a"}},
    "b": {"num_cpus": 2, "labels": {"zone": "b"}},
    "gpu": {
        "num_cpus": 1,
        "num_gpus": 2,
        "resources": {"accel": 1},
        "labels": {"zone": "g", "taint.remora.io/gpu_node": "true"},
    },
}


@dataclass
class World:
    """The cluster with its nodes by name."""

    cluster: Any
    ids: dict[str, str]

    def name(self, node_id: str) -> str:
        return next(name for name, known in self.ids.items() if known == node_id)

    def names(self, refs: list[Any], timeout: float = 240) -> list[str]:
        return [self.name(node_id) for node_id in ray.get(refs, timeout=timeout)]

    @contextlib.contextmanager
    def extra(self, name: str, **arguments: Any) -> Iterator[Callable[[], None]]:
        """One more node for a while; what it yields kills it with SIGKILL before its time."""
        known = {node["NodeID"] for node in unpatched.nodes()}
        node = self.cluster.add_node(**LEAN, **arguments)
        found = eventually(lambda: {each["NodeID"] for each in unpatched.nodes() if each["Alive"]} - known)
        (self.ids[name],) = found

        def kill() -> None:
            if node in self.cluster.worker_nodes:
                self.cluster.remove_node(node, allow_graceful=False)

        try:
            yield kill
        finally:
            kill()
            eventually(lambda: not self.alive(name))
            del self.ids[name]

    def alive(self, name: str) -> bool:
        return any(node["Alive"] for node in unpatched.nodes() if node["NodeID"] == self.ids[name])


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    os.environ.update(QUICK)  # read by the raylets; a dead node is noticed in a second
    cluster = Cluster(initialize_head=True, head_node_args={**LEAN, **NODES["head"]})
    for name in ("a", "b", "gpu"):
        cluster.add_node(**LEAN, **NODES[name])
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False, namespace="tests")
    by_zone = {node["Labels"]["zone"]: node["NodeID"] for node in unpatched.nodes()}
    yield World(cluster, {"head": by_zone["head"], "a": by_zone["a"], "b": by_zone["b"], "gpu": by_zone["g"]})
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def stock(world: World) -> Iterator[World]:
    """A driver that is not attached, for as long as the test runs."""
    remora.detach()
    yield world
    remora.attach()


@pytest.fixture(scope="session")
def where(world: World) -> Any:
    """A task that says on which node it ran."""

    def where(seconds: float = 0.0) -> str:
        time.sleep(seconds)
        return str(ray.get_runtime_context().get_node_id())

    return ray.remote(where)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Say with every failure what the controller knew then: what fails once in many runs is not seen again soon."""
    report = yield
    if report.failed and ray.is_initialized():
        report.sections.append(("the controller", _told_by_the_controller()))
    return report


def _told_by_the_controller() -> str:
    try:
        status = remora.status()
        nodes = [{name: node.get(name) for name in ("node_id", "labels", "taints", "used")} for node in status["nodes"]]
        return pprint.pformat({"status": dict(status, nodes=nodes), "events": remora.events()[-60:]}, width=200)
    except Exception as error:  # noqa: BLE001 - this is for words only: the failure itself is what counts
        return f"it could not be asked: {error!r}"


def few(names: Iterable[str], *kept: str) -> list[Any]:
    """Parameters that are all alike: these few are tried every time, the others with the deep tests."""
    return [pytest.param(name, marks=() if name in kept else pytest.mark.deep) for name in names]


def eventually(check: Callable[[], Any], timeout: float = 60.0) -> Any:
    """The first true answer; the cluster tells nobody, so it has to be asked."""
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return answer


def waits(ref: Any, seconds: float = 0.6) -> bool:
    """Whether it is still not done after that long: for things that must not happen there is nothing to await.

    A worker may take longer than that to start. So where it matters, something that may run there is submitted after it and
    awaited first: by then it would have run too.
    """
    return not ray.wait([ref], timeout=seconds)[0]


def run_driver(world: World, code: str, **environment: str) -> subprocess.Popen[str]:
    """Another driver, in a process of its own."""
    script = f"import ray\naddress = {world.cluster.address!r}\n" + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def line_of(driver: subprocess.Popen[str], timeout: float = 60.0) -> str:
    """The next line that a driver prints."""
    assert driver.stdout is not None
    ready, _, _ = select.select([driver.stdout], [], [], timeout)
    if not ready:
        driver.kill()
    return driver.stdout.readline()
