"""``remora job`` against a real job server, which plain Ray does not bring: it needs ray[default]."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remora.machine.local_ray import auth_mode
from remora.machine.starting import ray_command

pytest.importorskip("aiohttp", reason="the job server is part of ray[default]")

HOLD = """
import pathlib, sys, time, ray
assert ray.get(ray.remote(lambda: 1).remote()) == 1
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""
BOTH = json.dumps({"flexible_resource_min": {"CPU": 2}})
ONE = json.dumps({"flexible_resource_min": {"CPU": 1}})


@dataclass
class Server:
    address: str
    url: str
    environ: dict[str, str]

    def remora(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "remora", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=self.environ)

    def job(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.remora("job", verb, "--address", self.url, *words)

    def read(self, *words: str) -> Any:
        address = self.url if words[0] == "job" else self.address
        done = self.remora(*words, "--json", "--address", address)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="remora-", dir="/tmp"))
    port, dashboard = _free_port(), _free_port()
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    # Jobs start whatever is called python on the path of the node.
    environ |= {**auth_mode(os.environ), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ |= {"REMORA_HOME": str(folder / "home"), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    words = ["--head", f"--port={port}", f"--dashboard-port={dashboard}", "--include-dashboard=true", "--disable-usage-stats"]
    words += ["--num-cpus=2", "--num-gpus=0", "--object-store-memory=80000000", f"--temp-dir={folder}/ray", "--block"]
    words += ["--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0"]
    with (folder / "log").open("wb") as log:
        ray = subprocess.Popen([*ray_command(), "start", *words], stdout=log, stderr=log, env=environ, start_new_session=True)
    try:
        made = Server(f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", environ)
        _eventually(lambda: ray.poll() is not None or made.job("list").returncode == 0)
        assert ray.poll() is None, (folder / "log").read_text()
        yield made
    finally:
        ray.terminate()
        ray.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_queues_for_its_cluster_and_is_stopped_and_another_runs_to_its_end(server: Server, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = ["--", "python", "-c", HOLD, str(go)]
    first = server.job("submit", "--no-wait", "--virtual-cluster", BOTH, *program).stdout.strip()
    _eventually(lambda: "ready" in server.job("logs", first).stdout)
    second = server.job("submit", "--no-wait", "--priority=3", "--submission-id=late", f"--virtual-cluster={ONE}", *program)
    assert second.stdout.strip() == "late", second.stderr
    _eventually(lambda: "position 1 in the queue" in server.job("logs", "late").stdout)
    (row,) = server.read("queue")
    assert (row["submission_id"], row["priority"], row["min"]) == ("late", 3, {"CPU": 1})
    assert row["reason"] in server.job("logs", "late").stdout
    assert server.read("job", "stop", "late")["status"] == "STOPPED"
    assert server.read("queue") == []
    assert server.job("status", first).stdout.startswith(f"{first}: RUNNING")
    go.touch()
    followed = server.job("logs", "--follow", first)
    assert (followed.returncode, followed.stderr.split(".")[0]) == (0, f"{first}: SUCCEEDED")
    _eventually(lambda: not server.read("clusters"))
    listed = {info["submission_id"]: info["status"] for info in server.read("job", "list")}
    assert (listed[first], listed["late"]) == ("SUCCEEDED", "STOPPED")


def test_what_a_job_writes_is_shown_and_its_failure_is_ours(server: Server) -> None:
    never = json.dumps({"flexible_resource_min": {"CPU": 99}})
    done = server.job("submit", "--virtual-cluster", never, "--", "python", "-c", HOLD, "x")
    assert done.returncode == 1
    assert "99 CPU" in done.stdout
    assert "Traceback" not in done.stdout
    assert "FAILED" in done.stderr


def test_a_job_that_is_not_there_is_the_users_mistake(server: Server) -> None:
    done = server.job("stop", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no job 'nobody'" in done.stderr


def test_no_server_is_said_so(server: Server) -> None:
    done = server.remora("job", "list", "--address", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no job server answers at http://127.0.0.1:1" in done.stderr


def _eventually(check: Callable[[], Any], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("", 0))
        port: int = held.getsockname()[1]
    return port
