"""Ray's own view of the cluster, with tokens, whatever this process shows its user (``introspection``)."""

from __future__ import annotations

import inspect
from typing import Any

import ray
from ray._private.state import GlobalState, state
from ray.runtime_context import RuntimeContext


def is_worker() -> bool:
    """Whether this process runs tasks or an actor, and is no driver."""
    return bool(ray._private.worker.global_worker.mode == ray.WORKER_MODE)


def nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = GlobalState.node_table(state)
    return found


def total_resources_per_node() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = GlobalState.total_resources_per_node(state)
    return found


def available_resources_per_node() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = GlobalState.available_resources_per_node(state)
    return found


def assigned_resources() -> dict[str, float]:
    """What the running task or actor holds."""
    found: dict[str, float] = inspect.unwrap(RuntimeContext.get_assigned_resources)(ray.get_runtime_context())
    return found
