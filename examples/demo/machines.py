"""A Ray with autoscaler v2 whose machines are processes on this one: they come when they are asked for, and end when idle.

Ray's own ``AutoscalingCluster`` reads a file that is not in its wheel, and begins with ``ray stop --force``, which would end
every Ray here. Only what was started here is ended, by its process id.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.cluster_utils import Cluster

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"

ENVIRONMENT = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}


def cluster_file(
    types: Mapping[str, Mapping[str, Any]], address: str, provider: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """What ``ray up`` would be given. The provider's type is "external", because "fake_multinode" needs the file that is not in
    the wheel."""
    return {
        "cluster_name": "fake",
        "max_workers": 6,
        "idle_timeout_minutes": 0.15,
        "upscaling_speed": 10,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": FAKE_HEAD_NODE_ID,
            "gcs_address": address,  # without it the machines join whatever listens on Ray's usual port
            **(provider or {}),
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
def growing_ray(
    folder: Path,
    types: Mapping[str, Mapping[str, Any]],
    *,
    labels: Mapping[str, str] | None = None,
    provider: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    **more: Any,
) -> Iterator[tuple[str, Path]]:
    """A head without CPUs, with these labels, and an autoscaler that looks once a second; yields its address and file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / "config.json"
    address = f"{ray.util.get_node_ip_address()}:{port}"
    file.write_text(json.dumps(cluster_file(types, address, provider, **more)), encoding="ascii")
    head = {
        "num_cpus": 0,
        "include_dashboard": False,
        "autoscaling_config": str(file),
        "gcs_server_port": port,
        "labels": dict(labels or {}),
    }
    with _environment({**ENVIRONMENT, **(environ or {})}):
        cluster = Cluster(initialize_head=True, head_node_args=head)
    monitor = cluster.head_node.all_processes["monitor"][0].process
    try:
        yield cluster.address, file
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        started = descendants(monitor.pid)
        cluster.shutdown()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Every process that a process has started, and those that these have."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for file in children for child in file.read_text(encoding="ascii").split()]
    return [each for child in direct for each in (child, *descendants(child))]


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What is started meanwhile has these in its environment."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
