"""The default labels of a node: what the user did not say and Ray does not find out by itself is filled in here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from remora.machine.label_keys import ACCELERATOR_TYPE, DEFAULT_KEYS, MARKET_TYPE, NODE_GROUP, ON_DEMAND, SPOT, ZONE

# Ray turns these into labels itself, and lets RAY_OVERRIDE_LABELS win over every flag.
_RAY_SETS = {"RAY_NODE_TYPE_NAME": NODE_GROUP, "RAY_NODE_MARKET_TYPE": MARKET_TYPE, "RAY_NODE_ZONE": ZONE}
_RAY_OVERRIDES = "RAY_OVERRIDE_LABELS"

_KUBERNETES = {
    "topology.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "cloud.google.com/gke-spot": MARKET_TYPE,
    "cloud.google.com/gke-preemptible": MARKET_TYPE,
    "cloud.google.com/gke-provisioning": MARKET_TYPE,
    "eks.amazonaws.com/capacityType": MARKET_TYPE,
    "karpenter.sh/capacity-type": MARKET_TYPE,
    "kubernetes.azure.com/scalesetpriority": MARKET_TYPE,
    "ray.io/group": NODE_GROUP,
}
_MARKETS = {
    "true": SPOT,
    "spot": SPOT,
    "preemptible": SPOT,
    "false": ON_DEMAND,
    "standard": ON_DEMAND,
    "on_demand": ON_DEMAND,
    "on-demand": ON_DEMAND,
    "reserved": ON_DEMAND,
    "regular": ON_DEMAND,
}

# Where a device of any kind that Ray knows would show. Too many is harmless: the label is then left to Ray.
_DEVICES = (
    "nvidia*",
    "dxg",
    "kfd",
    "dri/renderD*",
    "accel*",
    "vfio/[0-9]*",
    "davinci[0-9]*",
    "neuron*",
    "hl[0-9]*",
    "rbln*",
    "aries[0-9]*",
    "regulus-npu*",
    "tenstorrent/*",
    "mxc*",
    "rngd*",
)
_ACCELERATORS = ("GPU", "TPU", "NPU", "HPU", "neuron_cores", "RBLN", "FURIOSA", "MBLT")

Ask = Callable[[Iterable[str]], Mapping[str, str]]


def default_labels(
    given: Mapping[str, str],
    arguments: Sequence[str],
    environ: Mapping[str, str],
    ask: Ask,
    devices: Path = Path("/dev"),
) -> dict[str, str]:
    """The default labels to add to ``given``. The cloud is asked only for what nothing nearer knows."""
    missing = set(DEFAULT_KEYS) - given.keys() - set_by_ray(environ)
    known = from_kubernetes(given)
    if is_head(arguments):
        known[NODE_GROUP] = "head"
    if ACCELERATOR_TYPE in missing and is_cpu_only(arguments, environ, devices):
        known[ACCELERATOR_TYPE] = ""
    unknown = (missing & {MARKET_TYPE, ZONE}) - known.keys()
    if unknown:
        known.update(ask(unknown))
    return {key: known[key] for key in DEFAULT_KEYS if key in missing and key in known}


def set_by_ray(environ: Mapping[str, str]) -> set[str]:
    """The labels that Ray takes from the environment itself (KubeRay and Ray's autoscaler set it)."""
    found = {key for variable, key in _RAY_SETS.items() if environ.get(variable)}
    try:
        overrides = json.loads(environ.get(_RAY_OVERRIDES) or "{}")
    except (ValueError, RecursionError):
        return found
    return found | set(overrides) if isinstance(overrides, dict) else found


def from_kubernetes(labels: Mapping[str, str]) -> dict[str, str]:
    """Default labels out of the labels of a pod or of its Kubernetes node (GKE, EKS, AKS, Karpenter, KubeRay)."""
    found: dict[str, str] = {}
    for source, key in _KUBERNETES.items():
        value = labels.get(source, "")
        if key == MARKET_TYPE:
            value = _MARKETS.get(value.lower(), "")
        if value:
            found.setdefault(key, value)
    return found


def is_head(arguments: Sequence[str]) -> bool:
    return "--head" in arguments


def is_cpu_only(arguments: Sequence[str], environ: Mapping[str, str], devices: Path) -> bool:
    """Whether it is sure that Ray will find no accelerator, so that an empty type does not cover a real one."""
    if value_of(arguments, "--num-gpus") not in (None, "0"):
        return False
    resources = (value_of(arguments, "--resources") or "") + environ.get("RAY_OVERRIDE_RESOURCES", "")
    if any(f'"{name}"' in resources for name in _ACCELERATORS):
        return False
    return not any(True for pattern in _DEVICES for _ in devices.glob(pattern))


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option of ``ray start``; the last one counts."""
    found = None
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == option:
            found = following
        elif argument.startswith(f"{option}="):
            found = argument.removeprefix(f"{option}=")
    return found
