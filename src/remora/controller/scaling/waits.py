"""What waits, as a plan reads it: leases and virtual clusters as the scheduler has them, classes and placement groups as they
are reported or offered. What may soon run by itself is given a moment."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from remora.controller.clusters.registry import Registry
from remora.controller.context import Context
from remora.controller.picture import real
from remora.controller.tokens.roster import Roster
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.eligibility import eligible
from remora.kernel.provisioning.demands import Demand, Waiting, waiting_of
from remora.kernel.state.workloads import Group
from remora.model.groups import Bundle, GroupRequest
from remora.model.requests import Request
from remora.model.resources import Resources, show_amounts
from remora.model.strategies import TASK
from remora.port.contract import Demand as Reported
from remora.wire.classes import ClassSpec
from remora.wire.tokens import class_of_token, is_in_group, slot_of_token

PATIENCE_SECONDS = 0.5
"""What could run on a node that is there waits so long before a machine is started for it; what could not, no moment."""

_GONE_SECONDS = 2.0
"""What is not reported for so long waits no more: it may have been handed from one raylet to another."""

_OFFERED_SECONDS = 4.0
"""A placement group that fits nowhere is asked about again at least every second."""


class _Line:
    """Since when something waits, when it was last seen, and how many there were in the last moments."""

    __slots__ = ("counts", "seen_at", "since")

    def __init__(self, now: float) -> None:
        self.since = self.seen_at = now
        self.counts: list[tuple[float, int]] = []

    def see(self, now: float, count: int) -> None:
        self.seen_at = now
        old = [each for each in self.counts if now - each[0] <= PATIENCE_SECONDS]
        before = [each for each in self.counts if now - each[0] > PATIENCE_SECONDS][-1:]
        self.counts = [*before, *old, (now, count)]

    @property
    def least(self) -> int:
        return min(count for _, count in self.counts)


class Waits:
    """``settled`` is whether nothing has yet to become old enough."""

    def __init__(self, context: Context, scheduler: Scheduler, roster: Roster, registry: Registry) -> None:
        self._context = context
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._roster = roster
        self._registry = registry
        self._lines: dict[Hashable, _Line] = {}
        self._offered: dict[str, tuple[Group, float]] = {}
        self._in_gcs: dict[GroupRequest, Hashable] = {}
        self.settled = True

    def offer(self, group_id: str, request: GroupRequest) -> None:
        """A placement group fits nowhere now; whoever keeps it asks again."""
        if self._cluster.types is None:
            return
        known = self._offered.get(group_id)
        group = known[0] if known is not None else Group(group_id, request, self._scheduler.next_order())
        self._offered[group_id] = group, self._context.now()

    def place(self, group_id: str) -> None:
        """A placement group has its place, or ended."""
        self._offered.pop(group_id, None)

    def see(self, reported: Iterable[Reported]) -> Waiting:
        """Return what has waited for long enough, each with the least number of the last moments: of what is being started
        some is still reported as waiting."""
        now = self._context.now()
        self.settled = True
        self._offered = {
            key: (group, at)
            for key, (group, at) in self._offered.items()
            if now - at < _OFFERED_SECONDS and group.request.cluster in (None, *self._registry.records)
        }
        demands, groups = self.of_report(reported)
        found = waiting_of(self._scheduler, demands)
        work = [ripe for demand in found.work if (ripe := self._ripe(demand, now)) is not None]
        every = [*found.groups, *(group for group, _ in self._offered.values()), *groups]
        waited = tuple(group for group in every if self._is_old(("group", group.group_id), 1, now))
        self._lines = {key: line for key, line in self._lines.items() if now - line.seen_at < _GONE_SECONDS}
        return replace(found, work=tuple(work), groups=waited)

    def key_in_gcs(self, request: GroupRequest) -> Hashable:
        """Return how a plan knows a placement group that waits in GCS; of equal ones one."""
        return self._in_gcs.get(request)

    def since(self, key: Hashable) -> float | None:
        """Return since when something waits."""
        line = self._lines.get(key)
        return line.since if line is not None else None

    # The rest

    def _ripe(self, demand: Demand, now: float) -> Demand | None:
        is_old = self._is_old(demand.key, demand.count, now)
        if self._is_too_large(demand.request):
            return demand
        if not is_old:
            return None
        least = self._lines[demand.key].least
        return replace(demand, count=least) if least else None

    def _is_old(self, key: Hashable, count: int, now: float) -> bool:
        line = self._lines.setdefault(key, _Line(now))
        line.see(now, count)
        is_old = now - line.since >= PATIENCE_SECONDS
        self.settled = self.settled and is_old
        return is_old

    def _is_too_large(self, request: Request) -> bool:
        """Return whether no node that is there could ever hold it, however long it waits."""
        totals = self._cluster.totals.at_least(request.demand)
        return request.cluster is None and not any(eligible(self._cluster, choice) & totals for choice in request.choices)

    def of_report(self, reported: Iterable[Reported]) -> tuple[list[Demand], list[Group]]:
        """Return attached work that raylets and GCS report. Leases are known better by the scheduler, and what is not attached
        is Ray's business."""
        demands: dict[Hashable, Demand] = {}
        groups: list[Group] = []
        self._in_gcs.clear()
        for each in reported:
            if each.bundles:
                group = self._group(each, len(groups))
                groups += [group] if group is not None else []
                continue
            spec = self._spec(each.shape)
            if spec is None:
                continue
            need = real(each.shape)
            key = work_key(spec.class_id, need)
            request = Request(TASK, need, need, spec.choices, cluster=spec.cluster)
            count = each.count + (demands[key].count if key in demands else 0)
            demands[key] = Demand(key, _named(spec, need), request, count)
        return list(demands.values()), groups

    def _spec(self, shape: Iterable[str]) -> ClassSpec | None:
        names = list(shape)
        if any(is_in_group(name) or slot_of_token(name) is not None for name in names):
            return None
        class_id = next((found for name in names if (found := class_of_token(name)) is not None), "")
        spec = self._roster.classes.get(class_id)
        if spec is None or (spec.cluster is not None and spec.cluster not in self._registry.records):
            return None
        return spec

    def _group(self, reported: Reported, number: int) -> Group | None:
        """A placement group outside of virtual clusters that waits in GCS."""
        specs = [self._spec(shape) for shape in reported.bundles]
        known = [spec for spec in specs if spec is not None and spec.cluster is None]
        if not known or len(known) != len(specs):
            return None
        bundles = tuple(Bundle(real(shape), spec.choices[0]) for shape, spec in zip(reported.bundles, known, strict=True))
        group_id, request = (
            f"{len(bundles)} bundles in GCS, number {number + 1}",
            GroupRequest((bundles,), reported.strategy or "PACK"),
        )
        self._in_gcs[request] = ("group", group_id)
        return Group(group_id, request)


def work_key(class_id: str, need: Resources) -> Hashable:
    """Return how a plan knows work of a class and a size."""
    return "class", class_id, need


def _named(spec: ClassSpec, need: Resources) -> str:
    wants = spec.describe()
    what = f"work of {show_amounts(need)}" if need else "work of no size"
    inside = f" in {spec.cluster}" if spec.cluster is not None else ""
    return f"{what}{inside} ({wants})" if wants else f"{what}{inside}"
