"""What is spread over domains, and how evenly it lies now: what runs stays where it is, so that may be less than is asked."""

from __future__ import annotations

from typing import Any

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.domains import domain_of, domains_of
from remora.kernel.state.tallies import TallyKey
from remora.model.spreading import Spread


def spread_rows(cluster: Cluster) -> list[dict[str, Any]]:
    """Return one row for everything that is spread together: how many of it lie in each domain, and the skew."""
    asked: dict[TallyKey, Spread] = {}
    for workload in cluster.placed.values():
        request = workload.request
        for each in request.spreads:
            asked.setdefault(TallyKey(each.over, request.namespace, request.cluster, each.counted or ()), each)
    return [_row(cluster, key, spread) for key, spread in sorted(asked.items(), key=lambda pair: repr(pair[0]))]


def _row(cluster: Cluster, key: TallyKey, spread: Spread) -> dict[str, Any]:
    counts = dict.fromkeys(sorted(domains_of(cluster.nodes, key.over)), 0)
    for workload in cluster.placed.values():
        if key.counts(workload):
            domain = domain_of(cluster.nodes, key.over, workload.node)
            if domain is not None:
                counts[domain] += 1
    return {
        "over": key.over,
        "of": spread.show_counted(),
        "virtual_cluster": key.cluster,
        "domains": counts,
        "skew": max(counts.values(), default=0) - min(counts.values(), default=0),
        "max_skew": spread.max_skew,
        "min_domains": spread.min_domains or None,
        "soft": spread.soft,
    }
