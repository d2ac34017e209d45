"""Calls of raylets, which Ray makes itself and has no client for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from ray._private.grpc_utils import init_grpc_channel

from remora.live.adapter import node_messages
from remora.live.adapter.gcs_calls import NODE_INFOS, GcsCalls

GIVE_UP = "/ray.rpc.NodeManagerService/CancelLeasesWithResourceShapes"

_TIMEOUT_SECONDS = 5


def give_up(calls: GcsCalls, shapes: Iterable[Mapping[str, float]]) -> None:
    """Let all raylets fail what waits with them for just these resources. One that does not answer is asked again by whoever
    still sees something waiting."""
    request = node_messages.give_up_shapes(shapes)
    with contextlib.ExitStack() as channels:
        asked = []
        for address in node_messages.addresses(calls(NODE_INFOS, node_messages.infos_of(()))):
            channel = channels.enter_context(contextlib.closing(init_grpc_channel(address)))
            asked.append(channel.unary_unary(GIVE_UP).future(request, timeout=_TIMEOUT_SECONDS))
        for each in asked:
            with contextlib.suppress(Exception):  # as gRPC's are
                each.result()
