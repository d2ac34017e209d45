"""What GCS says about all nodes, found the long way and from another of its replies.

``remora.live.adapter.reports`` is held against it.
"""

from __future__ import annotations

from typing import Any

from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus
from ray.core.generated.gcs_service_pb2 import GetAllResourceUsageReply

from remora.port.contract import Demand, NodeView


def decode_all(usage: bytes, gcs_client: Any) -> dict[str, NodeView]:
    """Every living node by its id: where it is and its labels as the autoscaler knows them, what it has as the reply says, or
    as the autoscaler knows it where the reply does not."""
    infos = {node_id.hex(): info for node_id, info in gcs_client.get_all_node_info().items()}
    latest = {each.node_id: each for each in GetAllResourceUsageReply.FromString(usage).resource_usage_data.batch}
    found = {}
    for node in get_cluster_resource_state(gcs_client).node_states:
        node_id, now = node.node_id.hex(), latest.get(node.node_id)
        if node.status == NodeStatus.DEAD:
            continue
        total, available = node.total_resources, node.available_resources
        if now is not None and now.resources_total:
            total, available = now.resources_total, now.resources_available
        found[node_id] = NodeView(
            node_id,
            node.node_ip_address,
            dict(node.labels),
            dict(total),
            dict(available),
            infos[node_id].is_head_node,
            name=infos[node_id].node_name,
        )
    return found


def all_demands(gcs_client: Any) -> list[Demand]:
    """What waits, as the autoscaler knows it."""
    state = get_cluster_resource_state(gcs_client)
    waiting = [Demand(dict(each.request.resources_bundle), each.count) for each in state.pending_resource_requests]
    return [*waiting, *map(_group, state.pending_gang_resource_requests)]


def _group(gang: Any) -> Demand:
    constraints = [constraint for request in gang.requests for constraint in request.placement_constraints]
    strategy = "PACK"
    if any(constraint.HasField("anti_affinity") for constraint in constraints):
        strategy = "STRICT_SPREAD"
    elif any(constraint.HasField("affinity") for constraint in constraints):
        strategy = "STRICT_PACK"
    return Demand({}, 1, tuple(dict(request.resources_bundle) for request in gang.requests), strategy)
