"""The tree of virtual clusters as this process last saw it, and a virtual cluster in the shape of Ray's own tables.

Libraries ask several times a second, so an answer of the controller is good for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import ray

from remora.errors import ControllerError, UnknownNameError
from remora.live import installed
from remora.live.adapter import labels_now, unpatched
from remora.live.link import link
from remora.model.resources import MEMORY
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL, VirtualCluster
from remora.wire.calls import GetTree
from remora.wire.fences import ROOT
from remora.wire.tokens import without_tokens

FRESH_SECONDS = 0.25

_STORE = "object_store_memory"
_HEAD = "node:__internal_head__"

Row = Mapping[str, Any]
Amounts = dict[str, float]


class Tree:
    """Every cluster, the root too, as the controller describes it."""

    def __init__(self, rows: list[Row]) -> None:
        self.by_id: dict[str, Row] = {row["cluster_id"]: row for row in rows}

    @cached_property
    def nodes(self) -> dict[str, tuple[str, Row]]:
        """Every node, virtual or not, by its id: whose it is, and what it has."""
        return {node["vnode_id"]: (row["cluster_id"], node) for row in self.by_id.values() for node in row["nodes"]}

    def get(self, cluster_id: str) -> Row:
        if cluster_id not in self.by_id:
            raise UnknownNameError(f"there is no virtual cluster {cluster_id!r} any more: it ended with its job or its `with`")
        return self.by_id[cluster_id]

    def node(self, node_id: str) -> Row:
        if node_id not in self.nodes:
            raise UnknownNameError(f"there is no node {node_id!r} any more: a virtual node goes when its share is given back")
        return self.nodes[node_id][1]

    def parent(self, cluster_id: str) -> str | None:
        return None if cluster_id == ROOT else self.get(cluster_id)["parent"] or ROOT

    def children(self, cluster_id: str) -> list[str]:
        return [each for each in self.by_id if self.parent(each) == cluster_id]

    def family(self, cluster_id: str) -> set[str]:
        """With everything below."""
        found = {cluster_id}
        for child in self.children(cluster_id):
            found |= self.family(child)
        return found


class _Seen:
    """The last answer, and of whom."""

    submitter: Any = None
    at = 0.0
    tree = Tree([])


def tree(cluster_id: str = ROOT) -> Tree:
    """As it was a moment ago; as it is now where ``cluster_id`` was not there yet."""
    installation = installed.current()
    if installation is None:
        raise UnknownNameError("this process is not attached, so it is in no virtual cluster: call remora.init() first")
    now = time.monotonic()
    if _Seen.submitter is not installation.submitter or now - _Seen.at > FRESH_SECONDS or cluster_id not in _Seen.tree.by_id:
        found = Tree(link.ask(GetTree()))
        _Seen.submitter, _Seen.at, _Seen.tree = installation.submitter, now, found
    return _Seen.tree


def tree_of(cluster_id: str | None) -> Tree | None:
    """None where nothing is to be narrowed: in no virtual cluster, or after the controller was shut down."""
    if cluster_id is None:
        return None
    try:
        return tree(cluster_id)
    except ControllerError:
        return None


def node_table(cluster_id: str | None) -> list[dict[str, Any]]:
    """As ``ray.nodes()``. In a virtual cluster an entry for each of its virtual nodes, with the id of the node that it lies on:
    Ray says that id everywhere else, so whoever compares finds it; its own is the label ``ray.io/vnode_id``. The head and the
    node of this process are there in any case, if need be with nothing of the cluster's on them."""
    found = tree_of(cluster_id)
    known, said = unpatched.nodes(), labels_now.overrides()
    entries = {
        entry["NodeID"]: {
            **entry,
            "Resources": without_tokens(entry["Resources"]),
            "Labels": labels_now.shown(entry["Labels"], said.get(entry["NodeID"])),
        }
        for entry in known
    }
    if found is None or cluster_id is None:
        return list(entries.values())
    shown, left = [], dict(entries)
    for node, own, whole in _with_whole(found, cluster_id, unpatched.total_resources_per_node):
        entry = entries.get(node["node_id"])
        if entry is not None:
            markers = _markers(entry) if left.pop(node["node_id"], None) is not None else {}
            own_part = {"Labels": {**entry["Labels"], **node["labels"]}, "Resources": {**own, **whole, **markers}}
            shown.append({**entry, **own_part, "PhysicalNodeID": entry["NodeID"]})
    return [*shown, *(_empty(entry) for entry in left.values() if entry["Alive"] and _is_needed(entry))]


