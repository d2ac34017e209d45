"""``ray.get_runtime_context().current_cluster()`` and ``.current_node()``: what they return."""

from __future__ import annotations

import functools
from typing import Any

import ray
from ray._private.state import state

from remora.kernel.state.virtual_labels import admits
from remora.live.adapter import labels_now, unpatched
from remora.live.adapter.ray_port import RayPort
from remora.live.inspect import tree_cache
from remora.live.inspect.narrow import viewing
from remora.live.inspect.tree_cache import Amounts, Row, tree
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.classes import ClassSpec
from remora.wire.fences import ROOT
from remora.wire.keys import CLASSES
from remora.wire.tokens import class_of_token, without_tokens


class VirtualClusterInfo:
    """A virtual cluster as it is now; the root, with the id ``root``, is the physical cluster."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id

    def spec(self) -> VirtualCluster:
        return VirtualCluster.parse(self._row()["spec"])

    def cluster_id(self) -> str:
        return self._cluster_id

    def total_resources(self) -> Amounts:
        """What it has now, as ``ray.cluster_resources()`` inside of it."""
        self._row()
        with viewing(self._cluster_id):
            total: Amounts = ray.cluster_resources()
        return total

    def max_resources(self) -> Amounts:
        """What it has once it has grown as far as it may; of what it does not limit, what its parent has then."""
        parent = self.parent_cluster()
        if parent is not None:
            return {**parent.max_resources(), **self._row()["max"]}
        known: Amounts | None = state.get_max_resources_from_cluster_config()
        return self.total_resources() if known is None else {**self.total_resources(), **known}

    def available_resources(self) -> Amounts:
        """What nobody uses and no child was given. Of the root, Ray itself also counts what its virtual clusters have and do
        not use as available."""
        if self._cluster_id == ROOT:
            return _sum(tree_cache.available(node) for node in self._row()["nodes"])
        self._row()
        with viewing(self._cluster_id):
            free: Amounts = ray.available_resources()
        return free

    def used_object_store_memory(self) -> int:
        """Bytes of the objects that work of this cluster, or of those inside of it, has made. Asks every worker."""
        from remora.live.inspect.ownership import belonging_to, object_sizes

        sizes = object_sizes()
        if self._cluster_id == ROOT:
            return sum(sizes.values())
        mine = belonging_to(self._cluster_id, tree(self._cluster_id))
        return sum(size for object_id, size in sizes.items() if mine.has_object(object_id))

    def nodes(self) -> list[dict[str, Any]]:
        """As ``ray.nodes()`` inside of it."""
        self._row()
        with viewing(self._cluster_id):
            entries: list[dict[str, Any]] = ray.nodes()
        return entries

    def state(self) -> Any:
        """``ray.util.state``, as it is inside of it: for example ``.state().list_tasks()``."""
        return _State(self._cluster_id)

    def child_clusters(self) -> list[VirtualClusterInfo]:
        self._row()
        return [VirtualClusterInfo(child) for child in tree().children(self._cluster_id)]

    def parent_cluster(self) -> VirtualClusterInfo | None:
        parent = tree(self._cluster_id).parent(self._cluster_id)
        return None if parent is None else VirtualClusterInfo(parent)

    def _row(self) -> Row:
        return tree(self._cluster_id).get(self._cluster_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualClusterInfo) and other._cluster_id == self._cluster_id

    def __hash__(self) -> int:
        return hash(self._cluster_id)

    def __repr__(self) -> str:
        return f"VirtualClusterInfo({self._cluster_id!r})"


class VirtualNodeInfo:
    """A virtual node as it is now; of the root, a physical node."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id

    def node_id(self) -> str:
        return self._node_id

    def node_labels(self) -> dict[str, str]:
        """Its own, and those of the node that it lies on."""
        return dict(self._row()["labels"])

    def used_resources(self) -> Amounts:
        """What its work holds, and what was given to virtual nodes on it."""
        return dict(self._row()["used"])

    def avail_resources(self) -> Amounts:
        return tree_cache.available(self._row())

    def total_resources(self) -> Amounts:
        return dict(self._row()["total"])

    def parent_node(self) -> VirtualNodeInfo | None:
        """The node that it lies on: of the parent cluster; None for a physical node."""
        parent = self._row()["parent"]
        return None if parent is None else VirtualNodeInfo(parent)

    def _row(self) -> Row:
        return tree().node(self._node_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualNodeInfo) and other._node_id == self._node_id

    def __hash__(self) -> int:
        return hash(self._node_id)

    def __repr__(self) -> str:
        return f"VirtualNodeInfo({self._node_id!r})"


class _State:
    """The functions of ``ray.util.state``, asked for one cluster."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id

    def __getattr__(self, name: str) -> Any:
        import ray.util.state

        function = getattr(ray.util.state, name)

        @functools.wraps(function)
        def ask(*args: Any, **kwargs: Any) -> Any:
            with viewing(self._cluster_id):
                return function(*args, **kwargs)

        return ask


def current_node(cluster_id: str) -> VirtualNodeInfo:
    """Where the cluster has nothing on this machine (a driver may be anywhere), the node of the nearest cluster around it."""
    here = ray.get_runtime_context().get_node_id()
    found = tree(cluster_id)
    around: str | None = cluster_id
    while around is not None and around != ROOT:
        nodes = [node for node in found.get(around)["nodes"] if node["node_id"] == here]
        if nodes:
            return VirtualNodeInfo(_most_likely(nodes)["vnode_id"])
        around = found.parent(around)
    return VirtualNodeInfo(here)


def labels_here(node_id: str, labels: dict[str, str], cluster_id: str | None) -> dict[str, str]:
    """Return the labels that hold now of the node of this process, which was started with ``labels``; those of its virtual node
    among them."""
    found = labels_now.of_node(node_id, labels)
    if cluster_id is not None and tree_cache.tree_of(cluster_id) is not None:
        node = current_node(cluster_id)
        found |= node.node_labels() if node.node_id() in tree(cluster_id).nodes else {}
    return found


def _most_likely(nodes: list[Row]) -> Row:
    """Of several on one machine, the first that the running work selects and fits in: work is not told which it got."""
    if len(nodes) == 1 or not unpatched.is_worker():
        return nodes[0]
    held = unpatched.assigned_resources()
    classes = [class_id for name in held if (class_id := class_of_token(name)) is not None]
    entries = [data for class_id in classes if (data := RayPort().get(CLASSES.key(class_id)))]
    specs = [ClassSpec.of_body(CLASSES.read(data)) for data in entries]
    needs = without_tokens(held)

    def unlike(node: Row) -> tuple[bool, bool]:
        selected = all(any(admits(choice, node["labels"]) for choice in spec.choices) for spec in specs)
        return not selected, any(node["total"].get(name, 0.0) < amount for name, amount in needs.items())

    return min(nodes, key=unlike)


def _sum(parts: Any) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total
