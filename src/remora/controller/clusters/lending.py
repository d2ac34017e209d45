"""Shares that their holders do not use for the moment: workers that wait in ``ray.get``, and those that wait for admission.

Ray gives the CPU of a worker that waits back, and we *lend* its share to others. One that has what it waited for reclaims it;
one that is about to start where its cluster uses too much waits for *admission*. All of them say so again and again; whoever
ends, or is not heard of any more, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from remora.model.resources import EMPTY, Resources
from remora.wire.fences import GO
from remora.wire.timing import BURIED_SECONDS, LOST_SECONDS

Place = tuple[str, str]
"""A virtual cluster, and a node."""


class Kind(Enum):
    LENT = "waits for others, who may use its share meanwhile"
    RETURNING = "has what it waited for: it goes on as soon as there is room, or soon without"
    STARTING = "starts as soon as there is room, here or elsewhere"
    BOUND = "starts as soon as there is room here: it cannot go elsewhere any more"
    RESUBMITTED = "was submitted once more and waits for that: it uses nothing, and lends nothing"


_LENDING = (Kind.LENT, Kind.RESUBMITTED)


@dataclass(slots=True)
class Waiter:
    """One worker that holds a share and does not use it; ``part`` is what its class selects of its cluster."""

    worker_id: str
    cluster_id: str
    node_id: str
    amounts: Resources
    kind: Kind
    since: float
    heard_at: float
    part: str = ""

    @property
    def place(self) -> Place:
        return self.cluster_id, self.node_id

    @property
    def is_in_line(self) -> bool:
        """Return whether it wants to go on."""
        return self.kind not in _LENDING


class Lending:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._waiters: dict[str, Waiter] = {}
        self._in_line: dict[str, Waiter] = {}  # those of them that want to go on
        self._at: dict[Place, dict[str, None]] = {}
        self._clusters_at: dict[str, dict[str, None]] = {}  # by node
        self._nodes_of: dict[str, dict[str, None]] = {}  # by cluster
        self._admitted: dict[str, float] = {}  # those that have not yet been told, and when they were admitted
        self._dead: dict[str, float] = {}  # what they still say is old
        self._turns: dict[
            str, tuple[float, str | None, float]
        ] = {}  # when each began to say what it said last, what it was told
        self._doubted: set[str] = set()  # they may be dead, and what they gave back may have been taken away already
        self._watchers: list[set[Place]] = []

    def watch(self) -> set[Place]:
        """Return a set to which every place is added where anybody comes, goes or waits for something else. Whoever has it
        empties it."""
        self._watchers.append(set(self._at))
        return self._watchers[-1]

    # What workers say

    def hear(
        self,
        worker_id: str,
        cluster_id: str,
        node_id: str,
        amounts: Resources,
        kind: Kind,
        turn: float | None = None,
        part: str = "",
    ) -> None:
        """A worker says what it waits for, for the first time or again. What it began to say before something that it said
        since, or that it has been answered, is not heard."""
        if worker_id in self._dead or (turn is not None and self.answered(worker_id, turn) is not None):
            return
        if turn is not None:
            self._turns[worker_id] = turn, None, self._now()
        self._admitted.pop(worker_id, None)  # that was for something before this
        known, now = self._waiters.get(worker_id), self._now()
        if known is not None and known.kind is kind and known.place == (cluster_id, node_id):
            known.heard_at = now
            return
        self.remove(worker_id)  # it comes last in its line
        waiter = self._waiters[worker_id] = Waiter(worker_id, cluster_id, node_id, amounts, kind, now, now, part)
        if waiter.is_in_line:
            self._in_line[worker_id] = waiter
        self._at.setdefault((cluster_id, node_id), {})[worker_id] = None
        self._clusters_at.setdefault(node_id, {})[cluster_id] = None
        self._nodes_of.setdefault(cluster_id, {})[node_id] = None
        self._touch((cluster_id, node_id))

    def answered(self, worker_id: str, turn: float) -> str | None:
        """Return what a worker was told that began to ask at this time by its clock; whoever has said something since goes on.
        None while it is to be answered."""
        latest, told, _ = self._turns.get(worker_id, (turn, None, 0.0))
        return GO if turn < latest else told if turn == latest else None

    def tell(self, worker_id: str, answer: str) -> str:
        """Note what a worker is told. Return it."""
        turn = self._turns.get(worker_id, (0.0, None, 0.0))[0]
        self._turns[worker_id] = turn, answer, self._now()
        return answer

    def mark_dead(self, worker_id: str) -> bool:
        """A worker has ended; what is heard of it later is not believed. Return whether it was waiting."""
        self._dead[worker_id] = self._now()
        return self.remove(worker_id)

    def remove(self, worker_id: str) -> bool:
        """A worker uses its share again, or has ended. Return whether it was waiting."""
        waiter = self._waiters.pop(worker_id, None)
        if waiter is None:
            return False
        self._doubted.discard(worker_id)
        self._in_line.pop(worker_id, None)
        del self._at[waiter.place][worker_id]
        if not self._at[waiter.place]:
            del self._at[waiter.place]
            for index, one, other in (
                (self._clusters_at, waiter.node_id, waiter.cluster_id),
                (self._nodes_of, waiter.cluster_id, waiter.node_id),
            ):
                del index[one][other]
                if not index[one]:
                    del index[one]
        self._touch(waiter.place)
        return True

    def admit(self, worker_id: str) -> None:
        """A worker may go on, and uses its share from now on."""
        if self.remove(worker_id):
            self._admitted[worker_id] = self._now()

    def doubt(self, place: Place) -> list[str]:
        """What stands at a place was lowered, perhaps by what a dead worker gave back: until it is known who lives, nothing
        there counts as lent. Return the workers to ask about."""
        doubted = list(self._at.get(place, ()))
        if doubted:
            self._doubted.update(doubted)
            self._touch(place)
        return doubted

    def believe(self, worker_ids: Iterable[str]) -> None:
        """These were asked about and have not ended."""
        for worker_id in self._doubted.intersection(worker_ids):
            self._doubted.discard(worker_id)
            self._touch(self._waiters[worker_id].place)

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Forget workers on nodes that are gone, and those that are not heard of any more."""
        if not (self._waiters or self._admitted or self._dead or self._turns):
            return
        oldest = self._now() - LOST_SECONDS
        for worker_id in [each for each, (_, _, at) in self._turns.items() if at < self._now() - BURIED_SECONDS]:
            if worker_id not in self._waiters:
                del self._turns[worker_id]
        for waiter in [each for each in self._waiters.values() if each.heard_at < oldest or not is_alive(each.node_id)]:
            self.remove(waiter.worker_id)
        for table, age in ((self._admitted, LOST_SECONDS), (self._dead, BURIED_SECONDS)):
            for worker_id in [each for each, at in table.items() if at < self._now() - age]:
                del table[worker_id]

    # What is known

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def find(self, worker_id: str) -> Waiter | None:
        return self._waiters.get(worker_id)

    def is_admitted(self, worker_id: str) -> bool:
        """Return whether a worker was admitted and has not been told yet."""
        return worker_id in self._admitted

    def tell_admitted(self, worker_id: str) -> bool:
        """Return whether a worker was admitted since it was last told; from now on it is told. Who was forgotten was not."""
        return self._admitted.pop(worker_id, None) is not None

    def idle(self, cluster_id: str, node_id: str) -> Resources:
        """Return all that is held and not used of a cluster's share of a node. Of those in doubt nothing is counted."""
        return self._sum((cluster_id, node_id), lambda each: each.worker_id not in self._doubted)

    def lent(self, cluster_id: str, node_id: str) -> Resources:
        """Return what others of the cluster may use meanwhile: also the same work that was submitted again. Whoever waits for
        admission keeps its token, so that nobody else comes to wait there in its place."""
        return self._sum((cluster_id, node_id), lambda each: each.kind in _LENDING)

    def parts_lent(self, node_id: str) -> list[tuple[str, Resources]]:
        """Return what is lent on a node by workers whose classes select a part of their cluster, with that part."""
        waiters = (
            self._waiters[worker_id] for cluster_id in self.clusters_at(node_id) for worker_id in self._at[cluster_id, node_id]
        )
        return [(each.part, each.amounts) for each in waiters if each.part and each.kind in _LENDING]

    def nodes_of(self, cluster_id: str) -> Collection[str]:
        """Return the nodes on which workers of a cluster wait."""
        return self._nodes_of.get(cluster_id, ())

    def clusters_at(self, node_id: str) -> Collection[str]:
        """Return the clusters whose workers wait on a node."""
        return self._clusters_at.get(node_id, ())

    def line(self) -> list[Waiter]:
        """Return who wants to go on: first those that have begun already, then first come first."""
        returning = [each for each in self._in_line.values() if each.kind is Kind.RETURNING]
        return returning + [each for each in self._in_line.values() if each.kind is not Kind.RETURNING]

    @property
    def any_in_line(self) -> bool:
        return bool(self._in_line)

    def validate(self) -> None:
        """Raise AssertionError when the index contradicts the table."""
        assert {worker for here in self._at.values() for worker in here} == self._waiters.keys()
        assert all(worker in self._at[each.place] for worker, each in self._waiters.items())
        assert not self._dead.keys() & self._waiters.keys()
        assert {(each, node_id) for node_id, here in self._clusters_at.items() for each in here} == self._at.keys()
        assert {(each, node_id) for each, nodes in self._nodes_of.items() for node_id in nodes} == self._at.keys()
        assert self._in_line == {worker: each for worker, each in self._waiters.items() if each.is_in_line}
        assert self._doubted <= self._waiters.keys()

    def _touch(self, place: Place) -> None:
        for watcher in self._watchers:
            watcher.add(place)

    def _sum(self, place: Place, counts: Callable[[Waiter], bool]) -> Resources:
        workers = self._at.get(place)
        if not workers:
            return EMPTY
        units: dict[str, int] = {}
        for worker_id in workers:
            waiter = self._waiters[worker_id]
            if counts(waiter):
                for name, amount in waiter.amounts.pairs:
                    units[name] = units.get(name, 0) + amount
        return Resources(units) if units else EMPTY
