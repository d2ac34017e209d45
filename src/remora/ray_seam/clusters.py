"""Virtual clusters as users make them: ``with VirtualCluster(...)``, and what their work takes of them."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from typing import Any

import ray
from ray.exceptions import ActorHandleNotFoundError

from remora.errors import InvalidVirtualClusterError
from remora.model.requests import plain_term
from remora.model.virtual_clusters import VNODE_LABEL, VirtualCluster
from remora.ray_seam import within
from remora.ray_seam.ray_port import RayPort
from remora.ray_seam.within import Scope
from remora.wire.classes import ClassSpec, cluster_key
from remora.wire.tokens import share_token

_POLL_SECONDS = 0.2
_TELL_SECONDS = 2.0
_FRESH_SECONDS = 20.0

_log = logging.getLogger("remora")


class VirtualClusterTimeoutError(TimeoutError):
    """The minimum of a virtual cluster was not reserved in time; its place in the queue is given back."""


_open: dict[int, Scope] = {}
_specs: dict[str, tuple[float, VirtualCluster, dict[ClassSpec, frozenset[str]]]] = {}


def enter(spec: VirtualCluster) -> VirtualCluster:
    """``with VirtualCluster(...)``: inside, everything is submitted there."""
    if id(spec) in _open:
        raise InvalidVirtualClusterError(
            f"{spec!r} is in use already: a VirtualCluster that was entered is one cluster until its `with` ends; make another "
            "VirtualCluster(...) with the same arguments"
        )
    scope = _open[id(spec)] = Scope(open_cluster(spec, within.current()), spec.cancel)
    within.enter(scope)
    return spec


def leave(spec: VirtualCluster) -> None:
    scope = _open.pop(id(spec))
    within.leave(scope)
    for made in scope.made:
        _stop(made)
    _controller().close_cluster.remote(scope.cluster_id, not scope.used)


def _stop(made: Any) -> None:
    """A task by its results, or an actor by its id."""
    if isinstance(made, ray.ActorID):
        with contextlib.suppress(ActorHandleNotFoundError):
            ray._private.worker.global_worker.core_worker.kill_actor(made, True)
    elif made:
        ray.cancel(made[0], force=True, recursive=True)


def open_cluster(spec: VirtualCluster, parent: str | None) -> str:
    """Its id, once its minimum is reserved. Says what it waits for; whoever stops waiting gives the place back."""
    context = ray.get_runtime_context()
    tolerations = [plain_term(term) for term in _tolerations().terms]
    controller = _controller()
    asked = (json.dumps(spec.to_dict()), parent, context.get_job_id(), spec.priority, tolerations, spec.idle_seconds)
    look = _ask(controller.create_cluster.remote(*asked))
    cluster_id: str = look["cluster_id"]
    began = told_at = time.monotonic()
    told = ""
    try:
        while look["state"] == "QUEUED":
            now = time.monotonic()
            if spec.timeout is not None and now - began > spec.timeout:
                raise VirtualClusterTimeoutError(
                    f"{spec!r} was not reserved within {spec.timeout:g} s: {look['reason']}. It has left the queue"
                )
            if look["reason"] != told and (now - told_at > _TELL_SECONDS or not told) and now - began > 1:
                told, told_at = look["reason"], now
                _log.warning("virtual cluster %s waits: %s", cluster_id, told)
            time.sleep(_POLL_SECONDS)
            look = _ask(controller.look_cluster.remote(cluster_id))
    except BaseException:
        _ask(controller.close_cluster.remote(cluster_id, True))
        raise
    if told:
        _log.warning("virtual cluster %s is ready after %.0f s", cluster_id, time.monotonic() - began)
    return cluster_id


def shares(cluster_id: str, spec: ClassSpec | None, resources: dict[str, float]) -> dict[str, float]:
    """The share tokens that work takes: as much as it takes of each resource, and the same of the part that it selects."""
    taken = {share_token(cluster_id, name): amount for name, amount in resources.items() if amount}
    if spec is not None and (named := _named(cluster_id, spec)):
        taken.update({share_token(spec.part_id, name): resources[name] for name in named if resources.get(name)})
    return taken


def _named(cluster_id: str, spec: ClassSpec) -> frozenset[str]:
    """The resources of the fixed-size nodes that a selector tells from the others; none where it does not."""
    if not any(choice.selector.terms for choice in spec.choices):
        return frozenset()
    known, named = _known(cluster_id)
    if spec not in named:
        named[spec] = _resources_selected(known, spec)
    return named[spec]


def _resources_selected(cluster: VirtualCluster, spec: ClassSpec) -> frozenset[str]:
    nodes = [node for nodes in cluster.fixed_size_nodes for node in nodes.nodes]
    keys = {key for node in nodes for key, _ in node.labels}
    found: set[str] = set()
    for choice in spec.choices:
        terms = [term for term in choice.selector.terms if term.key in keys]
        by_id = any(term.key == VNODE_LABEL for term in choice.selector.terms)
        for node in nodes:
            if (terms or by_id) and all(term.matches(dict(node.labels)) for term in terms):
                found |= set(node.resources)
    return frozenset(found)


def _known(cluster_id: str) -> tuple[VirtualCluster, dict[ClassSpec, frozenset[str]]]:
    """Its spec, and what was worked out about it; read again sooner than a name is used for another cluster."""
    found = _specs.get(cluster_id)
    now = time.monotonic()
    if found is None or now - found[0] > _FRESH_SECONDS:
        data = RayPort().get(cluster_key(cluster_id))
        spec = VirtualCluster.parse(json.loads(data)["spec"]) if data else VirtualCluster()
        found = _specs[cluster_id] = (now, spec, {})
    return found[1], found[2]


def _tolerations() -> Any:
    from remora.ray_seam import hooks

    installation = hooks.current()
    if installation is None:
        raise InvalidVirtualClusterError("this process is not attached: call remora.init() before `with VirtualCluster(...)`")
    return installation.layer.defaults.tolerations


def _controller() -> Any:
    from remora.ray_seam import hooks

    installation = hooks.current()
    assert installation is not None
    return installation.layer.controller()


def _ask(reference: Any) -> Any:
    from remora.ray_seam.api import ask

    return ask(reference)
