"""What Ray's messages say about machines and its autoscaler, in our own words: as ``messages`` does for work."""

from __future__ import annotations

from typing import Any

from ray.core.generated.autoscaler_pb2 import (
    AutoscalingState,
    ClusterResourceConstraint,
    ClusterResourceState,
    FailedInstanceRequest,
    GetClusterStatusReply,
    NodeState,
    PendingInstance,
    PendingInstanceRequest,
    ResourceRequestByCount,
)
from ray.core.generated.common_pb2 import LabelSelectorOperator

from remora.live.adapter.asking import Bundle, condition
from remora.live.adapter.scanning import fields, parts, varint
from remora.port.scaler import Failure

_NO_FAILURE = "maxReplicas"
"""KubeRay caps launches at the maximum of a group, and reports what it capped as failed."""


_NOT_SAID = "the provider could not start it, monitor.log on the head says why"
"""Ray 2.60 loses what the provider said on the way."""


def _path(*steps: tuple[Any, str]) -> tuple[int, ...]:
    """The numbers of fields that lead into a message."""
    return tuple(message.DESCRIPTOR.fields_by_name[field].number for message, field in steps)


_RESOURCES = (GetClusterStatusReply, "cluster_resource_state")
_STATE = (GetClusterStatusReply, "autoscaling_state")
_CONSTRAINTS = _path(
    _RESOURCES, (ClusterResourceState, "cluster_resource_constraints"), (ClusterResourceConstraint, "resource_requests")
)
_NODES = _path(_RESOURCES, (ClusterResourceState, "node_states"))
_REQUESTED = _path(_STATE, (AutoscalingState, "pending_instance_requests"))
_PENDING = _path(_STATE, (AutoscalingState, "pending_instances"))
_FAILED = _path(_STATE, (AutoscalingState, "failed_instance_requests"))
_REFUSED = _path(_STATE, (AutoscalingState, "infeasible_cluster_resource_constraints"))
_ID, _IDLE, _INSTANCE = _path((NodeState, "node_id"), (NodeState, "idle_duration_ms"), (NodeState, "instance_id"))


def constraint(reply: bytes) -> list[Bundle]:
    """Return the entries of the one constraint that stands, whoever made them."""
    return [_bundle(reply[begin:end]) for begin, end in parts(reply, _CONSTRAINTS)]


def requested(reply: bytes) -> dict[str, int]:
    """Return how many machines of each type the provider was asked for, or is about to be, and has not promised."""
    counts: dict[str, int] = {}
    for begin, end in parts(reply, _REQUESTED):
        request: PendingInstanceRequest = PendingInstanceRequest.FromString(reply[begin:end])
        name = str(request.ray_node_type_name)
        counts[name] = counts.get(name, 0) + int(request.count)
    return counts


def granted(reply: bytes) -> dict[str, int]:
    """Return how many machines of each type are there and start. One that has joined is listed for a moment longer."""
    counts: dict[str, int] = {}
    joined = _joined(reply)
    for begin, end in parts(reply, _PENDING):
        pending: PendingInstance = PendingInstance.FromString(reply[begin:end])
        if str(pending.instance_id) not in joined:
            name = str(pending.ray_node_type_name)
            counts[name] = counts.get(name, 0) + 1
    return counts


def failures(reply: bytes) -> tuple[Failure, ...]:
    """Return the machines that could not be started."""
    found = []
    for begin, end in parts(reply, _FAILED):
        failed: FailedInstanceRequest = FailedInstanceRequest.FromString(reply[begin:end])
        if _NO_FAILURE not in failed.reason:
            reason = str(failed.reason) or _NOT_SAID
            found.append(Failure(str(failed.ray_node_type_name), reason, float(failed.failed_ts)))
    return tuple(found)


def is_refused(reply: bytes) -> bool:
    """Return whether the constraint cannot be had as a whole: then nothing is started for any part of it."""
    return any(True for _ in parts(reply, _REFUSED))


def busy_nodes(reply: bytes) -> frozenset[str]:
    """Return the nodes that their raylets say are not idle."""
    found = []
    for begin, end in parts(reply, _NODES):
        node_id, idle = b"", 0
        for number, start, stop in fields(reply, begin, end):
            if number == _ID:
                node_id = reply[start:stop]
            elif number == _IDLE:
                idle, _ = varint(reply, start)
        if not idle:
            found.append(node_id.hex())
    return frozenset(found)


def _joined(reply: bytes) -> set[str]:
    """Return what the provider calls the machines whose nodes have joined."""
    found = set()
    for begin, end in parts(reply, _NODES):
        for number, start, stop in fields(reply, begin, end):
            if number == _INSTANCE:
                found.add(reply[start:stop].decode())
    return found


def _bundle(data: bytes) -> Bundle:
    found: ResourceRequestByCount = ResourceRequestByCount.FromString(data)
    selector: dict[str, str] = {}
    for alternative in found.request.label_selectors:
        for each in alternative.label_constraints:
            negated = each.operator == LabelSelectorOperator.LABEL_OPERATOR_NOT_IN
            selector[str(each.label_key)] = condition(each.label_values, negated=negated)
    return Bundle(dict(found.request.resources_bundle), selector, int(found.count))
