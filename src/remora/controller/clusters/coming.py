"""What was said to be on its way to virtual clusters, for as long as no report can show it."""

from __future__ import annotations

from remora.controller.context import Context
from remora.model.resources import Resources
from remora.wire.classes import ClassSpec

Wants = tuple[ClassSpec, Resources, int]
"""A class of a virtual cluster, what one of its kind takes, and how many there are."""

SEEN_SECONDS = 0.2
"""Raylets report ten times a second: what was on its way longer ago than this runs, waits or has ended."""


class Coming:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: dict[str | None, list[tuple[float, Wants]]] = {}  # by cluster, the oldest first

    def add(self, wants: list[Wants]) -> None:
        now = self._context.now()
        for each in wants:
            self._told.setdefault(each[0].cluster, []).append((now, each))

    def of(self, cluster_id: str | None) -> list[Wants]:
        """Return what is on its way to a cluster, all of one kind together."""
        found: dict[tuple[str, Resources], Wants] = {}
        for _, (spec, demand, count) in self._young(cluster_id):
            kind = spec.class_id, demand
            found[kind] = spec, demand, count + (found[kind][2] if kind in found else 0)
        return list(found.values())

    def _young(self, cluster_id: str | None) -> list[tuple[float, Wants]]:
        oldest = self._context.now() - SEEN_SECONDS
        return [(at, each) for at, each in self._told.get(cluster_id, ()) if at > oldest]

    def forget(self) -> None:
        """Forget what reports show by now."""
        for cluster_id in list(self._told):
            self._told[cluster_id] = self._young(cluster_id)
            if not self._told[cluster_id]:
                del self._told[cluster_id]
