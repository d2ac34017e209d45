"""A placement group as it travels: its options in order, each a list of bundles with the class of nodes each may lie on."""

from __future__ import annotations

import json
from typing import Any

from remora.model.groups import Bundle, GroupRequest
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.wire.classes import ClassSpec, choice_from
from remora.wire.tokens import GROUPS


def encode_group(request: GroupRequest) -> bytes:
    options = [[[dict(bundle.resources), bundle.nodes.canonical()] for bundle in option] for option in request.options]
    body: dict[str, Any] = {"strategy": request.strategy, "options": options, "cluster": request.cluster}
    if request.topologies:
        body["topologies"] = request.topologies
    return json.dumps(body, separators=(",", ":")).encode()


def decode_group(data: bytes) -> GroupRequest:
    body = json.loads(data)
    options = tuple(
        tuple(Bundle(Resources(resources), choice_from(*nodes)) for resources, nodes in option) for option in body["options"]
    )
    topologies = tuple(tuple((label, how) for label, how in levels) for levels in body.get("topologies", ()))
    return GroupRequest(options, body["strategy"], cluster=body["cluster"], topologies=topologies)


def class_of(nodes: NodeClass) -> ClassSpec:
    """The class whose token a bundle takes; in a virtual cluster it has a token of its own."""
    return ClassSpec((nodes,), takers=GROUPS)
