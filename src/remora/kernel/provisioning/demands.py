"""Everything that waits, as a plan reads it: virtual clusters in the order of their queue, groups, and work by kinds."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass

from remora.kernel.cycle import Scheduler
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Group, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import Request


@dataclass(frozen=True)
class Demand:
    """``count`` equal pieces of work. ``key`` is how whoever asks finds the answer, ``name`` is for people; ``workload_id`` is
    known where it is one piece that others refer to."""

    key: Hashable
    name: str
    request: Request
    count: int = 1
    labels: Labels = ()
    workload_id: str = ""


@dataclass(frozen=True)
class Waiting:
    """What waits. ``degraded`` are virtual clusters that lost virtual nodes; ``clusters`` are queued, first in line first."""

    clusters: tuple[VCluster, ...] = ()
    degraded: tuple[VCluster, ...] = ()
    groups: tuple[Group, ...] = ()
    work: tuple[Demand, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.clusters or self.degraded or self.groups or self.work)


def waiting_of(scheduler: Scheduler, also: Iterable[Demand] = ()) -> Waiting:
    """Return what waits at a scheduler, oldest first, and what others say waits."""
    groups: list[Group] = []
    lines: list[tuple[Request, Iterable[Workload], int]] = []
    for _, _, entry in scheduler.waiting.oldest_first():
        if isinstance(entry, Group):
            groups.append(entry)
        else:
            lines.append((entry, scheduler.waiting[entry], len(scheduler.waiting[entry])))
    named = {
        workload_id
        for request, _, _ in lines
        for item in request.affinities
        for term in item.hard
        if term.key == ACTOR_ID
        for workload_id in term.values
    }
    # Labels of equal requests matter only where somebody looks at them.
    told_apart = bool(scheduler.cluster.refusals) or any(request.ruled for request, _, _ in lines)
    work: list[Demand] = []
    for request, line, count in lines:
        work += _by_labels(request, line, named) if told_apart else [Demand((request, ()), _name(line), request, count)]
    return Waiting(
        clusters=tuple(scheduler.queue),
        degraded=tuple(scheduler.degraded),
        groups=tuple(groups),
        work=(*work, *also),
    )


def key_of_work(workload: Workload, keys: Container[Hashable]) -> Hashable:
    """Return the one of these keys of demands that stands for a workload that waits."""
    options = [(workload.request, workload.labels, workload.workload_id), (workload.request, workload.labels)]
    return next((key for key in options if key in keys), (workload.request, ()))


def _by_labels(request: Request, line: Iterable[Workload], named: set[str]) -> list[Demand]:
    found: dict[Hashable, list[Workload]] = {}
    for workload in line:
        key: Hashable = (request, workload.labels)
        if workload.workload_id in named:
            key = (request, workload.labels, workload.workload_id)
        found.setdefault(key, []).append(workload)
    return [
        Demand(key, some[0].workload_id, request, len(some), some[0].labels, some[0].workload_id) for key, some in found.items()
    ]


def _name(line: Iterable[Workload]) -> str:
    return next(iter(line)).workload_id
