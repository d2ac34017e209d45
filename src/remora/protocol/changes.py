"""What people change, as calls: their input is checked here, before anything is asked, wherever it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from remora.errors import InvalidInputError, InvalidLabelError, InvalidTaintError, InvalidVirtualClusterError
from remora.model.labels import RESERVED_PREFIX, Labels, parse_label_keys, parse_labels
from remora.model.resources import Resources
from remora.model.taints import parse_taints
from remora.wire.calls import By, EndCluster, LabelNode, PreviewNode, ResizeCluster, SetPriority, TaintNode

_MOST_REASON = 500
_MOST_PRIORITY = 2**31


def said_by(who: str = "", through: str = "", origin: str = "", reason: str = "") -> By:
    """Return who changes something, for the journal."""
    if len(reason) > _MOST_REASON:
        raise InvalidInputError(
            f"the reason {reason[:40]!r}... has {len(reason)} characters: at most {_MOST_REASON}; "
            "for example 'its disk is being replaced'"
        )
    return By(_line(who)[:100], _line(through), _line(origin)[:100], _line(reason))


def label_node(node_id: str, labels: Mapping[str, str | None], ask: str, by: By | None = None) -> LabelNode:
    """Return the call that sets labels; None takes one away."""
    if not labels:
        raise InvalidLabelError(f"no label of the node {node_id!r} is named; for example {{'zone': 'a'}}")
    set_, drop = _labels(labels)
    return LabelNode(node_id, set_, drop, ask, by)


def mark_node(
    node_id: str, what: str, set_: Mapping[str, str], drop: Mapping[str, str | None], ask: str, by: By | None = None
) -> LabelNode | TaintNode:
    """Return the call that sets and takes away ``labels`` or ``taints``: those with a value only if they have that value."""
    values = {key: value for key, value in drop.items() if value is not None}
    if what == "taints":
        if not set_ and not drop:
            raise InvalidTaintError(f"no taint of the node {node_id!r} is named; for example {{'gpu_node': 'true'}}")
        dropped = list(parse_label_keys(list(drop), of="taint keys"))
        return TaintNode(node_id, parse_taints(set_), dropped, ask, by, parse_taints(values))
    return replace(label_node(node_id, {**dict.fromkeys(drop), **set_}, ask, by), only_if=parse_labels(values))


def taint_node(node_id: str, taints: Mapping[str, str], ask: str, by: By | None = None) -> TaintNode:
    """Return the call that adds taints."""
    if not taints:
        raise InvalidTaintError(f"no taint of the node {node_id!r} is named; for example {{'gpu_node': 'true'}}")
    return TaintNode(node_id, parse_taints(taints), [], ask, by)


def untaint_node(node_id: str, keys: Iterable[str] | Mapping[str, str], ask: str, by: By | None = None) -> TaintNode:
    """Return the call that takes taints away; of a mapping only those that have these values, or nothing is done."""
    only_if = parse_taints({key: value for key, value in keys.items() if value}) if isinstance(keys, Mapping) else ()
    dropped = parse_label_keys(list(keys), of="taint keys")
    if not dropped:
        raise InvalidTaintError(f"no taint of the node {node_id!r} is named; for example ['gpu_node']")
    return TaintNode(node_id, (), list(dropped), ask, by, only_if)


def preview_node(node_id: str, labels: Mapping[str, str | None], taints: Mapping[str, str | None]) -> PreviewNode:
    """Return the question what other labels and taints of a node would do; None takes one away."""
    labelled, unlabelled = _labels(labels)
    drop = parse_label_keys([key for key, value in taints.items() if value is None], of="taint keys")
    set_ = parse_taints({key: value for key, value in taints.items() if value is not None})
    return PreviewNode(node_id, labelled, unlabelled, set_, list(drop))


def resize_cluster(cluster_id: str, most: Mapping[str, Any], ask: str, by: By | None = None) -> ResizeCluster:
    """Return the call that gives a virtual cluster other maxima; None takes one away."""
    if not isinstance(most, Mapping) or not most:
        raise InvalidVirtualClusterError(
            f"the maximum {most!r} names no resource: say at least one and how much of it; for example {{'CPU': 8}}"
        )
    Resources.parse({name: amount for name, amount in most.items() if amount is not None}, of="the maximum")
    return ResizeCluster(cluster_id, {name: None if each is None else float(each) for name, each in most.items()}, ask, by)


def set_priority(cluster_id: str, priority: Any, ask: str, by: By | None = None) -> SetPriority:
    """Return the call that gives a virtual cluster in the queue another priority."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= _MOST_PRIORITY:
        raise InvalidVirtualClusterError(
            f"priority={priority!r} is not a whole number of at most 31 bits; for example priority=10 (more goes first)"
        )
    return SetPriority(cluster_id, priority, ask, by)


def end_cluster(cluster_id: str, ask: str, by: By | None = None, *, queued: bool = False) -> EndCluster:
    """Return the call that closes a virtual cluster; with ``queued`` only one that still waits."""
    return EndCluster(cluster_id, queued, ask, by)


def _labels(labels: Mapping[str, str | None]) -> tuple[Labels, list[str]]:
    """Return which labels are set, and which are taken away."""
    drop = parse_label_keys([key for key, value in labels.items() if value is None])
    set_ = parse_labels({key: value for key, value in labels.items() if value is not None})
    reserved = next((key for key in labels if key.startswith(RESERVED_PREFIX)), None)
    if reserved is not None:
        raise InvalidLabelError(f"the label {reserved!r} is set by Ray and can't be changed; for example use 'zone'")
    return set_, list(drop)


def _line(text: str) -> str:
    """Return a text as one line without control characters: it is shown in terminals too."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
