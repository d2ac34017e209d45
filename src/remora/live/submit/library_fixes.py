"""What Ray's libraries assume of a cluster, where that is a virtual one.

Ray Data and Train keep one named, detached actor for each Ray cluster that knows its nodes and asks its autoscaler for more.
The name would lead from one virtual cluster into another; so each has one of its own, which ends with its job. And they pin
actors without any resources to the node of their driver or, as Serve does, to the head, which may be none of the cluster's:
those run there without a token.
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


def loosened(strategy: Any) -> Any:
    """Where an actor goes that takes nothing and was pinned to a node whose taints it does not tolerate: if that is only the
    node of this process, it is there if its cluster is."""
    is_here = strategy.node_id == ray.get_runtime_context().get_node_id()
    return NodeAffinitySchedulingStrategy(strategy.node_id, soft=True) if is_here else strategy
