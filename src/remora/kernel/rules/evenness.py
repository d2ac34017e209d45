"""Spread: of everything with the same labels no domain has more than ``max_skew`` above the least.

Domains where the newcomer could never run do not count: none of their nodes has its labels, tolerates it, is large enough
(Kubernetes' ``nodeAffinityPolicy`` and ``nodeTaintsPolicy``, both ``Honor``, and the size besides). In a domain that counts,
all that lies there counts. ``min_domains`` is a floor: until as many are in use only further ones are open, and from then on
the least is that of the fullest so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Rule, Screen, outside, where
from remora.kernel.state import shares
from remora.kernel.state.domains import domains_of, in_any_domain, in_domain
from remora.kernel.state.node_sets import NodeSet, collect
from remora.kernel.state.tallies import DomainTally
from remora.kernel.state.virtual_labels import admits, labels_of
from remora.model.spreading import Spread

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster

_UNLABELLED = "no domain"
_CROWDED = "above the least"


class EvennessRule:
    """``static`` are the rules that say on which nodes a request could ever run."""

    name = "spread"

    def __init__(self, static: Iterable[Rule]) -> None:
        self._static = tuple(static)

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        for declared in query.request.spreads:
            if declared.soft:
                continue
            spread = declared.of(query.labels)
            yield Screen(in_any_domain(cluster.nodes, spread.over), True, self, (_UNLABELLED, declared))
            tally = cluster.tally(spread, query.request)
            most = self._most(cluster, query, spread, tally)
            if most is not None:
                open_ = _up_to(tally.levels(cluster.nodes), most)
                yield Screen(open_, True, self, (_CROWDED, declared, spread.show_counted()), spread.over)

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        """A soft one wishes for the domains with the fewest among those that have room now; one with a floor, once that is
        reached, for those in use already."""
        for declared in query.request.spreads:
            spread = declared.of(query.labels)
            if not spread.soft and not spread.min_domains:
                continue
            tally = cluster.tally(spread, query.request)
            levels = tally.levels(cluster.nodes)
            could_run = self._could_run(cluster, query)
            if spread.min_domains:
                if _used(tally, self._domains(cluster, query, tally)) >= spread.min_domains:
                    yield _up_to(levels, max(levels, default=0)) ^ levels.get(0, 0)
                elif spread.soft:
                    yield levels.get(0, 0)
                continue
            if query.request.cluster is None:
                could_run &= cluster.available.at_least(query.request.demand)
            least = next((count for count in sorted(levels) if levels[count] & could_run), None)
            if least is not None:
                yield _up_to(levels, least + spread.max_skew - 1)

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        kind, spread, *counted = subject
        if kind == _UNLABELLED:
            return outside(count, spread.over)
        floor = f" on at least {spread.min_domains} {spread.over}s" if spread.min_domains else ""
        allowed = f"max_skew={spread.max_skew}{floor}"
        return f"{where(count, spread.over, domains)} would have too many with {counted[0]} ({allowed})"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        spread: Spread = subject[1]
        return (Change("drop_spread", spread, f"drop the spread over {spread.over}"),)

    def _most(self, cluster: Cluster, query: Query, spread: Spread, tally: DomainTally) -> int | None:
        """Return how many there may be in a domain before the newcomer comes; None where any number may."""
        own = 1 if spread.own else 0
        if not spread.min_domains:
            levels, could_run = tally.levels(cluster.nodes), self._could_run(cluster, query)
            least = next((count for count in sorted(levels) if levels[count] & could_run), None)
            return None if least is None else least + spread.max_skew - own
        domains = self._domains(cluster, query, tally)
        if _used(tally, domains) < spread.min_domains:
            return 0 if own else None
        fullest = nlargest(spread.min_domains, (tally.counts.get(domain, 0) for domain in domains))
        return fullest[-1] + spread.max_skew - own

    def _domains(self, cluster: Cluster, query: Query, tally: DomainTally) -> tuple[str, ...]:
        """Return the domains where the newcomer could ever run; kept until a node changes."""
        who = (query.choice, query.request.demand)
        known = tally.domains.get(who)
        if known is not None and known[0] == cluster.nodes.version and query.request.cluster is None:
            return known[1]
        could_run = self._could_run(cluster, query)
        nodes, over = cluster.nodes, tally.over
        found = tuple(domain for domain in domains_of(nodes, over) if in_domain(nodes, over, domain) & could_run)
        if len(tally.domains) > _MOST_KEPT:
            tally.domains.clear()
        tally.domains[who] = (cluster.nodes.version, found)
        return found

    def _could_run(self, cluster: Cluster, query: Query) -> NodeSet:
        """Return the nodes that could ever hold the newcomer; in a virtual cluster of those that it has or could have now."""
        request = query.request
        if request.cluster is None:
            return self._admitted(cluster, query) & cluster.totals.at_least(request.demand)
        vcluster = cluster.tree.get(request.cluster)
        own = collect(
            vnode.node
            for vnode in vcluster.vnodes()
            if admits(query.choice, labels_of(cluster, vnode))
            and (not vnode.fixed or all(vnode.total.get(name, units) >= units for name, units in request.demand.pairs))
        )
        coming = shares.reachable(cluster, vcluster, request.demand, {}) & self._admitted(cluster, query)
        return (own & self._admitted(cluster, query, labels=False)) | coming

    def _admitted(self, cluster: Cluster, query: Query, *, labels: bool = True) -> NodeSet:
        if labels:
            known = cluster.eligible_cache.get(query.choice)
            if known is not None and known[0] == cluster.nodes.version:
                return known[1]
        nodes = cluster.nodes.alive
        for rule in self._static:
            if labels or rule.name != "labels":
                for screen in rule.screens(cluster, query):
                    nodes = screen.passing(nodes)
        return nodes


_MOST_KEPT = 256


def _up_to(levels: Mapping[int, NodeSet], most: int) -> NodeSet:
    nodes = 0
    for count, members in levels.items():
        if count <= most:
            nodes |= members
    return nodes


def _used(tally: DomainTally, domains: tuple[str, ...]) -> int:
    counts = tally.counts
    return sum(1 for domain in domains if domain in counts)
