"""``placement_group`` with our options: the controller says which of its choices to create, and where its tokens are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ray._private.auto_init_hook import auto_init_ray
from ray.util.placement_group import PlacementGroup

from remora.ray_seam import within
from remora.ray_seam.late import LateGroup, create_later, late_key
from remora.ray_seam.layer import Layer
from remora.ray_seam.tickets import Ticket
from remora.wire.groups import class_of
from remora.wire.options import rewrite_group

_NEW_OPTIONS = ("bundle_label_selector", "tolerations", "fallback_strategy")

Creating = Callable[[list[Ticket]], AbstractContextManager[None]]


def create_group(
    layer: Layer, stock: Any, creating: Creating, bundles: Any, strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The group; or, while it fits nowhere, the handle of one to be. ``creating`` says what each bundle takes."""
    options = {name: kwargs.pop(name, None) for name in _NEW_OPTIONS}
    auto_init_ray()
    request = replace(rewrite_group(bundles, strategy, options, layer.defaults), cluster=within.current())

    # With a topology Ray wants no strategy beside it.
    wanted = None if kwargs.get("topology_strategy") is not None else strategy or "PACK"

    def attempt() -> Any:
        """The group, or why there is none yet."""
        offer = layer.offer_group(request)
        if offer["option"] is None:
            return offer
        chosen = request.options[offer["option"]]
        with creating([Ticket(spec.class_id, spec) for spec in (class_of(bundle.nodes) for bundle in chosen)]):
            return stock([bundle.resources.to_dict() for bundle in chosen], wanted, *args, **kwargs)

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
