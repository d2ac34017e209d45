"""Known bugs, put back one at a time: how many lives does it take to find each?

Each rule is the old behaviour as a small patch of today's code. The numbers are those of the review in which a bug was found;
rules without one were found by lives themselves.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.world import bodies
from tests.world.clients import Submitter
from tests.world.processes import LATER

from remora.controller import answering, recovery
from remora.controller.assumed import Assumed
from remora.controller.clusters import growing
from remora.controller.clusters.admission import Admission
from remora.controller.clusters.growing import Growing
from remora.controller.clusters.lending import Kind, Lending
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.share_writer import ShareWriter
from remora.controller.leases import lease_tokens
from remora.controller.leases.failover import Failover
from remora.controller.leases.known_actors import KnownActors
from remora.controller.leases.lease_table import LeaseTable
from remora.controller.leases.lease_tokens import LeaseTokens
from remora.controller.leases.leases import Leases
from remora.controller.leases.slots import Slots
from remora.controller.leases.undecided import Undecided
from remora.controller.scaling.keeper import Keeper
from remora.controller.scaling.machines import Machines
from remora.controller.tokens import holds
from remora.controller.tokens.class_tokens import ClassTokens
from remora.errors import RemoraError
from remora.kernel.placing import inside
from remora.kernel.placing.gang import Gang, Item
from remora.kernel.sharing.reclaim import reclaim
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY
from remora.kernel.state.workloads import Host
from remora.model.resources import from_units
from remora.protocol.admission_steps import wait_for_admission
from remora.protocol.steps import MarkIdle, ReadFence, Steps
from remora.wire.asks import decode_ask
from remora.wire.calls import CloseCluster, Place, Who
from remora.wire.fences import OPEN
from remora.wire.owners import share_in
from remora.wire.tokens import TAKEN, lease_token

Rule = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def put_back(rule: str) -> Iterator[None]:
    """While it lasts a rule is the old one."""
    with RULES[rule]():
        yield


def _is(target: Any, **old: Any) -> Rule:
    """The old rule has other members of a class or module."""

    @contextlib.contextmanager
    def patched() -> Iterator[None]:
        before = {name: getattr(target, name) for name in old}
        for name, value in old.items():
            setattr(target, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(target, name, value)

    return patched


def _nothing(*_: Any, **__: Any) -> None: ...


def _release(self: Cluster, workload: Any) -> None:
    """What a confirmed one took is given back too, though a report has given it back already."""
    self._give_back(workload)
    self._unindex(workload)
    workload.confirmed = False


def _place_together(self: Failover, group: list[Any]) -> bool:
    """On the physical cluster, wherever they are."""
    cluster = self._scheduler.cluster
    items = [Item(each.workload.request.resources, each.workload.request.choices[0]) for each in group]
    hosts = Gang(cluster, None, items, ["STRICT_PACK"], [None] * len(items), by_node=True).place()
    if hosts is None:
        return False
    for each in group:
        cluster._index(each.workload, Host(None, hosts[0].node, None))
    return True


_restore_clusters, _end_what_ended = recovery._restore_clusters, recovery._end_what_ended


def _end_with_clusters(controller: Any, *args: Any) -> None:
    _restore_clusters(controller)
    _end_what_ended(controller, *args)


class _Unlocked:
    alive = False


_perform = Submitter.perform


def _perform_unlocked(self: Submitter, thread: Any, step: Any) -> Any:
    """The file of a marker is there a moment before it is locked."""
    if not isinstance(step, MarkIdle):
        return _perform(self, thread, step)
    markers: dict[str, Any] = self._world.markers.setdefault(self._process.node_id, {})
    markers[step.worker_id] = _Unlocked()

    def lock() -> None:
        markers[step.worker_id] = self._process
        thread.go()

    self._world.after(0.002, lock)
    return LATER


@contextlib.contextmanager
def _slot_told_at_once() -> Iterator[None]:
    def place(controller: Any, call: Place) -> Any:
        ask = decode_ask(call.request)
        answer = controller.leases.place(call.ask, ask, call.job_id, call.worker_id)
        controller.growing.offer(ask.request.cluster, ask.request.demand)
        return answering.value(answer)

    with _handled_by(Place, place):
        yield


@contextlib.contextmanager
def _handled_by(kind: type, handler: Any) -> Iterator[None]:
    before = answering.handlers[kind]
    answering.handlers[kind] = handler
    try:
        yield
    finally:
        answering.handlers[kind] = before


def _wait_for_admission(who: Who, orphans: Sequence[str], *, class_id: str | None, in_group: bool) -> Steps[bool]:
    """Whoever is admitted does not look at the fence once more."""
    protocol = wait_for_admission(who, orphans, class_id=class_id, in_group=in_group)
    answer: Any = None
    error: RemoraError | None = None
    while True:
        try:
            step = protocol.throw(error) if error is not None else protocol.send(answer)
        except StopIteration as end:
            admitted: bool = end.value
            return admitted
        answer, error = None, None
        try:
            answer = OPEN if isinstance(step, ReadFence) else (yield step)
        except RemoraError as raised:
            error = raised


def _move_token(self: LeaseTokens, slot: str, _: Any) -> None:
    """The old token goes as soon as the new one stands."""
    lease, token = self._table.by_slot[slot], lease_token(slot)
    if lease.token_on is not None and self._tokens._book.amount(lease.token_on, token) <= TAKEN / 2:
        return
    if lease.leaving is not None and lease.leaving != lease.token_on:
        self._tokens.drop_lease(lease.leaving, token)
    lease.leaving = None
    del self._leaving[slot]


def _lower_parts(self: ShareWriter, view: Any) -> dict[str, float]:
    """Nothing of a part is held."""
    wanted = self._wanted.parts_on(view.node_id)
    shares = {token: share_in(token) for token in self._book.tokens(view.node_id)}
    return {
        token: from_units(wanted.get(token, 0))
        for token, share in shares.items()
        if share is not None and share.owner.is_part and self._book.free_of_holds(view.node_id, token) > wanted.get(token, 0)
    }


@contextlib.contextmanager
def _unused_with_all_inside() -> Iterator[None]:
    def close(controller: Any, call: CloseCluster) -> Any:
        asked = controller.registry.by_ask(call.cluster_id)
        for record in controller.registry.close(asked.cluster_id if asked is not None else call.cluster_id):
            controller.growing.close(record, unused=call.unused)
        return answering.value(None)

    with _handled_by(CloseCluster, close):
        yield


_trim_one = shares.trim_one


def _trim(cluster: Cluster, vcluster: Any) -> None:
    """Whatever is idle above it is given back with it."""
    for ancestor in vcluster.chain():
        _trim_one(cluster, ancestor)


def _is_kept(_: ShareWriter, record: Any) -> bool:
    return record is not None and not record.vcluster.closing and record.offered and record.group is None


def _lent(self: Lending, cluster_id: str, node_id: str) -> Any:
    return self._sum((cluster_id, node_id), lambda each: each.kind is Kind.LENT)


_find_borrowers, _reclaim = Admission.find_borrowers, reclaim


def _find_those_asked(self: Admission, reclaimed: Any, _: Any) -> bool:
    """Who uses more than its share is fenced only where a minimum in the queue was found to need it."""
    return _find_borrowers(self, reclaimed, ())


def _reclaim_for_the_queue(cluster: Cluster, waiting: Any, beyond: Any) -> Any:
    """What has lost its minimum with a node is not in the queue."""
    return None if waiting.state == READY else _reclaim(cluster, waiting, beyond)


def _reclaim_shares(cluster: Cluster, waiting: Any, beyond: Any) -> Any:
    """Only shares are reclaimed, and not what is used beyond them."""
    return _reclaim(cluster, waiting, {place: used for place, used in beyond.items() if place[0] is None})


_overdue, _is_crowded, _keep = Assumed.overdue, inside.is_crowded, Keeper.keep


def _overdue_unasked(self: Assumed) -> Any:
    """What should have begun to start is decided again by what was told, though a message may have been lost."""
    found = _overdue(self)
    for entry in found:
        entry.asked = True
    return found


def _crowded_only_if_owned(*args: Any, above: bool = False) -> bool:
    """A share grows on a node that others have filled too."""
    return not above and _is_crowded(*args)


def _lowest_group_id(self: Registry, cluster_id: str) -> str:
    """The name of a share that was given back is given again at once."""
    return next(name for number in itertools.count(1) if self._is_free(name := f"{cluster_id}+{number}"))


def _keep_for_ever(self: Keeper, wanted: Any, views: Any) -> None:
    """Whatever was kept once stays."""
    _keep(self, {**{node_id: kept for node_id, kept in self.kept.items() if node_id in views}, **wanted}, views)


def _stands(view: Any, lease: Any) -> bool:
    """Whether there is a share beside a token of a lease is not looked at."""
    return bool(view.total.get(lease_token(lease.slot), 0.0) > TAKEN / 2)


RULES: dict[str, Rule] = {
    # Of the review
    "1-trim-ignores-assumed": _is(Assumed, is_in=lambda *_: False, inside=lambda *_: {}),
    "2-clusters-after-leases": _is(recovery, _restore_clusters=_nothing, _end_what_ended=_end_with_clusters),
    "3-orphaned-leases-dropped": _is(Leases, orphaned=_nothing),
    "5-together-outside-the-cluster": _is(Failover, _place_together=_place_together),
    "6-given-back-twice": _is(Cluster, release=_release),
    "8-marker-before-its-lock": _is(Submitter, perform=_perform_unlocked),
    "9-clusters-without-ask-ids": _is(Registry, by_ask=lambda *_: None),
    "9-leases-without-ask-ids": _is(LeaseTable, answer_to=lambda *_: None),
    "10-leases-of-dead-callers": _is(Leases, worker_ended=_nothing),
    "11-generation-forgotten": _is(recovery, _generations=lambda *_: 0, _read_or=lambda kind, found, default, unread: default),
    "hold-names-cut": _is(holds, hold_name=lambda node_id, number: f"remora-hold-{node_id[:16]}-{number}"),
    # Of the lives
    "back-from-get-at-once": _is(Admission, _may_go_on=lambda *_: True),
    "dead-workers-believed": _is(Lending, mark_dead=lambda self, worker_id: self.remove(worker_id)),
    "class-offered-before-remembered": _is(ClassTokens, _is_remembered=lambda *_: True),
    "closed-cluster-shrinks": _is(ShareWriter, _is_kept=_is_kept),
    "messages-without-turns": _is(Lending, answered=lambda *_: None),
    "old-token-goes-at-once": _is(LeaseTokens, _move=_move_token),
    "resubmitted-keep-their-share": _is(Lending, lent=_lent),
    "no-share-for-default-actors": _is(Growing, _grow_for_starting=_nothing),
    "slot-told-before-remembered": _slot_told_at_once,
    "part-taken-without-a-hold": _is(ShareWriter, _lower_parts=_lower_parts),
    "part-not-lent": _is(Lending, parts_lent=lambda *_: []),
    "share-on-a-full-node-counted-on": _is(inside, is_crowded=lambda *_: False),
    "trim-takes-from-above": _is(shares, trim_one=_trim),
    "unused-with-all-inside": _unused_with_all_inside,
    "start-after-a-taint": _is(bodies, wait_for_admission=_wait_for_admission),
    "borrowers-not-fenced": _is(Admission, find_borrowers=_find_those_asked),
    "lost-minimum-not-reclaimed": _is(growing, reclaim=_reclaim_for_the_queue),
    "use-beyond-a-share-not-reclaimed": _is(growing, reclaim=_reclaim_shares),
    "lease-moves-before-its-share": _is(lease_tokens, _could_hold=_stands),
    "late-copy-answered-anew": _is(LeaseTable, answered=lambda *_: None),
    "slot-of-a-late-one-given-again": _is(Slots, keep=lambda self, slot, *_: self.give_back(slot)),
    "old-restarts-believed": _is(KnownActors, is_old=lambda *_: False),
    "lost-starts-decided-again": _is(Assumed, overdue=_overdue_unasked),
    "sizes-told-with-the-work": _is(Submitter, is_new=lambda *_: False),
    "share-grows-on-a-full-node": _is(inside, is_crowded=_crowded_only_if_owned),
    "share-names-given-at-once": _is(Registry, _free_group_id=_lowest_group_id),
    "taint-answered-before-tokens-go": _is(ClassTokens, is_lowered=lambda *_: True),
    "undecided-lost-with-their-cluster": _is(Undecided, in_cluster=lambda *_: []),
    "machines-coming-forgotten": _is(Machines, coming=property(lambda _: {})),
    "machines-kept-for-ever": _is(Keeper, keep=_keep_for_ever),
}
