"""Node affinity by id: a hard pin refuses every other node, a soft one prefers its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.node_sets import NodeSet
from remora.model.ids import short_id

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class PinRule:
    name = "node"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        node_id = query.choice.node_id
        if node_id is not None:
            yield Screen(_nodes(cluster, node_id), True, self, node_id)

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        if query.request.wished_node is not None:
            yield _nodes(cluster, query.request.wished_node)

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        return f"{verb(count, 'is', 'are')} not the node {short_id(subject)}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        return (Change("drop_pin", subject, f"drop the node affinity to {short_id(subject)}"),)


def _nodes(cluster: Cluster, node_id: str) -> NodeSet:
    node = cluster.nodes.by_id.get(node_id)
    return 1 << node.number if node else 0
