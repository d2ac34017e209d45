"""``remora up``, ``start`` and ``down`` as people type them, with a real Ray. Never run beside another cluster's tests.

One cluster for all: a file of three nodes (two of them start at once), one more that joins by ``remora start``, and then
everything is stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remora.machine import state
from remora.machine.local_ray import auth_mode
from remora.machine.processes import Process, process

NODES = """
nodes:
  - {name: first, resources: {CPU: 1}, labels: {zone: a}}
  - {name: gpu, resources: {CPU: 1, GPU: 1, rare: 2}, labels: {zone: b, ray.io/market-type: spot}, taints: {gpu_node: "true"}}
  - {name: cards, resources: {CPU: 1, GPU: 1}}
rare_resource_isolation: [rare, gpu]
"""

ASK = """
import json, ray
ray.init({address!r}, logging_level="ERROR", log_to_driver=False)
nodes = [node for node in ray.nodes() if node["Alive"]]
print(json.dumps({{n["NodeName"]: {{"labels": n["Labels"], "resources": n["Resources"]}} for n in nodes}}))
"""


@dataclass
class Machine:
    """A home of its own for the state, so that a cluster of the developer stays out of it."""

    folder: Path

    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        return {**kept, "REMORA_HOME": str(self.folder), "REMORA_METADATA": "off"}

    def remora(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from remora.cli.main import run; run()", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=self.environ())

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from remora.cli.main import run; run()", *words]
        environ = {**self.environ(), **auth_mode(os.environ), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
        with (self.folder / "start.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)

    def nodes(self, address: str) -> dict[str, Any]:
        environ = {**self.environ(), **auth_mode(os.environ)}
        done = subprocess.run(
            [sys.executable, "-c", ASK.format(address=address)],
            capture_output=True,
            text=True,
            timeout=60,
            env=environ,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("home"))
    yield made
    made.remora("down")


@pytest.fixture(scope="module")
def started(machine: Machine) -> dict[str, Any]:
    path = machine.folder / "nodes.yaml"
    path.write_text(NODES, encoding="utf-8")
    done = machine.remora("up", "--nodes", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert "first is alive (1/3" in done.stderr
    assert "is alive (3/3" in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_nodes_are_there_with_labels_taints_and_resources(machine: Machine, started: dict[str, Any]) -> None:
    seen = machine.nodes(started["address"])
    assert sorted(seen) == ["cards", "first", "gpu"]
    head, gpu = seen["first"], seen["gpu"]
    assert {node["name"]: node["node_id"] for node in started["nodes"]} == {
        name: node["labels"].pop("ray.io/node-id") for name, node in seen.items()
    }
    rare = {f"rare-resource.remora.io/{name}": "true" for name in ("rare", "gpu")}
    assert head["labels"] == {"zone": "a", "ray.io/node-group": "head", **rare}
    assert gpu["labels"] == {
        "zone": "b",
        "ray.io/node-group": "gpu",
        "ray.io/market-type": "spot",
        "taint.remora.io/gpu_node": "true",
    }
    assert {name: gpu["resources"][name] for name in ("CPU", "GPU", "rare")} == {"CPU": 1, "GPU": 1, "rare": 2}
    assert head["resources"]["CPU"] == 1
    assert "GPU" not in head["resources"]


def test_commands_find_the_cluster_by_themselves_and_looking_starts_nothing(machine: Machine, started: dict[str, Any]) -> None:
    where = f"the Ray at {started['address']} (from 'remora up')"
    for verb in (["status"], ["clusters"], ["explain", "x"]):
        looked = machine.remora(*verb, "--json")
        assert (looked.returncode, f"there is no Remora in {where}, and looking starts none" in looked.stderr) == (3, True)
    changed = machine.remora("label", "first", "seen=yes")  # by the name that the file gives it
    assert (changed.returncode, changed.stdout.splitlines()[0]) == (0, where.removeprefix("the ")), changed.stderr
    done = machine.remora("status", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ray"] == {"address": started["address"], "from": "from 'remora up'"}
    found = {node["node_id"]: node["taints"] for node in json.loads(done.stdout)["nodes"]}
    by_name = {node["name"]: found[node["node_id"]] for node in started["nodes"]}
    assert (by_name["first"], by_name["gpu"]["gpu_node"]) == ({}, "true")


def test_a_program_attaches_at_the_address_that_up_printed(machine: Machine, started: dict[str, Any]) -> None:
    code = f"import remora; remora.init({started['address']!r}, logging_level='ERROR'); import ray; print(len(ray.nodes()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=machine.environ(), check=False
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_gpus_are_kept_for_those_who_ask_for_them(machine: Machine, started: dict[str, Any]) -> None:
    code = f"""
        import json, ray, remora
        remora.init({started["address"]!r}, logging_level="ERROR", log_to_driver=False)

        class Sitter:
            def where(self):
                return ray.get_runtime_context().get_node_id()

        def where():
            return ray.get_runtime_context().get_node_id()

        task, actor = ray.remote(where), ray.remote(Sitter)
        plain = [task.remote() for _ in range(8)] + [actor.remote().where.remote() for _ in range(3)]
        asking = [task.options(num_gpus=0.5).remote(), actor.options(num_gpus=0.5).remote().where.remote()]
        names = {{node["NodeID"]: node["NodeName"] for node in ray.nodes()}}
        print(json.dumps([sorted({{names[found] for found in ray.get(refs, timeout=60)}}) for refs in (plain, asking)]))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env=machine.environ(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["first"], ["cards"]]  # the node gpu has a taint of its own besides


def test_a_second_cluster_is_refused(machine: Machine, started: dict[str, Any]) -> None:
    done = machine.remora("up")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stop it first with 'remora down'" in done.stderr


def test_a_node_joins_by_remora_start_and_leaves_by_a_signal(machine: Machine, started: dict[str, Any]) -> None:
    words = ["--taints", '{"memory":"low"}', "--labels", "zone=c", "--num-cpus=1", "--num-gpus=0", "--node-name=late"]
    ports = ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0", "--object-store-memory=80000000"]
    late = machine.popen("start", f"--address={started['address']}", *words, *ports, "--block")
    try:
        deadline = time.monotonic() + 40
        while "late" not in (seen := machine.nodes(started["address"])):
            assert late.poll() is None, (machine.folder / "start.log").read_text()
            assert time.monotonic() < deadline
        labels = seen["late"]["labels"]
        assert (labels["taint.remora.io/memory"], labels["zone"]) == ("low", "c")
        assert labels.get("ray.io/accelerator-type", "") == ""
    finally:
        late.terminate()
        late.wait(20)


def test_down_stops_all_that_up_started_and_nothing_else(machine: Machine, started: dict[str, Any]) -> None:
    cluster = state.load(machine.folder)
    assert cluster is not None
    running = [member for session in cluster.sessions() for member in session.living()]
    assert len(running) > 8
    own = process(os.getpid())
    done = machine.remora("down", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"stopped": ["first", "gpu", "cards"]}), done.stderr
    assert [member for member in running if member.is_alive()] == []
    assert not Path(cluster.folder).exists()
    assert isinstance(own, Process)
    assert own.is_alive()
    again = machine.remora("down")
    assert (again.returncode, again.stdout) == (0, "nothing runs that 'remora up' started\n")
