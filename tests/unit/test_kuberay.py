"""The manifest in examples/kuberay: its structure, and what is learned from it as from a RayCluster that runs."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from remora.errors import ControllerError
from remora.live.adapter.type_sources import KubeRay, find_source
from remora.machine import kubernetes

ROOT = Path(__file__).parents[2]
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "examples/kuberay/raycluster.yaml").read_text(encoding="utf-8"))

# The fields of KubeRay 1.5's RayCluster that are used here, each with its type; ``!`` marks those that have to be there.
CONTAINER = {"name!": str, "image!": str, "resources": {"limits": dict, "requests": dict}, "ports": list}
POD = {"containers!": [CONTAINER], "tolerations": list}
TEMPLATE = {"spec!": POD}
HEAD = {"rayStartParams": dict, "labels": dict, "template!": TEMPLATE}
GROUP = {
    "groupName!": str,
    "replicas": int,
    "minReplicas!": int,
    "maxReplicas!": int,
    "idleTimeoutSeconds": int,
    "priority": int,
    "rayStartParams": dict,
    "labels": dict,
    "template!": TEMPLATE,
}
OPTIONS = {"version": {"v1", "v2"}, "idleTimeoutSeconds": int, "upscalingMode": {"Default", "Aggressive", "Conservative"}}
SPEC = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": OPTIONS,
    "headGroupSpec!": HEAD,
    "workerGroupSpecs": [GROUP],
}
RAY_CLUSTER = {"apiVersion!": {"ray.io/v1"}, "kind!": {"RayCluster"}, "metadata!": {"name!": str}, "spec!": SPEC}


def wrong(value: Any, model: Any, path: str = "") -> list[str]:
    """Return where a value is not as the model says; a field that the model does not have is wrong too."""
    if isinstance(model, list):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [each for index, item in enumerate(value) for each in wrong(item, model[0], f"{path}[{index}]")]
    if isinstance(model, set):
        return [] if value in model else [f"{path} is {value!r}"]
    if isinstance(model, type):
        return [] if type(value) is model else [f"{path} is {value!r}"]
    if not isinstance(value, dict):
        return [f"{path} is no mapping"]
    fields = {name.rstrip("!"): kind for name, kind in model.items()}
    found = [f"{path}.{name} is unknown" for name in value if name not in fields]
    found += [f"{path}.{name[:-1]} is missing" for name in model if name.endswith("!") and name[:-1] not in value]
    return found + [each for name in value if name in fields for each in wrong(value[name], fields[name], f"{path}.{name}")]


def test_the_manifest_has_the_fields_that_kuberay_knows() -> None:
    assert wrong(MANIFEST, RAY_CLUSTER) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec: spec.update(enableInTreeAutoscaling="yes"), ".spec.enableInTreeAutoscaling is 'yes'"),
        (lambda spec: spec["autoscalerOptions"].update(version="v3"), ".spec.autoscalerOptions.version is 'v3'"),
        (lambda spec: spec["workerGroupSpecs"][1].pop("template"), ".spec.workerGroupSpecs[1].template is missing"),
        (lambda spec: spec["workerGroupSpecs"][0].update(label={}), ".spec.workerGroupSpecs[0].label is unknown"),
    ],
)
def test_a_manifest_that_is_wrong_is_noticed(change: Any, said: str) -> None:
    broken = copy.deepcopy(MANIFEST)
    change(broken["spec"])
    assert wrong(broken, RAY_CLUSTER) == [said]


def test_labels_are_fields_of_groups_and_kubernetes_would_take_them() -> None:
    """KubeRay refuses ``labels`` in rayStartParams, and values that Kubernetes refuses."""
    for group in (MANIFEST["spec"]["headGroupSpec"], *MANIFEST["spec"]["workerGroupSpecs"]):
        assert "labels" not in group["rayStartParams"]
        for key, value in group.get("labels", {}).items():
            assert isinstance(value, str), key
            assert len(value) <= 63


class Kubernetes:
    """An API server with one RayCluster; ``status`` and ``body`` are what it answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.status = 200
        self.body = copy.deepcopy(MANIFEST)
        self.body["metadata"]["namespace"] = "team"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(json.dumps(outer.body).encode())

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.environ = {
            "KUBERNETES_SERVICE_HOST": f"http://127.0.0.1:{self.server.server_address[1]}",
            "RAY_CLUSTER_NAME": "growing",
            "RAY_CLUSTER_NAMESPACE": "team",
        }

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    monkeypatch.setattr(kubernetes.ray_cluster, "__defaults__", (tmp_path,))
    made = Kubernetes()
    yield made
    made.close()


def test_its_groups_are_the_types(server: Kubernetes) -> None:
    types = KubeRay("growing", "team", server.environ).read()
    assert server.asked == [("/apis/ray.io/v1/namespaces/team/rayclusters/growing", "Bearer secret")]
    assert types.problems == ()
    assert [(each.name, each.least, each.most, each.cost, each.idle_seconds) for each in types] == [
        ("web", 0, 8, 0.4, 120.0),
        ("gpu", 0, 4, 2.5, 600.0),
    ]
    web, gpu = types
    assert {name: amount for name, amount in web.resources.to_dict().items() if name != "memory"} == {"CPU": 8}
    assert {name: amount for name, amount in gpu.resources.to_dict().items() if name != "memory"} == {"CPU": 8, "GPU": 1}
    assert (dict(web.taints), dict(gpu.taints)) == ({}, {"gpu_node": "true"})
    assert dict(gpu.labels)["kind"] == "gpu"


def test_a_group_that_cannot_be_understood_is_named_and_the_others_are_read(server: Kubernetes) -> None:
    server.body["spec"]["workerGroupSpecs"][1]["labels"]["remora.io/cost"] = "much"
    types = KubeRay("growing", "team", server.environ).read()
    assert [each.name for each in types] == ["web"]
    assert "gpu" in types.problems[0]
    assert "much" in types.problems[0]


def test_there_is_an_autoscaler_where_the_resource_says_so(server: Kubernetes, tmp_path: Path) -> None:
    """KubeRay names cluster, namespace and group in every pod, also where nothing grows."""
    assert isinstance(find_source("a:1", server.environ, tmp_path), KubeRay)
    server.body["spec"]["enableInTreeAutoscaling"] = False
    assert find_source("a:1", server.environ, tmp_path) is None
    server.status = 403  # a head without an autoscaler may not read it
    assert find_source("a:1", server.environ, tmp_path) is None


@pytest.mark.parametrize(
    ("status", "said"), [(403, "the role needs get on rayclusters"), (404, "none of that name"), (500, "500")]
)
def test_what_cannot_be_read_is_told_at_once_with_the_reason(server: Kubernetes, status: int, said: str) -> None:
    server.status = status
    with pytest.raises(ControllerError, match=said):
        KubeRay("growing", "team", server.environ).read()
    assert len(server.asked) == 1, "it is tried again with the next look, not now"
