"""The nodes: numbers, labels, taints, and the indexes over them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from remora.errors import InvalidInputError, UnknownNameError
from remora.kernel.state.label_index import LabelIndex
from remora.kernel.state.node_sets import NodeSet
from remora.model.labels import Labels
from remora.model.resources import Resources
from remora.model.strategies import NODE

TAINT = "taint"


@dataclass(slots=True)
class Node:
    """One physical node. ``labels`` and ``taints`` are those that hold now, static and dynamic together.

    ``reported``: what is free there was taken from reports, so more may be in use than is placed here. ``node_type``: the type
    that it was started as, empty where nobody starts or ends it but people.
    """

    number: int
    node_id: str
    total: Resources
    labels: dict[str, str] = field(default_factory=dict)
    taints: dict[str, str] = field(default_factory=dict)
    reported: bool = False
    node_type: str = ""


class Nodes:
    """All live nodes. Numbers are recycled, so node sets stay as short as the cluster is large."""

    def __init__(self) -> None:
        self.by_id: dict[str, Node] = {}
        self.by_number: list[Node | None] = []
        self.alive: NodeSet = 0
        self.labels = LabelIndex()
        self.taints = LabelIndex()
        self.version = 0
        self._free: list[int] = []

    def add(self, node_id: str, total: Resources, labels: Labels, taints: Labels, node_type: str = "") -> Node:
        if node_id in self.by_id:
            raise InvalidInputError(f"there is a node {node_id!r} already: node ids are unique")
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number = len(self.by_number)
            self.by_number.append(None)
        node = Node(number, node_id, total, dict(labels), dict(taints), node_type=node_type)
        self.by_id[node_id] = node
        self.by_number[number] = node
        self.alive |= 1 << number
        self.labels.add(NODE, labels, number)
        self.taints.add(TAINT, taints, number)
        self.version += 1
        return node

    def remove(self, node: Node) -> None:
        self.labels.remove(NODE, _pairs(node.labels), node.number)
        self.taints.remove(TAINT, _pairs(node.taints), node.number)
        self.alive ^= 1 << node.number
        self.by_number[node.number] = None
        del self.by_id[node.node_id]
        heapq.heappush(self._free, node.number)
        self.version += 1

    def relabel(self, node: Node, set_: Labels, drop: Iterable[str]) -> None:
        self._change(self.labels, NODE, node.labels, node.number, set_, drop)

    def retaint(self, node: Node, set_: Labels, drop: Iterable[str]) -> None:
        self._change(self.taints, TAINT, node.taints, node.number, set_, drop)

    def copy(self) -> Nodes:
        """Return the same nodes with indexes of their own: some may be added or removed there, and its ``own`` relabelled."""
        made = Nodes()
        made.by_id, made.by_number = dict(self.by_id), list(self.by_number)
        made.alive, made.version, made._free = self.alive, self.version, list(self._free)
        made.labels, made.taints = self.labels.copy(), self.taints.copy()
        return made

    def own(self, node_id: str) -> Node:
        """Replace a node that came with a copy by one of this table's own, and return that: it may be relabelled here."""
        node = self.get(node_id)
        made = replace(node, labels=dict(node.labels), taints=dict(node.taints))
        self.by_id[node_id] = self.by_number[node.number] = made
        return made

    def get(self, node_id: str) -> Node:
        node = self.by_id.get(node_id) if isinstance(node_id, str) else None
        if node is None:
            some = ", ".join(sorted(self.by_id)[:3]) or "none yet"
            raise UnknownNameError(
                f"there is no node {node_id!r}: the nodes are {some}{', ...' if len(self.by_id) > 3 else ''}"
            )
        return node

    def at(self, number: int) -> Node:
        node = self.by_number[number]
        assert node is not None, number
        return node

    def _change(
        self, index: LabelIndex, scope: str, current: dict[str, str], number: int, set_: Labels, drop: Iterable[str]
    ) -> None:
        """Replace whole: the index never sees a half-changed node."""
        index.remove(scope, _pairs(current), number)
        for key in drop:
            current.pop(key, None)
        current.update(set_)
        index.add(scope, _pairs(current), number)
        self.version += 1


def _pairs(labels: Mapping[str, str]) -> Labels:
    return tuple(labels.items())
