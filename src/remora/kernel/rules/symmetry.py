"""symmetric=True: what is already placed keeps newcomers away that it could not itself have joined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.cluster import ANY_VALUE
from remora.kernel.state.node_sets import NodeSet
from remora.model.labels import ACTOR_ID

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class SymmetryRule:
    name = "symmetry"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        index = cluster.refusals
        if not index:
            return
        request = query.request
        for key, value in query.labels:
            nodes = index.with_value((request.kind, request.namespace), key, (value, ANY_VALUE))
            if nodes:
                yield Screen(nodes, False, self, (key, value))
        nodes = index.with_value((request.kind, ""), ACTOR_ID, (query.workload_id,))
        if nodes:
            yield Screen(nodes, False, self, (ACTOR_ID, query.workload_id))

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        return ()

    def refusal(self, subject: Any, count: int) -> str:
        return f"{verb(count, 'hosts', 'host')} something that keeps away {subject[0]}={subject[1]}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        if subject[0] == ACTOR_ID:
            return ()  # nobody can have another id
        return (Change("drop_label", subject, f"drop its label {subject[0]}={subject[1]}"),)
