"""Capacity: a node must have what is asked for, and have it free.

On the physical cluster. Inside a virtual cluster the shares decide, see ``placing.inside``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.node_sets import NodeSet, without
from remora.model.ids import short_id
from remora.model.resources import Resources, show_pair

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster

TOTAL = "total"
FREE = "free"


class CapacityRule:
    name = "capacity"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        """Return one screen a resource, so that a refusal names the one that is short."""
        for name, units in query.request.demand.pairs:
            large_enough = cluster.totals.at_least(one := Resources({name: units}))
            yield Screen(large_enough, True, self, (TOTAL, name, units))
            yield Screen(without(large_enough, cluster.available.at_least(one)), False, self, (FREE, name, units))

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        return ()

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        kind, name, units = subject
        if kind == TOTAL:
            return f"{verb(count, 'is', 'are')} too small for {show_pair(name, units)}"
        return f"{verb(count, 'lacks', 'lack')} {show_pair(name, units)}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        kind, name, units = subject
        node = cluster.nodes.at(number)
        available = max(cluster.available.get(number, name), 0)
        if kind == FREE:
            return (_free(node.node_id, name, units - available),)
        if available:
            return (_reduce(name, available),)
        total = node.total.get(name, 0)
        return (_reduce(name, total), _free(node.node_id, name, total)) if total else (_reduce(name, 0),)


def _free(node_id: str, name: str, units: int) -> Change:
    return Change("free", (node_id, name, units), f"free {show_pair(name, units)} on {short_id(node_id)}")


def _reduce(name: str, units: int) -> Change:
    return Change("reduce", (name, units), f"ask for at most {show_pair(name, units)}" if units else f"ask for no {name}")
