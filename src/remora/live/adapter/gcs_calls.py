"""Calls of GCS itself, for what Ray's own client does not have or decodes whole: what goes there and what comes are bytes."""

from __future__ import annotations

from typing import Any

from ray._private.gcs_utils import create_gcs_channel

KILL_ACTOR = "/ray.rpc.ActorInfoGcsService/KillActorViaGcs"
CREATE_GROUP = "/ray.rpc.PlacementGroupInfoGcsService/CreatePlacementGroup"
REMOVE_GROUP = "/ray.rpc.PlacementGroupInfoGcsService/RemovePlacementGroup"
TASK_EVENTS = "/ray.rpc.TaskInfoGcsService/GetTaskEvents"
NODE_INFOS = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
CLUSTER_STATUS = "/ray.rpc.autoscaler.AutoscalerStateService/GetClusterStatus"
RESOURCE_USAGE = "/ray.rpc.NodeResourceInfoGcsService/GetAllResourceUsage"

_TIMEOUT_SECONDS = 10


class GcsCalls:
    """One connection, which proves to be its user as Ray does, and comes back by itself when GCS does."""

    def __init__(self, address: str) -> None:
        self._channel: Any = create_gcs_channel(address)

    def __call__(self, method: str, request: bytes) -> bytes:
        reply: bytes = self._channel.unary_unary(method)(request, timeout=_TIMEOUT_SECONDS, wait_for_ready=True)
        return reply
