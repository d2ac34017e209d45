"""Shares that their holders do not use for the moment: workers that wait in ``ray.get``, and those that stand in line.

Ray gives the CPU of a worker that waits back, and we *lend* its share to others. One that has what it waited for, or that is
about to start where its cluster uses too much, stands in line until there is room. All of them say so again and again; whoever
ends, or is not heard of any more, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from remora.kernel.shares import bump
from remora.model.resources import EMPTY, Resources
from remora.wire.fences import RENEW_SECONDS

_LOST_SECONDS = 3 * RENEW_SECONDS
_BURIED_SECONDS = 60.0


class Kind(Enum):
    LENT = "waits for others, who may use its share meanwhile"
    BACK = "has what it waited for: it goes on as soon as there is room, or soon without"
    STARTING = "starts as soon as there is room, here or elsewhere"
    BOUND = "starts as soon as there is room here: it cannot go elsewhere any more"
    SENT_ON = "was submitted once more, and waits for that: it uses nothing, and lends nothing"


@dataclass
class Standing:
    worker_id: str
    cluster_id: str
    node_id: str
    amounts: Resources
    kind: Kind
    since: float
    heard_at: float


class Returned:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._workers: dict[str, Standing] = {}
        self._let_in: dict[str, float] = {}  # those with leave that have not yet been told, and when they got it
        self._buried: dict[str, float] = {}  # workers that have ended: what they still say is old

    def hear(self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources, kind: Kind) -> None:
        """A worker says what it waits for, for the first time or again."""
        if worker_id in self._buried:
            return
        self._let_in.pop(worker_id, None)  # for something before this
        known = self._workers.get(worker_id)
        if known is not None and known.kind is kind:
            known.heard_at = self._now()
        else:
            now = self._now()
            self._workers.pop(worker_id, None)  # it comes last in its line
            self._workers[worker_id] = Standing(worker_id, cluster_id, node_id, amounts, kind, now, now)

    def bury(self, worker_id: str) -> bool:
        """It has ended; whether it was waiting. It may be heard of later than its death."""
        self._buried[worker_id] = self._now()
        return worker_id in self._workers

    def take(self, worker_id: str) -> bool:
        """It uses its share again, or has ended; whether it was waiting."""
        return self._workers.pop(worker_id, None) is not None

    def let_in(self, worker_id: str) -> None:
        """It has leave to go on, and uses its share from now on."""
        if self.take(worker_id):
            self._let_in[worker_id] = self._now()

    def has_leave(self, worker_id: str) -> bool:
        return worker_id in self._let_in

    def was_let_in(self, worker_id: str) -> bool:
        """Whether it got leave since it was last told. Who was only forgotten did not."""
        return self._let_in.pop(worker_id, None) is not None

    def find(self, worker_id: str) -> Standing | None:
        return self._workers.get(worker_id)

    def waits(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def forget(self, nodes: Iterable[str]) -> None:
        """Those on other nodes are gone, and those that are not heard of any more."""
        alive = set(nodes)
        oldest = self._now() - _LOST_SECONDS
        gone = [worker for worker, each in self._workers.items() if each.heard_at < oldest or each.node_id not in alive]
        for worker_id in gone:
            del self._workers[worker_id]
        for worker_id in [worker for worker, at in self._let_in.items() if at < oldest]:
            del self._let_in[worker_id]
        for worker_id in [worker for worker, at in list(self._buried.items()) if at < self._now() - _BURIED_SECONDS]:
            del self._buried[worker_id]

    def on(self, cluster_id: str, node_id: str, *, lent: bool = False) -> Resources:
        """All that is given back of a cluster's share of a node; or only what others of the cluster may use meanwhile. Whoever
        stands in line keeps its token, so that nobody else comes to stand there in its place."""
        amounts: dict[str, int] = {}
        for each in self._workers.values():
            if (each.cluster_id, each.node_id) == (cluster_id, node_id) and not (lent and each.kind is not Kind.LENT):
                for name, units in each.amounts.pairs:
                    bump(amounts, name, units)
        return Resources(amounts) if amounts else EMPTY

    def workers(self, cluster_id: str, node_id: str) -> list[str]:
        return [each.worker_id for each in self._workers.values() if (each.cluster_id, each.node_id) == (cluster_id, node_id)]

    def places(self) -> set[tuple[str, str]]:
        return {(each.cluster_id, each.node_id) for each in self._workers.values()}

    def line(self) -> list[Standing]:
        """Who wants to go on: first those that have begun already, then first come first."""
        back = [each for each in self._workers.values() if each.kind is Kind.BACK]
        return back + [each for each in self._workers.values() if each.kind in (Kind.STARTING, Kind.BOUND)]
