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


def actor_options(options: dict[str, Any], cluster_id: str) -> dict[str, Any]:
    """The options of an actor that is created in a virtual cluster."""
    if options.get("namespace") in _ONE_FOR_EACH:
        options = {**options, "namespace": f"{options['namespace']}.{cluster_id}", "lifetime": None}
    return options


def is_next_to_us(strategy: Any) -> bool:
    """Return whether this pins something to the node of this process."""
    return bool(strategy.node_id == ray.get_runtime_context().get_node_id())


def loosened(strategy: Any) -> Any:
    """Where an actor goes that takes nothing and was pinned to the node of its driver: it is there if its cluster is."""
    return NodeAffinitySchedulingStrategy(strategy.node_id, soft=True)
