"""``placement_group`` with our options. It is created beside the controller, now or when it fits; its handle is Ray's own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray import ActorID, JobID, PlacementGroupID
from ray._private.auto_init_hook import auto_init_ray
from ray.exceptions import RaySystemError
from ray.util.placement_group import PlacementGroup

from remora.live.clusters import scopes
from remora.live.link import link
from remora.model.groups import GroupRequest
from remora.model.resources import to_ray
from remora.wire.calls import MakeGroup
from remora.wire.group_plans import WAITING, GroupPlan
from remora.wire.group_requests import encode_group
from remora.wire.rewrite import rewrite_group
from remora.wire.shapes import shape_key

if TYPE_CHECKING:
    from remora.live.submit.core_call import Call
    from remora.live.submit.submitter import Submitter

_NEW_OPTIONS = ("bundle_label_selector", "tolerations", "fallback_strategy", "topology_strategy")

_asked = threading.local()
"""What was asked for of the group that this thread is about to create: Ray's own code knows nothing of it."""


def create_group(
    submitter: Submitter, stock: Any, bundles: Any, strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the group, as Ray's own function makes it."""
    options = {name: kwargs.pop(name, None) for name in _NEW_OPTIONS}
    auto_init_ray()
    request = rewrite_group(bundles, strategy, options, submitter.defaults)
    plain = [{name: to_ray(units) for name, units in bundle.resources.pairs} for bundle in request.options[0]]
    with _asking(request):
        group: PlacementGroup = stock(plain, request.strategy, *args, **kwargs)
    if len(request.options) > 1:
        group.bundle_cache = None  # which of its choices it became is looked up when somebody asks
    return group


def create(submitter: Submitter, call: Call) -> Any:
    """Return the id of a group; ``call`` is what the core worker would be told."""
    cluster_id = scopes.current()
    request: GroupRequest | None = getattr(_asked, "request", None)
    if request is None:  # code that got hold of Ray's own function before the layer was there
        options = {
            "bundle_label_selector": call["bundle_label_selector"] or None,
            "topology_strategy": call.given("topology_strategy") or None,
        }
        request = rewrite_group(call["bundles"], call["strategy"], options, submitter.defaults)
    plan = _plan(call, replace(request, cluster=cluster_id))
    made = link.ask(MakeGroup(plan))
    if made["error"]:
        raise RaySystemError(made["error"])
    what = f"placement group {plan.name}".rstrip()
    if made["state"] == WAITING:
        submitter.waiting.note_group(plan.group_id, what)
    elif made["shapes"]:  # GCS has no room for it now
        submitter.waiting.note_group(shape_key(made["shapes"]), what)
    return PlacementGroupID(bytes.fromhex(plan.group_id))


def _plan(call: Call, request: GroupRequest) -> GroupPlan:
    context = ray.get_runtime_context()
    actor_id: str = context.get_actor_id() or ""
    return GroupPlan(
        group_id=PlacementGroupID.of(JobID.from_hex(context.get_job_id())).hex(),
        group=encode_group(request),
        job_id=context.get_job_id(),
        namespace=context.namespace,
        name=call["name"] or "",
        strategy=call["strategy"],
        detached=bool(call["is_detached"]),
        soft_target=call["soft_target_node_id"] or "",
        actor_id=actor_id,
        actor_detached=bool(actor_id) and _is_detached(actor_id),
    )


def _is_detached(actor_id: str) -> bool:
    from ray._private.state import state

    from remora.live.adapter.messages import is_detached

    data = state._connect_and_get_accessor().get_actor_info(ActorID(bytes.fromhex(actor_id)))
    return bool(data) and is_detached(data)


@contextlib.contextmanager
def _asking(request: GroupRequest) -> Iterator[None]:
    _asked.request = request
    try:
        yield
    finally:
        _asked.request = None
