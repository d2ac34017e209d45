"""What the cluster is asked, and what it answers: who lives, what became of an actor, a group or a name, and once in a while
everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remora.controller.clusters.lending import Lending
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.share_writer import ShareWriter
from remora.controller.effects import Done, Effect, Find, FindAll, FindEnded
from remora.controller.groups.group_shares import GroupShares
from remora.controller.leases.leases import Leases
from remora.port.contract import ACTOR, JOB, Work
from remora.wire.owners import share_in

_ALL_SECONDS = 15.0
"""Once in a while every actor and job is looked up, however quiet the feeds are: a message may be lost."""


class Questions:
    """``job_ended`` and ``worker_ended`` are told of those of which no message came."""

    def __init__(
        self,
        clock: Callable[[], float],
        leases: Leases,
        groups: GroupShares,
        registry: Registry,
        lending: Lending,
        shares: ShareWriter,
        job_ended: Callable[[str], None],
        worker_ended: Callable[[str], bool],
    ) -> None:
        self._now = clock
        self._leases = leases
        self._groups = groups
        self._registry = registry
        self._lending = lending
        self._shares = shares
        self._job_ended = job_ended
        self._worker_ended = worker_ended
        self._unsure: set[str] = set()  # workers of which a message that they ended may have been lost
        self._doubted: dict[tuple[str, ...], None] = {}  # workers to be asked about, those of one place together
        self._inquiries: dict[str, list[Work] | None] = {}  # what somebody wants to know about, and the answer
        self._all_at = clock()

    def plan(self) -> list[Effect]:
        """Return all that has to be asked now."""
        questions: list[Effect] = [*self._leases.actors.due()]
        if self._unsure:
            questions.append(FindEnded(tuple(sorted(self._unsure))))
        questions += [*self._groups.queries(), *self._leases.failover.plan()]
        questions += [FindEnded(workers) for workers in self._doubted]
        questions += [Find(id_or_name) for id_or_name, found in self._inquiries.items() if found is None]
        if self._now() - self._all_at > _ALL_SECONDS:
            questions.append(FindAll(self._now()))
        return questions

    def inquire(self, id_or_name: str) -> list[Work] | None:
        """Return what the cluster knows of an id or a name, each time looked up anew; None while it is being looked up."""
        found = self._inquiries.get(id_or_name)
        if found is None:
            self._inquiries[id_or_name] = None
            return None
        del self._inquiries[id_or_name]
        return found

    def doubt_who_waits(self, node_id: str, tokens: Iterable[str]) -> None:
        """Less of these shares is free on a node: that may be what a worker gave back which was killed while it waited. Until
        it is known who lives, nothing counts as lent there; or it would be given twice."""
        for share in map(share_in, tokens):
            if share is not None and share.owner.group is None and not share.owner.is_part:
                doubted = self._lending.doubt((share.owner.cluster, node_id))
                if doubted:
                    self._doubted[tuple(doubted)] = None

    def worker_ended(self, worker_id: str) -> None:
        """That a worker has ended is known."""
        self._unsure.discard(worker_id)

    # Answers

    def found(self, id_or_name: str, done: Done) -> None:
        """Take in what was looked up under an id or a name."""
        if done.error:
            if self._leases.actors.is_looked_up(id_or_name):
                self._leases.actors.look_again(id_or_name)
            return
        if id_or_name in self._inquiries:
            self._inquiries[id_or_name] = done.answer
        if self._leases.actors.is_looked_up(id_or_name):
            self._leases.found(id_or_name, done.answer)
        if self._groups.is_asked(id_or_name):
            self._groups.found(id_or_name, done.answer)
            self._shares.look = True

    def found_all(self, done: Done) -> None:
        if not done.error:
            assert isinstance(done.effect, FindAll)
            self._all_at = self._now()
            self.see_all(done.effect, done.answer)

    def see_all(self, found: FindAll, works: list[Work]) -> None:
        """Take in every actor and job that there is."""
        self._leases.see_all([work for work in works if work.kind == ACTOR], found.asked_at)
        self._unsure |= {*self._leases.workers(), *self._registry.workers()}
        running = {work.job_id for work in works if work.kind == JOB}
        of_clusters = {each.job_id for each in self._registry.records.values() if each.made_at < found.asked_at}
        for job_id in (of_clusters | self._leases.jobs(found.asked_at)) - running - {""}:
            self._job_ended(job_id)

    def found_ended(self, worker_ids: tuple[str, ...], done: Done) -> None:
        """Take in which of these workers have ended."""
        if done.error:
            return
        self._doubted.pop(worker_ids, None)
        ended = set(done.answer)
        for worker_id in ended:
            self._worker_ended(worker_id)
        living = [worker_id for worker_id in worker_ids if worker_id not in ended]
        self._unsure.difference_update(living)
        self._lending.believe(living)
        self._shares.look = True
