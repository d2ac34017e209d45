"""A real Ray with autoscaler v2 and machines that are processes here: what tests of growing and shrinking have in common."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from examples.demo.machines import cluster_file, growing_ray

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
    """A cluster file of machines that may run out."""
    return cluster_file(types, address, _provider(scarce), **more)


def _provider(scarce: Path) -> dict[str, str]:
    return {"module": "tests.scarce_provider.ScarceProvider", "scarce": str(scarce)}


@contextlib.contextmanager
def autoscaling_cluster(
    folder: Path, types: Mapping[str, Mapping[str, Any]] = TYPES, labels: Mapping[str, str] | None = None, **more: Any
) -> Iterator[Autoscaling]:
    """A head without CPUs and with these labels, and an autoscaler that looks once a second."""
    scarce = folder / "scarce.json"
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}  # for the provider
    with growing_ray(folder, types, labels=labels, provider=_provider(scarce), environ=path, **more) as (address, file):
        ray.init(address, logging_level="ERROR", log_to_driver=False)
        yield Autoscaling(file, scarce, address)


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
