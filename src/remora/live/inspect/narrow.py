"""What a process is shown of the cluster: its virtual cluster if it is in one, and never a token.

``replacements`` are made by ``install``. Workers import this module when they start: what only those who look need is imported
when they do.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ray
from ray._private.state import state
from ray.runtime_context import RuntimeContext
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.live.clusters import scopes
from remora.live.link import CONTROLLER, NAMESPACE
from remora.live.on_import import WhenImported
from remora.wire.fences import ROOT
from remora.wire.tokens import without_tokens

_STATE_API = "ray.util.state.api"
_AUTOSCALER = "ray.autoscaler.sdk"

_instead: contextvars.ContextVar[str | None] = contextvars.ContextVar("remora_viewed", default=None)


def viewed() -> str | None:
    """The virtual cluster that is shown; None is the whole cluster."""
    instead = _instead.get()
    if instead is not None:
        return None if instead == ROOT else instead
    return scopes.peek() if ray.is_initialized() else None


@contextmanager
def viewing(cluster_id: str) -> Iterator[None]:
    """For somebody who looks at another cluster than the one he is in."""
    token = _instead.set(cluster_id)
    try:
        yield
    finally:
        _instead.reset(token)


def replacements() -> list[tuple[Any, str, Any]]:
    """Owner, name, what is there instead. ``ray.cluster_resources`` and its siblings all ask the one ``state``."""
    return [
        *((state, name, _narrowed(getattr(state, name))) for name in _TABLES),
        (state, "_gen_placement_group_info", _with_plain_bundles(state._gen_placement_group_info)),
        (RuntimeContext, "get_assigned_resources", _plain(RuntimeContext.get_assigned_resources)),
        (RuntimeContext, "get_node_labels", _with_labels_now(RuntimeContext.get_node_labels)),
        (RuntimeContext, "current_cluster", _current_cluster),
        (RuntimeContext, "current_node", _current_node),
        (NodeAffinitySchedulingStrategy, "__init__", _with_physical_node(NodeAffinitySchedulingStrategy.__init__)),
    ]


_TABLES = ("node_table", "total_resources_per_node", "available_resources_per_node")


def later(replace: Callable[[Any, str, Any], None]) -> Callable[[], None]:
    """Replaces what is in modules that nobody has imported yet, as soon as somebody does; what it returns ends the wait. The
    state API takes 0.2 s to import, which no worker should pay that does not ask."""

    def narrow(module: ModuleType) -> None:
        from remora.live import names
        from remora.live.inspect import state_api

        names.probe(names.STATE_API)
        replace(module.StateApiClient, "_make_http_get_request", state_api.narrowed(module.StateApiClient))

    def grow(module: ModuleType) -> None:
        from remora.live.submit import autoscaler_requests

        replace(module, "request_resources", autoscaler_requests.growing(module.request_resources))

    watches = [WhenImported(_STATE_API, narrow), WhenImported(_AUTOSCALER, grow)]

    def stop() -> None:
        for watch in watches:
            watch.stop()

    return stop


def named_actors(stock: Any) -> Any:
    """The user's named actors: the controller is none of them."""

    @functools.wraps(stock)
    def list_named_actors(all_namespaces: bool = False) -> list[Any]:
        found = stock(all_namespaces)
        if all_namespaces:
            return [each for each in found if (each["namespace"], each["name"]) != (NAMESPACE, CONTROLLER)]
        is_there = ray.get_runtime_context().namespace == NAMESPACE
        return [name for name in found if name != CONTROLLER] if is_there else list(found)

    return list_named_actors


def _narrowed(stock: Any) -> Any:
    @functools.wraps(stock)
    def table() -> Any:
        from remora.live.inspect import tree_cache

        return getattr(tree_cache, stock.__name__)(viewed())

    return table


def _plain(stock: Any) -> Any:
    @functools.wraps(stock)
    def get_assigned_resources(context: Any) -> dict[str, float]:
        return without_tokens(stock(context))

    return get_assigned_resources


def _with_plain_bundles(stock: Any) -> Any:
    @functools.wraps(stock)
    def _gen_placement_group_info(placement_group_info: Any) -> dict[str, Any]:
        info: dict[str, Any] = stock(placement_group_info)
        return {**info, "bundles": {index: without_tokens(bundle) for index, bundle in info["bundles"].items()}}

    return _gen_placement_group_info


def _with_physical_node(stock: Any) -> Any:
    """A virtual node may be named too."""

    @functools.wraps(stock)
    def create(strategy: Any, node_id: Any, *args: Any, **kwargs: Any) -> None:
        from remora.live.inspect.tree_cache import physical

        stock(strategy, physical(node_id), *args, **kwargs)

    return create


def _with_labels_now(stock: Any) -> Any:
    """The labels that hold now of the node that this process is on; in a virtual cluster with those of its part there."""

    @functools.wraps(stock)
    def get_node_labels(context: RuntimeContext) -> dict[str, str]:
        from remora.live.inspect.infos import labels_here

        return labels_here(context.get_node_id(), stock(context), viewed())

    return get_node_labels


def _current_cluster(_: RuntimeContext) -> Any:
    """The virtual cluster that this process is in, as a ``VirtualClusterInfo``; the root where it is in none."""
    from remora.live.inspect.infos import VirtualClusterInfo

    return VirtualClusterInfo(viewed() or ROOT)


def _current_node(_: RuntimeContext) -> Any:
    """The virtual node that this process is in, as a ``VirtualNodeInfo``; the physical one where it is in none."""
    from remora.live.inspect.infos import current_node

    return current_node(viewed() or ROOT)
