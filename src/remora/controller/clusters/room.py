"""The law of shares as a sum: how much more may stand on a node, and for a cluster and each one above it.

All share tokens of a cluster and of those below it that may stand on nodes, less what workers hold that wait, never go beyond
its maximum. A ``Room`` is made for one pass over the shares: what is given in it counts at once. Only the sums that are asked
for are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from remora.controller.clusters.lending import Lending
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.use import Use
from remora.controller.tokens.book import Book
from remora.kernel.state.cluster_tree import VCluster
from remora.model.resources import Resources


class Room:
    """``total`` returns the units that a node has of a resource."""

    def __init__(self, registry: Registry, use: Use, lending: Lending, book: Book, total: Callable[[str, str], int]) -> None:
        self._registry = registry
        self._use = use
        self._lending = lending
        self._book = book
        self._total = total
        self._given_on: dict[tuple[str, str], int] = {}
        self._given_of: dict[tuple[str, str], int] = {}
        self._sums: dict[tuple[str, str], int] = {}  # of clusters, when they were first asked for
        self._lent: dict[tuple[str, str], int] = {}  # of nodes

    def take(self, node_id: str, account: str, name: str, units: int) -> int:
        """Give as much of a share as there is room for, up to so much. Return how much it was."""
        most = min(units, self._left(node_id, account, name))
        self._count(node_id, account, name, most)
        return most

    def admits(self, node_id: str, cluster_id: str, amounts: Resources) -> bool:
        """Return whether work that has its token but does not use its share may use it."""
        return all(units <= self._left(node_id, cluster_id, name) for name, units in amounts.pairs)

    def allows(self, cluster_id: str, amounts: Resources) -> bool:
        """Return whether no maximum forbids it. What a node has is not asked: work that has begun runs on beyond it in Ray too,
        and nothing starts there before it has a CPU."""
        return all(units <= self._below_caps(cluster_id, name) for name, units in amounts.pairs)

    def use(self, node_id: str, cluster_id: str, amounts: Resources) -> None:
        """Count what a worker uses that waits still: it is admitted after this, and lends nothing from then on."""
        for name, units in amounts.pairs:
            self._lent_on(node_id, name)
            for vcluster in self._chain(cluster_id):
                self._out(vcluster.cluster_id, name)
            self._count(node_id, cluster_id, name, units)

    def is_overdrawn(self, account: str) -> bool:
        """Return whether more stands out of a cluster, or of one above it, than its maximum."""
        record = self._registry.records.get(account)
        return record is not None and any(self._is_over(each.cluster_id) for each in record.vcluster.chain())

    # The rest

    def _is_over(self, cluster_id: str) -> bool:
        vcluster = self._registry.records[cluster_id].vcluster
        names = {name for each in _subtree(vcluster) for name in self._book.out_of(each.cluster_id)}
        return any(self._out(cluster_id, name) > self._cap(cluster_id, name) for name in names)

    def _left(self, node_id: str, account: str, name: str) -> int:
        out = self._book.out_on(node_id, name) - self._lent_on(node_id, name) + self._given_on.get((node_id, name), 0)
        return int(max(min(self._total(node_id, name) - out, self._below_caps(account, name)), 0))

    def _lent_on(self, node_id: str, name: str) -> int:
        """Return what workers on a node hold that wait."""
        key = node_id, name
        if key not in self._lent:
            clusters = (each for each in self._lending.clusters_at(node_id) if each in self._registry.records)
            self._lent[key] = sum(self._lending.idle(each, node_id).get(name, 0) for each in clusters)
        return self._lent[key]

    def _below_caps(self, account: str, name: str) -> float:
        chain = (vcluster.cluster_id for vcluster in self._chain(account))
        return min((self._cap(each, name) - self._out(each, name) for each in chain), default=inf)

    def _cap(self, cluster_id: str, name: str) -> float:
        cap = self._use.cap(cluster_id, name) if cluster_id in self._registry.records else None
        return inf if cap is None else cap

    def _out(self, cluster_id: str, name: str) -> int:
        """Return what stands out of a cluster and all below it and is not lent, with what was given in this pass."""
        key = cluster_id, name
        if key not in self._sums:
            accounts = [each.cluster_id for each in _subtree(self._registry.records[cluster_id].vcluster)]
            out = sum(self._book.out_of(each).get(name, 0) for each in accounts)
            idle = (self._lending.idle(each, where).get(name, 0) for each in accounts for where in self._lending.nodes_of(each))
            self._sums[key] = out - sum(idle)
        return self._sums[key] + self._given_of.get(key, 0)

    def _count(self, node_id: str, account: str, name: str, units: int) -> None:
        self._given_on[node_id, name] = self._given_on.get((node_id, name), 0) + units
        for vcluster in self._chain(account):
            key = vcluster.cluster_id, name
            self._given_of[key] = self._given_of.get(key, 0) + units

    def _chain(self, account: str) -> Iterator[VCluster]:
        record = self._registry.records.get(account)
        return record.vcluster.chain() if record is not None else iter(())


def _subtree(vcluster: VCluster) -> Iterator[VCluster]:
    yield vcluster
    for child in vcluster.children.values():
        yield from _subtree(child)
