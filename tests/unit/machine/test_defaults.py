"""Which default labels a node gets, from where, and when the cloud is asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from remora.errors import InvalidInputError
from remora.machine.defaults import default_labels, from_kubernetes, value_of
from remora.machine.starting import ray_command, start_command, start_labels

ZONE, MARKET = "ray.io/availability-zone", "ray.io/market-type"
GROUP, ACCELERATOR = "ray.io/node-group", "ray.io/accelerator-type"
HEAD = ["--head"]
BOTH = {ZONE: "z", MARKET: "spot"}


class Cloud:
    """Remembers what it was asked for."""

    def __init__(self, **answers: str) -> None:
        self.asked: set[str] | None = None

    def __call__(self, wanted: Iterable[str]) -> dict[str, str]:
        self.asked = set(wanted)
        return {ZONE: "cloud-a", MARKET: "on-demand"}


# given labels, arguments, environment, wanted defaults, what the cloud is asked for
CASES: dict[str, tuple[dict[str, str], list[str], dict[str, str], dict[str, str], set[str] | None]] = {
    "a head in a cloud": (
        {},
        HEAD,
        {},
        {ACCELERATOR: "", MARKET: "on-demand", GROUP: "head", ZONE: "cloud-a"},
        {ZONE, MARKET},
    ),
    "a worker of no group": ({}, [], {}, {ACCELERATOR: "", MARKET: "on-demand", ZONE: "cloud-a"}, {ZONE, MARKET}),
    "all given": ({**BOTH, GROUP: "g", ACCELERATOR: "T4"}, HEAD, {}, {}, None),
    "zone given": ({ZONE: "z"}, HEAD, {}, {ACCELERATOR: "", MARKET: "on-demand", GROUP: "head"}, {MARKET}),
    "Ray knows from KubeRay": (
        {},
        HEAD,
        {"RAY_NODE_TYPE_NAME": "headgroup", "RAY_NODE_ZONE": "z", "RAY_NODE_MARKET_TYPE": "spot"},
        {ACCELERATOR: ""},
        None,
    ),
    "empty variables say nothing": (
        BOTH,
        HEAD,
        {"RAY_NODE_TYPE_NAME": "", "RAY_OVERRIDE_LABELS": ""},
        {ACCELERATOR: "", GROUP: "head"},
        None,
    ),
    "the autoscaler overrides": (BOTH, [], {"RAY_OVERRIDE_LABELS": f'{{"{ACCELERATOR}": "T4"}}'}, {}, None),
    "bad overrides are Ray's to refuse": (BOTH, [], {"RAY_OVERRIDE_LABELS": "{"}, {ACCELERATOR: ""}, None),
    "Kubernetes' labels": (
        {"topology.kubernetes.io/zone": "eu-1", "cloud.google.com/gke-spot": "true", "ray.io/group": "small"},
        [],
        {},
        {ACCELERATOR: "", ZONE: "eu-1", MARKET: "spot", GROUP: "small"},
        None,
    ),
    "the head is head, whatever its pod says": (
        {**BOTH, "ray.io/group": "hg"},
        HEAD,
        {},
        {ACCELERATOR: "", GROUP: "head"},
        None,
    ),
    "GPUs are Ray's to name": (BOTH, ["--num-gpus=1"], {}, {}, None),
    "no GPUs": (BOTH, ["--num-gpus", "0"], {}, {ACCELERATOR: ""}, None),
    "a TPU by name": (BOTH, ["--resources", '{"TPU": 4}'], {}, {}, None),
    "a TPU from the autoscaler": (BOTH, [], {"RAY_OVERRIDE_RESOURCES": '{"TPU": 4}'}, {}, None),
}


@pytest.mark.parametrize("name", CASES)
def test_default_labels(name: str, tmp_path: Path) -> None:
    given, arguments, environ, want, asked = CASES[name]
    cloud = Cloud()
    assert default_labels(given, arguments, environ, cloud, tmp_path) == want
    assert cloud.asked == asked


@pytest.mark.parametrize("device", ["nvidia0", "nvidiactl", "kfd", "accel0", "vfio/7", "davinci1", "dri/renderD128"])
def test_a_machine_with_a_device_leaves_the_type_to_ray(device: str, tmp_path: Path) -> None:
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert ACCELERATOR not in default_labels(BOTH, HEAD, {}, Cloud(), tmp_path)


KUBERNETES = [
    ("cloud.google.com/gke-spot", "true", "spot"),
    ("cloud.google.com/gke-preemptible", "true", "spot"),
    ("cloud.google.com/gke-provisioning", "standard", "on-demand"),
    ("eks.amazonaws.com/capacityType", "SPOT", "spot"),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", "on-demand"),
    ("karpenter.sh/capacity-type", "on-demand", "on-demand"),
    ("kubernetes.azure.com/scalesetpriority", "spot", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "regular", "on-demand"),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", None),
    ("node.example/spot", "true", None),
]


@pytest.mark.parametrize(("key", "value", "want"), KUBERNETES)
def test_the_market_in_kubernetes_words(key: str, value: str, want: str | None) -> None:
    assert from_kubernetes({key: value}) == ({} if want is None else {MARKET: want})


def test_the_value_of_an_option_is_the_last_one() -> None:
    arguments = ["--num-gpus", "1", "--head", "--num-gpus=2", "--num-gpus-x=3"]
    assert (value_of(arguments, "--num-gpus"), value_of(arguments, "--port")) == ("2", None)
    assert value_of(["--num-gpus"], "--num-gpus") == ""


def test_flags_win_over_the_file_and_both_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "labels.yaml"
    path.write_text(f"zone: file\ntier: file\n{ZONE}: file\ntaint.remora.io/gpu_node: file", encoding="utf-8")
    found = start_labels(
        HEAD,
        {},
        Cloud(),
        labels=["zone=flag"],
        labels_file=path,
        taints=["gpu_node=flag"],
        rare_resources=["gpu"],
        devices=tmp_path,
    )
    assert found == {
        "zone": "flag",
        "tier": "file",
        "taint.remora.io/gpu_node": "flag",
        "rare-resource.remora.io/gpu": "true",
        ZONE: "file",
        MARKET: "on-demand",
        GROUP: "head",
        ACCELERATOR: "",
    }


def test_rare_resources_are_for_the_head_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="for example remora start --head --rare-resource-isolation gpu"):
        start_labels(["--address=h:1"], {}, Cloud(), rare_resources=["gpu"], devices=tmp_path)


def test_a_mistake_is_found_before_the_cloud_is_asked(tmp_path: Path) -> None:
    cloud = Cloud()
    with pytest.raises(InvalidInputError):
        start_labels(HEAD, {}, cloud, taints=["gpu node=true"], devices=tmp_path)
    assert cloud.asked is None


def test_labels_come_before_what_the_user_wrote() -> None:
    command = start_command(["--head", "--port"], {"zone": "a", ACCELERATOR: ""})
    assert command[-4:] == ["start", f"--labels=zone=a,{ACCELERATOR}=", "--head", "--port"]
    assert start_command(["--head"], {})[-2:] == ["start", "--head"]


def test_the_ray_beside_this_python_is_used(tmp_path: Path) -> None:
    python = tmp_path / "python"
    assert ray_command(str(python)) == [str(python), "-m", "ray.scripts.scripts"]
    (tmp_path / "ray").touch()
    assert ray_command(str(python)) == [str(tmp_path / "ray")]
