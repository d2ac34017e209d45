"""What Ray's messages say about nodes, in our own words: as ``messages`` does for work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ray._common.network_utils import build_address
from ray.core.generated.common_pb2 import Bundle, PlacementStrategy
from ray.core.generated.gcs_pb2 import (
    GcsNodeInfo,
    PlacementGroupLoad,
    PlacementGroupTableData,
    ResourceDemand,
    ResourceLoad,
    ResourcesData,
    ResourceUsageBatchData,
)
from ray.core.generated.gcs_service_pb2 import GetAllNodeInfoReply, GetAllNodeInfoRequest, GetAllResourceUsageReply
from ray.core.generated.node_manager_pb2 import CancelLeasesWithResourceShapesRequest, GetNodeStatsReply

from remora.port.contract import Demand

_PENDING = (PlacementGroupTableData.PENDING, PlacementGroupTableData.RESCHEDULING)
_STRICT = (PlacementStrategy.STRICT_PACK, PlacementStrategy.STRICT_SPREAD)


class Node(NamedTuple):
    """What is fixed when a node registers; ``resources`` is what it has until it reports for the first time."""

    address: str
    labels: dict[str, str]
    resources: dict[str, float]
    is_head: bool
    node_type: str = ""
    name: str = ""


def infos_of(node_ids: Iterable[bytes]) -> bytes:
    """The question for living nodes; with no ids for all of them."""
    selectors = [GetAllNodeInfoRequest.NodeSelector(node_id=node_id) for node_id in node_ids]
    data: bytes = GetAllNodeInfoRequest(node_selectors=selectors, state_filter=GcsNodeInfo.ALIVE).SerializeToString()
    return data


def nodes(reply: bytes) -> dict[bytes, Node]:
    found: GetAllNodeInfoReply = GetAllNodeInfoReply.FromString(reply)
    return {
        info.node_id: Node(
            info.node_manager_address,
            dict(info.labels),
            dict(info.resources_total),
            info.is_head_node,
            "" if info.is_head_node else info.node_type_name,
            info.node_name,
        )
        for info in found.node_info_list
    }


def addresses(reply: bytes) -> list[str]:
    """Where the raylets of these nodes are heard."""
    found: GetAllNodeInfoReply = GetAllNodeInfoReply.FromString(reply)
    return [build_address(info.node_manager_address, info.node_manager_port) for info in found.node_info_list]


def give_up_shapes(shapes: Iterable[Mapping[str, float]]) -> bytes:
    """The order to a raylet to fail what waits for just these resources."""
    request = CancelLeasesWithResourceShapesRequest()
    for shape in shapes:
        request.resource_shapes.add(resource_shape=dict(shape))
    data: bytes = request.SerializeToString()
    return data


def living_name(info: GcsNodeInfo) -> str | None:
    """What a node is called; None when it is dead."""
    return str(info.node_name) if info.state == GcsNodeInfo.ALIVE else None


def object_sizes(stats: GetNodeStatsReply) -> Iterator[tuple[str, int]]:
    """Every object that a worker of a node refers to, and its size in bytes."""
    for worker in stats.core_workers_stats:
        for known in worker.object_refs:
            yield known.object_id.hex(), known.object_size


def _path(*steps: tuple[Any, str]) -> tuple[int, ...]:
    """The numbers of fields that lead into a message."""
    return tuple(message.DESCRIPTOR.fields_by_name[field].number for message, field in steps)


NODES_IN_USE = _path((GetAllResourceUsageReply, "resource_usage_data"), (ResourceUsageBatchData, "batch"))
"""Where in the reply about what is in use the nodes are; and what waits, by shape and as placement groups."""

SHAPES_WAITING = _path(
    (GetAllResourceUsageReply, "resource_usage_data"),
    (ResourceUsageBatchData, "resource_load_by_shape"),
    (ResourceLoad, "resource_demands"),
)
GROUPS_WAITING = _path(
    (GetAllResourceUsageReply, "resource_usage_data"),
    (ResourceUsageBatchData, "placement_group_load"),
    (PlacementGroupLoad, "placement_group_data"),
)
(NODE_ID,) = _path((ResourcesData, "node_id"))

_READ = ("node_id", "resources_total", "resources_available", "is_draining")
_UNREAD = tuple(name for name in ResourcesData.DESCRIPTOR.fields_by_name if name not in _READ)


def usage(data: bytes) -> ResourcesData:
    """What is in use on a node, without anything else that changes by itself: two are equal when it is the same."""
    found: ResourcesData = ResourcesData.FromString(data)
    for name in _UNREAD:
        found.ClearField(name)
    return found


def amounts_of(found: ResourcesData) -> tuple[Mapping[str, float], Mapping[str, float]] | None:
    """All that a node has, and what of it is free; None while it has not reported."""
    return (found.resources_total, found.resources_available) if found.resources_total else None


def is_draining(found: ResourcesData) -> bool:
    """Whether the node is about to be ended."""
    return bool(found.is_draining)


def shape_waiting(data: bytes) -> Demand | None:
    found: ResourceDemand = ResourceDemand.FromString(data)
    count = found.num_ready_requests_queued + found.num_infeasible_requests_queued + found.backlog_size
    return Demand(dict(found.shape), int(count)) if count else None


def group_waiting(data: bytes) -> Demand | None:
    """A placement group that waits: its bundles that lie nowhere yet. Whether they must lie apart or together is told, weaker
    wishes are not."""
    found: PlacementGroupTableData = PlacementGroupTableData.FromString(data)
    strategy = PlacementStrategy.Name(found.strategy) if found.strategy in _STRICT else "PACK"
    bundles = tuple(dict(bundle.unit_resources) for bundle in found.bundles if _lies_nowhere(bundle))
    return Demand({}, 1, bundles, strategy) if found.state in _PENDING else None


def _lies_nowhere(bundle: Bundle) -> bool:
    return not bundle.node_id.strip(b"\xff")  # no id is none, or all ones
