"""What Ray's autoscaler (v2, with its fake nodes on this machine) does for the design, and what it does not. ``make soak``.

It needs a cluster of its own. Ray's ``AutoscalingCluster`` is not used: it reads a file that is not in the wheel (so does the
provider type "fake_multinode", hence "external"), and begins with ``ray stop --force``, which would end every Ray on the
machine. Only what was started here is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.autoscaler.sdk import request_resources
from ray.cluster_utils import Cluster

KINDS = {
    kind: {"resources": {"CPU": 1}, "labels": {"kind": kind}, "node_config": {}, "min_workers": 0, "max_workers": 2}
    for kind in ("web", "batch")
}
CONFIG: dict[str, Any] = {
    "cluster_name": "fake",
    "max_workers": 4,
    "idle_timeout_minutes": 0.05,
    "provider": {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "launch_multiple": True,
        "head_node_id": FAKE_HEAD_NODE_ID,
    },
    "available_node_types": {**KINDS, "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}},
    "head_node_type": "ray.head.default",
    "auth": {},
    **{f"{whose}_{what}": [] for whose in ("head", "worker") for what in ("setup_commands", "start_ray_commands")},
    "setup_commands": [],
    "initialization_commands": [],
    "file_mounts": {},
    "cluster_synced_files": [],
}
ENVIRONMENT = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}


@pytest.fixture(scope="module")
def autoscaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file = tmp_path_factory.mktemp("autoscaler") / "config.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Without it the fake nodes join whatever listens on Ray's usual port.
    provider = {**CONFIG["provider"], "gcs_address": f"{ray.util.get_node_ip_address()}:{port}"}
    file.write_text(json.dumps({**CONFIG, "provider": provider}), encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        head = {"num_cpus": 0, "include_dashboard": False, "autoscaling_config": str(file), "gcs_server_port": port}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()
    monitor = cluster.head_node.all_processes["monitor"][0].process
    started = descendants(monitor.pid)
    cluster.shutdown()
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for file in children for child in file.read_text(encoding="ascii").split()]
    return [each for child in direct for each in (child, *descendants(child))]


def eventually(check: Callable[[], Any], timeout: float = 90.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return answer


def kinds() -> list[str]:
    return sorted(node["Labels"]["kind"] for node in ray.nodes() if node["Alive"] and "kind" in node["Labels"])


def test_a_request_with_a_label_starts_a_node_of_that_kind_which_goes_away_when_idle(autoscaling: None) -> None:
    request_resources(bundles=[{"CPU": 1}], bundle_label_selectors=[{"kind": "web"}])
    assert eventually(kinds) == ["web"]
    request_resources(bundles=[])
    eventually(lambda: not kinds())


def test_a_demand_that_names_a_token_starts_no_node(autoscaling: None) -> None:
    # After the test above: by then this autoscaler has shown that it starts a node within this time.
    ref = ray.remote(num_cpus=1, resources={"fact/token": 0.0001})(lambda: 1).remote()
    assert not ray.wait([ref], timeout=10)[0]
    assert kinds() == []
    ray.cancel(ref)
