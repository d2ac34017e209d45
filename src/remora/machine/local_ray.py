"""A Ray of several nodes on this machine: start it, wait until every node is alive, stop exactly that."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from remora.errors import InvalidInputError, RemoraError
from remora.machine import state
from remora.machine.nodes_file import LocalNode
from remora.machine.processes import Session, boot_id, process, stop
from remora.machine.starting import ray_command
from remora.machine.state import AUTH_MODE, LocalCluster, StartedNode

Alive = Callable[[str], Mapping[str, str]]
"""Asks a GCS for its living nodes: name to id. Called only when something listens at the address."""
Tell = Callable[[str], None]

START_SECONDS = 120.0
_DASHBOARD_NEEDS = ("aiohttp", "aiohttp_cors", "opencensus", "opentelemetry", "prometheus_client", "pydantic")
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 20

_COMMON = ("--block", "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0")
# They would speak of the machine that this command runs on, and there would be one answer for all nodes.
_NOT_FOR_NODES = (
    "RAY_ADDRESS",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_RESOURCES",
    "RAY_NODE_TYPE_NAME",
    "RAY_NODE_MARKET_TYPE",
    "RAY_NODE_ZONE",
    "RAY_NODE_REGION",
)
_FOR_NODES = {
    "PYTHONUNBUFFERED": "1",
    # A dead raylet is noticed in two seconds; one that is only slow is left in peace.
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "3",
    # `remora down` means it: no half minute of draining.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
PAGE_PORT = 8270


Page = Callable[[int, str], Sequence[str]]
"""The command that serves the page of the cluster at an address, over a socket that is bound already."""


def up(
    nodes: Sequence[LocalNode], environ: Mapping[str, str], alive: Alive, tell: Tell, page: Page | None = None
) -> tuple[LocalCluster, dict[str, str]]:
    """Start the nodes and wait for them, then the page. Returns the cluster and the nodes' ids; when it fails, nothing stays
    behind."""
    folder = state.home(environ)
    with state.alone(folder):
        before = state.load(folder)
        if before is not None:
            if before.is_alive():
                raise InvalidInputError(
                    f"a cluster of 'remora up' runs already, at {before.address}: use it, or stop it first with 'remora down'"
                )
            _forget(folder, before)
        return _Start(nodes, folder, environ, alive, tell, page).run()


def down(environ: Mapping[str, str], tell: Tell) -> LocalCluster | None:
    """Stop what ``up`` started, and nothing else; None when there is nothing."""
    folder = state.home(environ)
    with state.alone(folder):
        cluster = state.load(folder)
        if cluster is None:
            return None
        was_alive = cluster.is_alive()
        if was_alive:
            tell(f"stopping {len(cluster.nodes)} nodes at {cluster.address}")
        _stop(cluster)
        _forget(folder, cluster)
        return cluster if was_alive else None


class _Start:
    """One attempt; what it started is on disk before the next step is taken."""

    def __init__(
        self,
        nodes: Sequence[LocalNode],
        folder: Path,
        environ: Mapping[str, str],
        alive: Alive,
        tell: Tell,
        page: Page | None,
    ) -> None:
        self._page = page
        self._nodes = nodes
        self._folder = folder
        self._environ = node_environment(environ)
        self._alive = alive
        self._tell = tell
        self._began = time.monotonic()
        self._known: dict[str, str] = {}
        port, self._client_port = _free_ports(2)
        # In /tmp, whatever TMPDIR says: the path of a socket may have 107 characters, and Ray adds 70 of its own.
        temporary = tempfile.mkdtemp(prefix="remora-", dir="/tmp")
        self._cluster = LocalCluster(f"127.0.0.1:{port}", temporary, boot_id(), self._environ.get(AUTH_MODE, ""))
        self._head = (
            "--head",
            f"--port={port}",
            f"--ray-client-server-port={self._client_port}",
            f"--include-dashboard={str(has_dashboard()).lower()}",
            "--disable-usage-stats",
        )

    def run(self) -> tuple[LocalCluster, dict[str, str]]:
        try:
            state.save(self._folder, self._cluster)
            self._tell(f"starting {len(self._nodes)} nodes")
            self._launch(self._nodes[0], self._head)
            self._await(1)
            for node in self._nodes[1:]:
                self._launch(node, (f"--address={self._cluster.address}",))
            self._await(len(self._nodes))
            if self._page is not None:
                self._serve(self._page)
            self._cluster = self._cluster.with_members()
            state.save(self._folder, self._cluster)
        except BaseException as error:
            self._tell("stopping what was started")
            _stop(self._cluster)
            _forget(self._folder, self._cluster, keep=isinstance(error, RemoraError))
            raise
        return self._cluster, {node.name: self._known[node.name] for node in self._nodes}

    def _launch(self, node: LocalNode, arguments: Sequence[str]) -> None:
        number = len(self._cluster.nodes)
        log = self._folder / "logs" / f"node-{number}.log"
        log.parent.mkdir(exist_ok=True)
        # A folder each: nodes that start at once in one would choose the same names for their sockets.
        folder = f"--temp-dir={self._cluster.folder}/{number}"
        command = [*ray_command(), "start", *arguments, folder, *_COMMON, *node.arguments()]
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environ,
                cwd="/",
                start_new_session=True,
            )
        leader = process(child.pid)
        if leader is None:
            raise self._failed(node.name, log)
        self._cluster = self._cluster.with_node(StartedNode(node.name, Session(leader), str(log)))
        state.save(self._folder, self._cluster)

    def _serve(self, page: Page) -> None:
        """Start the page. Whoever opens it before it serves waits in the line of its socket."""
        log = self._folder / "logs" / "dashboard.log"
        with _listening(PAGE_PORT) as bound, log.open("wb") as output:
            child = subprocess.Popen(
                page(bound.fileno(), self._cluster.address),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environ,
                cwd="/",
                start_new_session=True,
                pass_fds=(bound.fileno(),),
            )
            address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        leader = process(child.pid)
        if leader is not None:
            self._cluster = self._cluster.with_dashboard(StartedNode(address, Session(leader), str(log)))
            state.save(self._folder, self._cluster)

    def _await(self, count: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            self._cluster = self._cluster.with_members()
            for node in self._cluster.nodes:
                if not node.session.leader.is_alive():
                    raise self._failed(node.name, Path(node.log))
            for name, node_id in self._ask().items():
                if name not in self._known:
                    self._known[name] = node_id
                    self._tell(f"{name} is alive ({len(self._known)}/{len(self._nodes)}, {self._seconds():.1f} s)")
            if len(self._known) >= count:
                return
            if time.monotonic() > deadline:
                late = next(node for node in self._cluster.nodes if node.name not in self._known)
                raise self._failed(late.name, Path(late.log))
            time.sleep(_POLL_SECONDS)

    def _ask(self) -> Mapping[str, str]:
        return self._alive(self._cluster.address) if _listens(self._cluster.address) else {}

    def _failed(self, name: str, log: Path) -> RemoraError:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]:
            self._tell(f"  {line}")
        also = f", and Ray's own are in {self._cluster.folder}" if _has_logs(self._cluster) else ""
        return RemoraError(f"the node {name!r} did not start in {self._seconds():.0f} s; its log is {log}{also}")

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def has_dashboard() -> bool:
    """Return whether Ray is installed with what its dashboard and job server need, as ``remora[jobs]`` does."""
    return all(importlib.util.find_spec(name) is not None for name in _DASHBOARD_NEEDS)


def node_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the nodes inherit. What the user set wins over our defaults."""
    kept = {name: value for name, value in environ.items() if name not in _NOT_FOR_NODES}
    return {**_FOR_NODES, **auth_mode(environ), **kept}


