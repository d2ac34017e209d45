"""How much more the work of a virtual cluster may have: up to its maximum and those of everything above it, never beyond."""

from __future__ import annotations

from remora.kernel.state.cluster_tree import VCluster
from remora.model.resources import Resources, show_amount


class Ceilings:
    """The maxima of virtual clusters, less what a plan has counted against them so far."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], int] = {}

    def allow(self, vcluster: VCluster, need: Resources, count: int) -> tuple[int, str]:
        """Return how many of ``count`` may still be had, and which maximum is in the way of the others.

        What lies idle in its share, or in that of a cluster above it, can be moved to where it is needed, so it counts as free.
        """
        allowed, why = count, ""
        for name, units in need.pairs:
            idle = 0
            for cluster in vcluster.chain():
                idle += cluster.flex_idle(name)
                limit = cluster.spec.limit(name)
                if limit is None:
                    continue
                room = limit - cluster.flex_total.get(name, 0) + idle - self._counted.get((cluster.cluster_id, name), 0)
                if room // units < allowed:
                    allowed = max(room // units, 0)
                    why = f"the virtual cluster {cluster.cluster_id} is at its maximum of {show_amount(limit)} {name}"
        return allowed, why

    def take(self, vcluster: VCluster, need: Resources, count: int) -> None:
        """Count so many against the maxima."""
        for cluster in vcluster.chain():
            for name, units in need.pairs:
                key = (cluster.cluster_id, name)
                self._counted[key] = self._counted.get(key, 0) + units * count
