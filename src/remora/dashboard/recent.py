"""The last 15 minutes of every virtual cluster, as it was seen: kept here, not in the controller."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

KEPT_SECONDS = 900.0
EVERY_SECONDS = 5.0

_KINDS = ("used", "min", "total", "max")


class History:
    """One thread adds to it, others read."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, dict[str, list[float | None]]]]] = deque()

    def add(self, now: float, clusters: Iterable[Mapping[str, Any]]) -> None:
        """Keep how these clusters are now; not more often than is worth drawing."""
        if self._samples and now - self._samples[-1][0] < EVERY_SECONDS - 0.5:
            return
        seen = {str(row["cluster_id"]): _amounts(row) for row in clusters}
        self._samples.append((now, seen))
        while self._samples and now - self._samples[0][0] > KEPT_SECONDS:
            self._samples.popleft()

    def to_dict(self) -> dict[str, Any]:
        """Return ``times``, and for each cluster and resource what of it was ``used``, reserved (``min``), had (``total``) and
        allowed (``max``) then; None where it was not there, or had no limit."""
        samples = list(self._samples)
        clusters: dict[str, dict[str, dict[str, list[float | None]]]] = {}
        for index, (_, seen) in enumerate(samples):
            for cluster_id, resources in seen.items():
                for name, values in resources.items():
                    lines = clusters.setdefault(cluster_id, {}).get(name)
                    if lines is None:
                        lines = clusters[cluster_id][name] = {kind: [None] * len(samples) for kind in _KINDS}
                    for kind, value in zip(_KINDS, values, strict=True):
                        lines[kind][index] = value
        return {"times": [at for at, _ in samples], "clusters": clusters}


def _amounts(row: Mapping[str, Any]) -> dict[str, list[float | None]]:
    names = {*row.get("used", {}), *row.get("min", {}), *row.get("total", {}), *row.get("max", {})}
    return {
        name: [
            row["used"].get(name, 0.0),
            row.get("min", {}).get(name, 0.0),
            row["total"].get(name, 0.0),
            row.get("max", {}).get(name),
        ]
        for name in sorted(names)
    }