def auth_mode(environ: Mapping[str, str]) -> dict[str, str]:
    """Ray's own rule for a head, said aloud: with a token at hand authentication is on. Further nodes have to be told."""
    ready = "RAY_AUTH_TOKEN" in environ or "RAY_AUTH_TOKEN_PATH" in environ
    if AUTH_MODE not in environ and (ready or Path("~/.ray/auth_token").expanduser().exists()):
        return {AUTH_MODE: "token"}
    return {}


def _stop(cluster: LocalCluster) -> None:
    left = stop(cluster.sessions(), _STOP_SECONDS)
    if left:
        raise RemoraError(f"these processes could not be ended: {', '.join(str(each.pid) for each in left)}; try it again")


def _forget(folder: Path, cluster: LocalCluster, *, keep: bool = False) -> None:
    if not (keep and _has_logs(cluster)):
        shutil.rmtree(cluster.folder, ignore_errors=True)
    state.forget(folder)


def _has_logs(cluster: LocalCluster) -> bool:
    return any(Path(cluster.folder).glob("*"))


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on loopback: on this port, or where it is taken on any."""
    for wanted in (port, 0):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", wanted))
            found.listen(64)
        except OSError:
            found.close()
            continue
        return found
    raise RemoraError("no port of 127.0.0.1 is free for the dashboard")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; held together, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
