"""Shares that their holders do not use for the moment: a worker that waits in ``ray.get``, or in front of a full node.

Ray gives the CPU of such a worker back, and we its share. A worker says so and says it again while it waits; when it ends, or
is not heard of any more, it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remora.kernel.shares import bump
from remora.model.resources import EMPTY, Resources
from remora.wire.fences import RENEW_SECONDS

_LOST_SECONDS = 3 * RENEW_SECONDS


@dataclass
class _Return:
    cluster_id: str
    node_id: str
    amounts: Resources
    heard_at: float
    starting: bool


class Returned:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._workers: dict[str, _Return] = {}

    def give(self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources, *, starting: bool = False) -> None:
        """This worker waits; ``starting``: for leave to start."""
        self._workers[worker_id] = _Return(cluster_id, node_id, amounts, self._now(), starting)

    def take(self, worker_id: str) -> bool:
        """It goes on; whether it was waiting."""
        return self._workers.pop(worker_id, None) is not None

    def waits(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def forget(self, nodes: Iterable[str]) -> None:
        """Those on other nodes are gone, and those that are not heard of any more."""
        alive = set(nodes)
        oldest = self._now() - _LOST_SECONDS
        gone = [worker for worker, each in self._workers.items() if each.heard_at < oldest or each.node_id not in alive]
        for worker_id in gone:
            del self._workers[worker_id]

    def on(self, cluster_id: str, node_id: str, *, lent: bool = False) -> Resources:
        """All that is given back of a cluster's share of a node; or only what others of the cluster may use meanwhile. Whoever
        waits to start keeps its token, so that nobody else comes to wait in its place."""
        amounts: dict[str, int] = {}
        for each in self._workers.values():
            if (each.cluster_id, each.node_id) == (cluster_id, node_id) and not (lent and each.starting):
                for name, units in each.amounts.pairs:
                    bump(amounts, name, units)
        return Resources(amounts) if amounts else EMPTY

    def places(self) -> set[tuple[str, str]]:
        return {(each.cluster_id, each.node_id) for each in self._workers.values()}

    def starters(self, cluster_id: str, node_id: str) -> list[tuple[str, Resources]]:
        """Who waits to start there, first come first."""
        return [
            (worker_id, each.amounts)
            for worker_id, each in self._workers.items()
            if each.starting and (each.cluster_id, each.node_id) == (cluster_id, node_id)
        ]
