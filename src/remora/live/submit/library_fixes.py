"""What Ray's libraries assume of a cluster, where that is a virtual one.

Ray Data and Train keep one named, detached actor for each Ray cluster that knows its nodes and asks its autoscaler for more.
The name would lead from one virtual cluster into another; so each has one of its own, which ends with its job. And they pin
actors without any resources to the node of their driver, which may be none of the cluster's.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_ONE_FOR_EACH = frozenset({"AutoscalingCoordinator", "AutoscalingRequester"})
"""Namespaces of such actors."""

_SIZES = ("num_cpus", "num_gpus", "memory", "resources")


def actor_options(options: dict[str, Any], cluster_id: str) -> dict[str, Any]:
    """The options of an actor that is created in a virtual cluster."""
    if options.get("namespace") in _ONE_FOR_EACH:
        options = {**options, "namespace": f"{options['namespace']}.{cluster_id}", "lifetime": None}
    strategy = options.get("scheduling_strategy")
    if isinstance(strategy, NodeAffinitySchedulingStrategy) and not strategy.soft and _is_next_to_us(strategy, options):
        # It needs nothing, so it is there if its cluster is.
        options = {**options, "scheduling_strategy": NodeAffinitySchedulingStrategy(strategy.node_id, soft=True)}
    return options


def _is_next_to_us(strategy: Any, options: dict[str, Any]) -> bool:
    """Pinned to the node of this process, and of no size."""
    if options.get("num_cpus") is None or any(options.get(name) for name in _SIZES):
        return False
    return bool(strategy.node_id == ray.get_runtime_context().get_node_id())
