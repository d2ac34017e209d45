"""The same as Ray's own functions with what Remora adds to them, with types: for those who check theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import ray.util
from ray.util.placement_group import PlacementGroup

from remora.errors import RemoraError
from remora.live import installed
from remora.live.inspect import infos
from remora.live.inspect.infos import VirtualClusterInfo, VirtualNodeInfo
from remora.live.inspect.narrow import viewed
from remora.wire.fences import ROOT
from remora.wire.typed_options import Condition


def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None,
    name: str = "",
    lifetime: Literal["detached"] | None = None,
    *,
    bundle_label_selector: Sequence[Mapping[str, Condition]] | None = None,
    fallback_strategy: Sequence[Mapping[str, Any]] | None = None,
    tolerations: Mapping[str, Condition] | None = None,
    topology_strategy: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
    **options: Any,
) -> PlacementGroup:
    """Create a placement group, as ``ray.util.placement_group`` does in an attached process. Return its handle at once: one
    that fits nowhere yet is created as soon as it fits. ``options`` are Ray's own."""
    _check_attached("remora.placement_group(...)")
    ours = {
        "bundle_label_selector": bundle_label_selector,
        "fallback_strategy": fallback_strategy,
        "tolerations": tolerations,
        "topology_strategy": topology_strategy,
    }
    given: dict[str, Any] = {key: value for key, value in ours.items() if value is not None}
    plain: Any = [dict(bundle) for bundle in bundles]
    return ray.util.placement_group(plain, strategy, name, lifetime, **given, **options)


def current_cluster() -> VirtualClusterInfo:
    """Return the virtual cluster that this coroutine, thread, task or actor is in; the root where it is in none."""
    _check_attached("remora.current_cluster()")
    return VirtualClusterInfo(viewed() or ROOT)


def current_node() -> VirtualNodeInfo:
    """Return the virtual node that this process is on; the physical one where it is in no virtual cluster."""
    _check_attached("remora.current_node()")
    return infos.current_node(viewed() or ROOT)


def _check_attached(what: str) -> None:
    if installed.current() is None or not ray.is_initialized():
        raise RemoraError(f"{what} needs a process that is attached: call remora.init(), or remora.attach() after ray.init()")
