"""``ray.autoscaler.sdk.request_resources`` in a virtual cluster: the cluster grows, within its maximum.

Ray's libraries ask for what they could use before they submit it, and submit no more than the cluster has.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import ray

from remora.errors import InvalidInputError
from remora.live import installed
from remora.live.clusters import scopes
from remora.model.resources import Resources

_EXAMPLE = 'for example request_resources(num_cpus=4) or request_resources(bundles=[{"CPU": 1}, {"GPU": 1}])'


def growing(stock: Any) -> Any:
    @functools.wraps(stock)
    def request_resources(
        num_cpus: int | None = None,
        bundles: list[dict[str, float]] | None = None,
        bundle_label_selectors: list[dict[str, str]] | None = None,
    ) -> None:
        cluster_id = scopes.current() if ray.is_initialized() else None
        if cluster_id is None:
            stock(num_cpus=num_cpus, bundles=bundles, bundle_label_selectors=bundle_label_selectors)
            return
        installation = installed.current()
        assert installation is not None
        installation.submitter.request(cluster_id, _counted(num_cpus, bundles or [], bundle_label_selectors or []))

    return request_resources


def _counted(
    num_cpus: int | None, bundles: list[dict[str, float]], selectors: list[dict[str, str]]
) -> list[tuple[dict[str, str], dict[str, float], int]]:
    """Selector, amounts and how often, equal ones together."""
    if num_cpus is not None and (isinstance(num_cpus, bool) or not isinstance(num_cpus, int) or num_cpus < 0):
        raise InvalidInputError(f"num_cpus={num_cpus!r} is not a whole number of CPUs; {_EXAMPLE}")
    if selectors and len(selectors) != len(bundles):
        raise InvalidInputError(
            f"{len(selectors)} bundle_label_selectors for {len(bundles)} bundles: give one for each; {_EXAMPLE}"
        )
    asked: Counter[tuple[tuple[tuple[str, str], ...], Resources]] = Counter()
    for index, bundle in enumerate(bundles):
        asked[tuple(sorted(selectors[index].items())) if selectors else (), Resources.parse(bundle, of="a bundle")] += 1
    if num_cpus:
        asked[(), Resources.parse({"CPU": 1})] += num_cpus
    return [(dict(selector), amounts.to_dict(), count) for (selector, amounts), count in asked.items()]
