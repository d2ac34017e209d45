"""The report of all nodes, read so that what it costs follows what has changed.

One reply of GCS says what every node has, what of it is free, and what waits; it comes as bytes, and is decoded node by node.
Those of a node that has not changed are never the same bytes, because maps are written in another order each time. So each is
compared as a message, and made into Python objects only where it differs: a node that has not changed is the identical
``NodeView``. What never changes, a node's address and labels, is asked for once.

The state that Ray's autoscaler reads says the same, with what is in use up to a second older, and costs GCS as much again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from remora.live.adapter import node_messages
from remora.live.adapter.gcs_calls import NODE_INFOS, RESOURCE_USAGE, GcsCalls
from remora.live.adapter.node_messages import GROUPS_WAITING, NODE_ID, NODES_IN_USE, SHAPES_WAITING, Node
from remora.live.adapter.scanning import Part, fields, parts
from remora.port.contract import Demand, NodeView, Observation


class Reports:
    """What GCS says about all nodes. One thread asks at a time: an older reply must not be read after a newer one."""

    def __init__(self, calls: GcsCalls) -> None:
        self._calls = calls
        self._nodes: dict[bytes, Node] = {}
        self._reader = Reader()

    def observe(self) -> Observation:
        usage = self.fetch()
        by_node = nodes_of(usage)
        new = [node_id for node_id in by_node if node_id not in self._nodes]
        self._nodes = {node_id: node for node_id, node in self._nodes.items() if node_id in by_node}
        if new:
            self._nodes |= self.infos(new)
        return self._reader.read(usage, by_node, self._nodes)

    def fetch(self) -> bytes:
        return self._calls(RESOURCE_USAGE, b"")  # an empty question has no bytes

    def infos(self, node_ids: Iterable[bytes]) -> dict[bytes, Node]:
        """Return what is fixed of these nodes; those that have died meanwhile are left out."""
        return node_messages.nodes(self._calls(NODE_INFOS, node_messages.infos_of(node_ids)))


def nodes_of(usage: bytes) -> dict[bytes, Part]:
    """Where in a reply each node's entry lies, by its id."""
    return {_node_id(usage, *part): part for part in parts(usage, NODES_IN_USE)}


class _Known(NamedTuple):
    """A node as it was seen last, and the message that said so."""

    view: NodeView
    usage: Any


class Reader:
    """Makes observations of replies, one after the other."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def read(self, usage: bytes, by_node: Mapping[bytes, Part], nodes: Mapping[bytes, Node]) -> Observation:
        """Return what a reply says of the nodes whose infos are there."""
        known: dict[bytes, _Known] = {}
        for node_id, (begin, end) in by_node.items():
            if node_id in nodes:
                said, now = node_messages.usage(usage[begin:end]), self._known.get(node_id)
                if now is None or now.usage != said:
                    now = _Known(_view(node_id, nodes[node_id], said), said)
                known[node_id] = now
        self._known = known
        return Observation(tuple(each.view for each in known.values()), _demands(usage))


def _view(node_id: bytes, node: Node, said: Any) -> NodeView:
    total, available = node_messages.amounts_of(said) or (node.resources, node.resources)
    return NodeView(
        node_id.hex(),
        node.address,
        node.labels,
        _amounts(total),
        _amounts(available),
        node.is_head,
        node.node_type,
        node_messages.is_draining(said),
        node.name,
    )


def _node_id(data: bytes, begin: int, end: int) -> bytes:
    return next(data[start:stop] for number, start, stop in fields(data, begin, end) if number == NODE_ID)


def _amounts(resources: Mapping[str, float]) -> dict[str, float]:
    """Nodes have much the same names: each is kept once."""
    return {sys.intern(name): amount for name, amount in resources.items()}


def _demands(usage: bytes) -> tuple[Demand, ...]:
    shapes = (node_messages.shape_waiting(usage[begin:end]) for begin, end in parts(usage, SHAPES_WAITING))
    groups = (node_messages.group_waiting(usage[begin:end]) for begin, end in parts(usage, GROUPS_WAITING))
    return tuple(demand for demand in (*shapes, *groups) if demand is not None)
