"""symmetric=True: what is already placed keeps away, from its node or its domain, whom it could not have joined itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb, where
from remora.kernel.state.cluster import ANY_VALUE
from remora.kernel.state.domains import around, in_any_domain
from remora.kernel.state.node_sets import NodeSet
from remora.model.ids import short_id
from remora.model.labels import ACTOR_ID

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class SymmetryRule:
    name = "symmetry"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        if not cluster.refusals:
            return
        request = query.request
        for topology in ("", *cluster.refused_within):
            for key, value in query.labels:
                nodes = _refusing(cluster, query, topology, request.namespace, key, (value, ANY_VALUE))
                if nodes:
                    yield Screen(nodes, False, self, (key, value, topology), topology)
            nodes = _refusing(cluster, query, topology, "", ACTOR_ID, (query.workload_id,))
            if nodes:
                yield Screen(nodes, False, self, (ACTOR_ID, query.workload_id, topology), topology)

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        return ()

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        key, value, topology = subject
        if domains:
            hosts = "hosts" if len(domains) == 1 else "host"
            return f"{where(count, topology, domains)} {hosts} something that keeps away {key}={short_id(value)}"
        return f"{verb(count, 'hosts', 'host')} something that keeps away {key}={short_id(value)}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        key, value, _ = subject
        if key == ACTOR_ID:
            return ()  # nobody can have another id
        return (Change("drop_label", (key, value), f"drop its label {key}={value}"),)


def _refusing(cluster: Cluster, query: Query, topology: str, namespace: str, key: str, values: tuple[str, ...]) -> NodeSet:
    """Return the nodes from which something that is placed there, or in their domain, keeps these labels away."""
    scope = (query.request.kind, namespace, topology)
    if topology and query.request.cluster is None:
        return cluster.refusals_by_domain.with_value(topology, scope, key, values)
    nodes = cluster.refusals.with_value(scope, key, values)
    if not topology or not nodes:
        return nodes
    own = nodes & cluster.tree.get(query.request.cluster or "").nodes()
    return around(cluster.nodes, topology, own) | nodes & in_any_domain(cluster.nodes, topology)
