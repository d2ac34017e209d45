"""Taints: a node refuses everything that does not tolerate every one of its taints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import TAINT
from remora.model.taints import Tolerations

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class TaintRule:
    name = "taints"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        tolerations = query.choice.tolerations
        for key, value, nodes in cluster.nodes.taints.values(TAINT):
            if not tolerations.tolerates_one(key, value):
                yield Screen(nodes, False, self, (key, value))

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        return ()

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        return f"{verb(count, 'has', 'have')} the untolerated taint {subject[0]}={subject[1]}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        key, value = subject
        return (Change("tolerate", key, tolerate(query.choice.tolerations, key, [value])),)


def tolerate(tolerations: Tolerations, key: str, values: Iterable[str]) -> str:
    """Return what to do about a taint. Work that tolerates the key with other values has to be told which one it is."""
    known = any(term.key == key for term in tolerations.terms)
    return f"tolerate {' and '.join(f'{key}={value}' for value in values)}" if known else f"tolerate {key}"
