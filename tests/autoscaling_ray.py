"""A real Ray with autoscaler v2 and machines that are processes here: what tests of growing and shrinking have in common.

Ray's ``AutoscalingCluster`` is not used: it reads a file that is not in the wheel (so does the provider type "fake_multinode",
hence "external"), and begins with ``ray stop --force``, which would end every Ray on the machine. Only what was started here is
ended, by its process id.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.cluster_utils import Cluster

import remora

TYPES: dict[str, dict[str, Any]] = {
    "web": {"resources": {"CPU": 2}, "labels": {"kind": "web"}, "max_workers": 3},
    "gpu": {
        "resources": {"CPU": 2, "GPU": 1},
        "labels": {"kind": "gpu", "taint.remora.io/gpu_node": "true"},
        "max_workers": 2,
    },
}

ROOT = Path(__file__).parents[1]
IDLE_SECONDS = 9
"""After so long Ray ends a machine that it sees idle."""

TOLERATES = {"tolerations": {"gpu_node": "exists()"}}

ENVIRONMENT = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}


@dataclass(frozen=True)
class Autoscaling:
    """A cluster that grows: the ``file`` that its autoscaler reads, and where it listens."""

    file: Path
    scarce: Path
    address: str

    def lack(self, **why: str) -> None:
        """From now on the provider has no machines of these types, and says why."""
        written = self.scarce.with_suffix(".new")
        written.write_text(json.dumps(why), encoding="utf-8")
        written.replace(self.scarce)  # the monitor may read it in this moment


def config(types: Mapping[str, Mapping[str, Any]], address: str, scarce: Path, **more: Any) -> dict[str, Any]:
    """A cluster file, as ``ray up`` has it, of machines that the fake provider starts."""
    return {
        "cluster_name": "fake",
        "max_workers": 6,
        "idle_timeout_minutes": 0.15,
        "upscaling_speed": 10,
        "provider": {
            "type": "external",
            "module": "tests.scarce_provider.ScarceProvider",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": FAKE_HEAD_NODE_ID,
            "scarce": str(scarce),
            "gcs_address": address,  # without it the fake nodes join whatever listens on Ray's usual port
        },
        "available_node_types": {
            **{name: {"node_config": {}, "min_workers": 0, **each} for name, each in types.items()},
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        **{f"{whose}_{what}": [] for whose in ("head", "worker") for what in ("setup_commands", "start_ray_commands")},
        "setup_commands": [],
        "initialization_commands": [],
        "file_mounts": {},
        "cluster_synced_files": [],
        **more,
    }


@contextlib.contextmanager
def autoscaling_cluster(
    folder: Path, types: Mapping[str, Mapping[str, Any]] = TYPES, labels: Mapping[str, str] | None = None, **more: Any
) -> Iterator[Autoscaling]:
    """A head without CPUs and with these labels, and an autoscaler that looks once a second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / "config.json"
    address, scarce = f"{ray.util.get_node_ip_address()}:{port}", folder / "scarce.json"
    file.write_text(json.dumps(config(types, address, scarce, **more)), encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # where the monitor finds the provider
        head = {
            "num_cpus": 0,
            "include_dashboard": False,
            "autoscaling_config": str(file),
            "gcs_server_port": port,
            "labels": dict(labels or {}),
        }
        cluster = Cluster(initialize_head=True, head_node_args=head)
    monitor = cluster.head_node.all_processes["monitor"][0].process
    try:
        ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)
        yield Autoscaling(file, scarce, cluster.address)
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        started = descendants(monitor.pid)
        cluster.shutdown()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for file in children for child in file.read_text(encoding="ascii").split()]
    return [each for child in direct for each in (child, *descendants(child))]


def eventually(check: Callable[[], Any], timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return answer


def kinds() -> list[str]:
    """The machines that are there, by their label."""
    return sorted(node["Labels"]["kind"] for node in ray.nodes() if node["Alive"] and "kind" in node["Labels"])


def all_kinds() -> list[str]:
    """The machines that are there, also for whoever sees only those of a virtual cluster."""
    return sorted(node["labels"]["kind"] for node in remora.status()["nodes"] if "kind" in node["labels"])


def asked() -> list[str]:
    """What the journal says of requests."""
    return [entry["text"] for entry in remora.events() if entry["kind"] == "machines" and " asked for" in entry["text"]]


def kept() -> dict[str, str]:
    """The machines that are kept, with why."""
    return {each["node_id"]: each["why"] for each in remora.status()["machines"]["kept"]}


@ray.remote(num_cpus=1)
def kind_of_node(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    here = ray.get_runtime_context().get_node_id()
    return str(next(node["Labels"]["kind"] for node in ray.nodes() if node["NodeID"] == here))


@ray.remote(num_cpus=1)
def node_id(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


class _Cat:
    def where(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


Cat: Any = ray.remote(num_cpus=1)(_Cat)
