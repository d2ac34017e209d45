"""``placement_group`` with our options: the controller says which of its choices to create, and where its tokens are."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ray._private.auto_init_hook import auto_init_ray
from ray.util.placement_group import PlacementGroup

from remora.errors import InvalidStrategyError
from remora.model.groups import Bundle, GroupRequest
from remora.ray_seam import within
from remora.ray_seam.late import LOOK_SECONDS, LateGroup, Offer, create_later, late_key
from remora.ray_seam.layer import Layer
from remora.ray_seam.tickets import Making, Ticket
from remora.wire.groups import class_of
from remora.wire.options import rewrite_group

if TYPE_CHECKING:
    from remora.ray_seam.proxy import CoreWorkerProxy

_NEW_OPTIONS = ("bundle_label_selector", "tolerations", "fallback_strategy")
_REFUSED: Offer = {"reason": "Ray has no room for it on the nodes that were chosen; it is tried again", "suggestions": ()}

Create = Callable[[tuple[Bundle, ...]], PlacementGroup]


def create_group(
    layer: Layer,
    stock: Any,
    core_worker: CoreWorkerProxy,
    bundles: Any,
    strategy: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The group; or, while it fits nowhere, the handle of one to be."""
    options = {name: kwargs.pop(name, None) for name in _NEW_OPTIONS}
    auto_init_ray()
    cluster_id = within.current()
    request = replace(rewrite_group(bundles, strategy, options, layer.defaults), cluster=cluster_id)
    topology = kwargs.get("topology_strategy")
    if topology is not None and cluster_id is not None:
        raise InvalidStrategyError(
            f"topology_strategy={topology!r} in a virtual cluster: where a group lies there is chosen by its strategy and "
            "selectors; for example bundle_label_selector=[{'rack': 'r1'}] * 2"
        )
    wanted = None if topology is not None else strategy or "PACK"  # with a topology Ray wants no strategy beside it

    def create(chosen: tuple[Bundle, ...]) -> PlacementGroup:
        return stock([bundle.resources.to_dict() for bundle in chosen], wanted, *args, **kwargs)

    attempt = functools.partial(_attempt, layer, core_worker, request, create)
    made = attempt()
    if isinstance(made, PlacementGroup):
        return made
    validate = sys.modules["ray.util.placement_group"].validate_placement_group
    validate(bundles=bundles, strategy=wanted, lifetime=kwargs.get("lifetime"))
    group = LateGroup(late_key(), [dict(bundle) for bundle in bundles])
    what = f"placement group {kwargs.get('name') or (args[0] if args else '')}".rstrip()
    group.why = made
    create_later(group, attempt, what, layer.stopped)
    return group


def create_when_it_fits(layer: Layer, core_worker: CoreWorkerProxy, bundles: Any, strategy: str, create: Any) -> Any:
    """The id of a group in a virtual cluster, for whoever takes no handle of one to be: it waits."""
    request = replace(rewrite_group(bundles, strategy, {}, layer.defaults), cluster=within.current())
    while True:
        made = _attempt(layer, core_worker, request, lambda _: PlacementGroup(create()))
        if isinstance(made, PlacementGroup):
            return made.id
        time.sleep(LOOK_SECONDS)


def _attempt(layer: Layer, core_worker: CoreWorkerProxy, request: GroupRequest, create: Create) -> PlacementGroup | Offer:
    """The group, or why there is none yet."""
    offer = layer.offer_group(request)
    if offer["option"] is None:
        return offer
    chosen = request.options[offer["option"]]
    tickets = [Ticket(spec.class_id, spec) for spec in (class_of(bundle.nodes) for bundle in chosen)]
    berth: str | None = offer["berth"]
    try:
        with core_worker.creating(Making(tickets, berth)):
            group = create(chosen)
    except BaseException:
        if berth is not None:
            layer.leave_berth(berth)
        raise
    return group if berth is None or layer.take_berth(berth, group.id) else _REFUSED