def _is_needed(entry: Mapping[str, Any]) -> bool:
    """Return whether Ray names a node in every cluster: libraries look for the head, and everybody for himself."""
    return _HEAD in entry["Resources"] or entry["NodeID"] == ray.get_runtime_context().get_node_id()


def _empty(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A node of the whole cluster, of which the virtual cluster has nothing."""
    labels = {**entry["Labels"], VNODE_LABEL: entry["NodeID"], VCLUSTER_LABEL: ROOT}
    return {**entry, "Labels": labels, "Resources": {"CPU": 0.0, **_markers(entry)}, "PhysicalNodeID": entry["NodeID"]}


def _markers(entry: Mapping[str, Any]) -> Amounts:
    """What Ray gives every node, by which it is known."""
    return {name: amount for name, amount in entry["Resources"].items() if name.startswith("node:")}


def total_resources_per_node(cluster_id: str | None) -> dict[str, Amounts]:
    found = tree_of(cluster_id)
    if found is None or cluster_id is None:
        return {node_id: without_tokens(total) for node_id, total in unpatched.total_resources_per_node().items()}
    parts = _with_whole(found, cluster_id, unpatched.total_resources_per_node)
    return _by_node((node, {**own, **whole}) for node, own, whole in parts)


def available_resources_per_node(cluster_id: str | None) -> dict[str, Amounts]:
    found = tree_of(cluster_id)
    if found is None or cluster_id is None:
        return {node_id: without_tokens(free) for node_id, free in unpatched.available_resources_per_node().items()}
    parts = _with_whole(found, cluster_id, unpatched.available_resources_per_node)
    return _by_node((node, {**_of(available(node), own), **whole}) for node, own, whole in parts)


def _by_node(parts: Iterable[tuple[Row, Amounts]]) -> dict[str, Amounts]:
    """Add up what lies on the same node."""
    found: dict[str, Amounts] = {}
    for node, amounts in parts:
        there = found.setdefault(node["node_id"], {})
        for name, amount in amounts.items():
            there[name] = round(there.get(name, 0.0) + amount, 4)
    return found


def available(node: Row) -> Amounts:
    """What of a node is free; as in Ray, what is not is left out. A worker that came back may use more than there is."""
    free = {name: round(amount - node["used"].get(name, 0.0), 4) for name, amount in node["total"].items()}
    return {name: amount for name, amount in free.items() if amount > 0}


def _of(amounts: Amounts, names: Iterable[str]) -> Amounts:
    return {name: amounts[name] for name in names if name in amounts}


def physical(node_id: Any) -> Any:
    """The physical node of a virtual one; anything else as it is."""
    if not isinstance(node_id, str) or "-" not in node_id:  # Ray's own ids are hexadecimal
        return node_id
    found = tree_of(ROOT)
    owned = found.nodes.get(node_id) if found is not None else None
    return owned[1]["node_id"] if owned is not None else node_id


def _with_whole(found: Tree, cluster_id: str, amounts: Any) -> Iterator[tuple[Row, Amounts, Amounts]]:
    """Each node with its own part, and beside it what is not divided: a cluster uses the object stores of its nodes, and their
    memory where its spec does not name that. Libraries plan by them, so what was borrowed of it so far is not enough."""
    row = found.by_id.get(cluster_id)
    if row is None:
        return
    whole = [_STORE] if VirtualCluster.parse(row["spec"]).names(MEMORY) else [_STORE, MEMORY]
    left = {node_id: {name: each[name] for name in whole if each.get(name)} for node_id, each in amounts().items()}
    for node in row["nodes"]:
        own = {name: amount for name, amount in node["total"].items() if name not in whole}
        yield node, own, left.pop(node["node_id"], {})
