"""Virtual clusters in a round of the controller: what they have of each node, who may start, and the tokens that say so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from remora.controller.apportion import Apportion, Room
from remora.controller.berths import Berths
from remora.controller.cluster_memory import CLOSED, Record
from remora.controller.clusters import Clusters, Units
from remora.controller.returned import Kind, Returned, Standing
from remora.controller.roster import Roster
from remora.controller.standing_in import StandIns
from remora.controller.steering import Note, Steering, Tokens
from remora.controller.wanted import part_tokens, waiting_in_clusters
from remora.kernel.classes import offered
from remora.kernel.confined import untainted
from remora.kernel.cycle import Scheduler
from remora.kernel.explain import Explanation
from remora.kernel.explain_groups import explain_group
from remora.kernel.nodesets import collect, members
from remora.kernel.tree import VNode
from remora.kernel.virtual_labels import admits, asks_labels, labels_of
from remora.kernel.workloads import Group
from remora.model.resources import Resources
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import VirtualCluster
from remora.seam.port import Demand, NodeView, Port
from remora.wire.classes import ClassSpec
from remora.wire.fences import ELSEWHERE, GO, ROOT, TOLD_SECONDS
from remora.wire.tokens import OFFERED, class_token, counts_for, share_of_token, works_in

_PATIENT_SECONDS = 2.0
_GROWING_SECONDS = 1.0
_OVERDRAWN = "{} uses more than it may until a worker that came back from ray.get ends, and nothing starts before"
_OWED = "a minimum is owed to another virtual cluster, and nobody takes more of {} before"
_IN_USE = "there is room for it, but what it would have is just being used; it is tried again"


class Sharing:
    def __init__(
        self, port: Port, scheduler: Scheduler, steering: Steering, roster: Roster, note: Note, now: Callable[[], float]
    ) -> None:
        self._cluster = scheduler.cluster
        self._steering = steering
        self._roster = roster
        self._now = now
        self.returned = Returned(now)
        self.clusters = Clusters(port, scheduler, self.returned, note, now)
        self.apportion = Apportion(self.clusters, self.returned, steering, port.ended)
        self.berths = Berths(port, self._cluster, self.clusters, steering, now)
        self.stand_ins = StandIns(self.clusters, self.berths.stands, steering, now)
        self.nodes: Mapping[str, NodeView] = {}
        self.loose: dict[int, Units] = {}
        self._seen: dict[str, set[str]] = {}  # by class: where its cluster has had a share
        self._open: dict[str, tuple[float, list[str]]] = {}  # when its cluster last had none, and where it was offered then
        self._asked_back: dict[str, set[str]] = {}  # by node: who starts nothing there because it only borrows
        self._overdrawn_since: dict[str, float] = {}

    @property
    def settled(self) -> bool:
        """Whether nothing is about to change by itself."""
        queued = any(self.clusters.called_back)
        closing = any(record.state == CLOSED and any(record.vcluster.vnodes()) for record in self.clusters.records.values())
        waiting = self.returned.line() or any(self._steering.full.values())
        return self.apportion.settled and self.berths.settled and not queued and not closing and not waiting

    # What owners and workers say

    def create(
        self, spec: VirtualCluster, parent_id: str | None, job_id: str, priority: int, tolerations: Tolerations, idle: float
    ) -> dict[str, Any]:
        record = self.clusters.create(spec, parent_id, job_id, priority, tolerations, idle)
        self.steer()
        return self.look(record.vcluster.cluster_id)

    def look(self, cluster_id: str) -> dict[str, Any]:
        """Its state; while it waits its place in the queue, and why."""
        record = self.clusters.get(cluster_id)
        where = {"position": self.clusters.position(record), "reason": self.clusters.why(record)}
        return {"cluster_id": cluster_id, "state": record.state, **where}

    def close(self, cluster_id: str, *, unused: bool) -> None:
        self.clusters.close(cluster_id, unused=unused)
        self.steer()

    def job_ended(self, job_id: str) -> None:
        self.clusters.job_ended(job_id)

    def want(self, hints: list[tuple[ClassSpec, Resources, int]]) -> None:
        grew = [self.clusters.want(spec, demand, count) for spec, demand, count in hints]
        if any(grew):
            self.steer()

    def request(self, cluster_id: str, asked: list[tuple[ClassSpec, Resources, int]]) -> None:
        if self.clusters.request(cluster_id, asked):
            self.steer()

    def wait(self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources) -> None:
        """A worker waits in ``ray.get``: others may use its share."""
        self.returned.hear(worker_id, cluster_id, node_id, amounts, Kind.LENT)
        self.steer()

    def come_back(self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources, *, again: bool = False) -> None:
        """It has what it waited for. Its share is lent no more, and it goes on when there is room; soon in any case."""
        if not (again and self.returned.has_leave(worker_id)):
            self.returned.hear(worker_id, cluster_id, node_id, amounts, Kind.BACK)
            self.steer()

    def enter(
        self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources, *, may_go: bool = True, again: bool = False
    ) -> None:
        """Something wants to start on a node where its cluster is full: it stands in line, without its share."""
        if not (again and self.returned.has_leave(worker_id)):
            self.returned.hear(worker_id, cluster_id, node_id, amounts, Kind.STARTING if may_go else Kind.BOUND)

    def is_overdrawn(self, cluster_id: str) -> bool:
        """Whether more is used than may be because a worker came back from ``ray.get``: nothing starts until that is repaid."""
        return cluster_id in self._overdrawn_since

    def offer_berth(self, group: Group, option: int, job_id: str, ask: str) -> tuple[Record | None, Explanation]:
        """A berth for a placement group, with its tokens in place; or none, and why. Ray would not look again at a group that
        has no room, nor stop one that gets it when it may not."""
        request, bundles = group.request, group.request.options[option]
        if self.is_overdrawn(request.cluster or ""):
            return None, Explanation(_OVERDRAWN.format(request.cluster))
        owed = {name for owed in self.clusters.called_back.values() for name in owed}
        needed = {name for bundle in bundles for name in bundle.resources}
        if owed & needed:
            return None, Explanation(_OWED.format(", ".join(sorted(owed & needed))))
        record = self.berths.answer_to(ask) or self.berths.make(replace(request, options=(bundles,)), job_id, ask)
        if record is None:
            return None, explain_group(self._cluster, group)
        self.steer()
        if self.berths.stands(record):
            return record, Explanation("")
        self.clusters.remove(record)
        self.steer()
        return None, Explanation(_IN_USE)

    def take_berth(self, cluster_id: str, group_id: str) -> None:
        self.berths.take(cluster_id, group_id)

    def leave_berth(self, berth_or_group: str) -> bool:
        """What the group had is its cluster's again as soon as its raylets have it back."""
        is_known = self.berths.leave(berth_or_group)
        if is_known:
            self.steer()
        return is_known

    def worker_ended(self, worker_id: str) -> None:
        """What it held is Ray's again."""
        self.returned.bury(worker_id)
        if self.returned.take(worker_id):
            self.steer()

    def sent_on(self, worker_id: str, cluster_id: str, node_id: str, amounts: Resources) -> None:
        """It was submitted once more and waits for that: it holds its token, and uses nothing."""
        self.returned.hear(worker_id, cluster_id, node_id, amounts, Kind.SENT_ON)

    def answer(self, worker_id: str) -> str | None:
        """What somebody in line is told; nothing while it has to wait."""
        if self.returned.was_let_in(worker_id):
            return GO
        standing = self.returned.find(worker_id)
        if standing is None or standing.kind is not Kind.STARTING or not self._will_wait_long(standing):
            return None
        self.returned.take(worker_id)
        if standing.cluster_id != ROOT:
            self.sent_on(worker_id, standing.cluster_id, standing.node_id, standing.amounts)
        return ELSEWHERE

    def _will_wait_long(self, standing: Standing) -> bool:
        """Whether its cluster has no share on its node that could ever take it, and got none for a while."""
        if self._now() - standing.since < _PATIENT_SECONDS or not self._is_here(standing):
            return False
        allowed = self._use(standing)[1]
        return any(units > allowed.get(name, 0) for name, units in standing.amounts.pairs)

    # In a round

    def observe(self, nodes: Mapping[str, NodeView]) -> None:
        self.nodes = nodes
        self.clusters.observe(nodes.values(), self._steering.held)

    def free(self, view: NodeView, total: Resources, available: Resources) -> Resources:
        """What of a node is in no virtual cluster and not in use; what work outside of them uses is kept in mind."""
        taken, used = self.clusters.taken(view.node_id)
        number = self._cluster.nodes.by_id[view.node_id].number
        loose = {name: max(total[name] - available.get(name, 0) - used.get(name, 0), 0) for name in total}
        self.loose[number] = {name: units for name, units in loose.items() if units}
        return Resources({name: total[name] - taken.get(name, 0) - loose[name] for name in total})

    def tend(self, demands: Iterable[Demand], classes: Mapping[str, ClassSpec]) -> None:
        """After everything was observed and placed."""
        self.loose = {number: used for number, used in self.loose.items() if self._cluster.nodes.alive >> number & 1}
        shapes = [(demand.shape, demand.count) for demand in demands if not demand.bundles]  # groups have berths
        self.berths.look()
        self.stand_ins.look(self.nodes)
        self.clusters.tend(waiting_in_clusters(shapes, classes), self.loose)
        self._find_borrowers()

    def steer(self) -> None:
        """The tokens of what was decided."""
        self._steer()
        if self.berths.sweep(self.nodes):
            self._steer()

    def _steer(self) -> None:
        self.clusters.save()
        self._drop_classes()
        besides: dict[str, Tokens] = {}
        parts: dict[str, Units] = {}
        latest = {node_id: self._steering.latest(node_id) for node_id in self.nodes}
        for class_id, spec in self._roster.offered.items():
            if spec.cluster is None:
                continue
            token = class_token(class_id)
            for node_id in self.offered(spec):
                if node_id in latest and token not in latest[node_id]:
                    besides.setdefault(node_id, {})[token] = OFFERED
            if any(asks_labels(choice) for choice in spec.choices):
                for node_id, units in part_tokens(self.clusters, spec, functools.partial(self._selects, spec)).items():
                    parts.setdefault(node_id, {}).update(units)
        self.apportion.steer(self.nodes, parts, besides, self._let_in)

    def offered(self, spec: ClassSpec) -> list[str]:
        """The nodes that a class of a virtual cluster is offered on. Where the cluster has been it stays welcome: without a
        share nothing of size starts there, and taking a class away is costly. Before it has any share it is welcome everywhere,
        and for a moment after: it may be about to grow there too."""
        record = self.clusters.records.get(spec.cluster or "")
        if record is None:
            return []
        nodes = [
            self._node_id(number) for number in members(offered(self._cluster, spec.choices, spec.demand, record.vcluster))
        ]
        seen = self._seen.setdefault(spec.class_id, set())
        if any(record.vcluster.vnodes()):
            seen.update(nodes)
        else:
            self._open[spec.class_id] = self._now(), nodes
        open_at, everywhere = self._open.get(spec.class_id, (-inf, []))
        welcomed = {*seen, *(everywhere if self._now() - open_at < _GROWING_SECONDS else ())}
        still = collect(self._cluster.nodes.by_id[each].number for each in welcomed if each in self._cluster.nodes.by_id)
        welcome = still & untainted(self._cluster, spec.choices[0])
        return list(dict.fromkeys([*nodes, *(self._node_id(number) for number in members(welcome))]))

    def tokens(self) -> frozenset[str]:
        """The share tokens of living clusters that are held somewhere."""
        owned = ((name, share_of_token(name)) for name in self._steering.held_names())
        return frozenset(
            name for name, owner in owned if owner is not None and self.clusters.may_have_work(counts_for(owner[0]))
        )

    def tree(self) -> list[dict[str, Any]]:
        """Every virtual cluster, parents first; not those that are closed and have given everything back, nor what placement
        groups have, which is used by whom they lie in."""
        records = (record for record in self.clusters.records.values() if record.berth is None)
        return [self.describe(record) for record in records if self.clusters.has_something(record)]

    def describe(self, record: Record) -> dict[str, Any]:
        vcluster = record.vcluster
        parent = vcluster.parent
        total: Units = {}
        used: Units = {}
        nodes = []
        for vnode in vcluster.vnodes():
            labels = labels_of(self._cluster, vnode)
            above = vnode.host.fixed or (parent.flex.get(vnode.node) if parent is not None else None)
            nodes.append(
                {
                    "vnode_id": vnode.vnode_id,
                    "node_id": self._node_id(vnode.node),
                    "parent": above.vnode_id if above is not None else self._node_id(vnode.node),
                    "fixed": vnode.fixed,
                    "labels": labels,
                    "total": Resources(vnode.total).to_dict(),
                    "used": Resources(vnode.used).to_dict(),
                }
            )
            for name in vnode.total:
                total[name] = total.get(name, 0) + vnode.total[name]
                used[name] = used.get(name, 0) + vnode.used.get(name, 0)
        limits = {name: self.clusters.cap(vcluster.cluster_id, name) for name in total}
        limits |= {name: self.clusters.cap(vcluster.cluster_id, name) for name in vcluster.spec.flexible_resource_max or ()}
        return {
            "cluster_id": vcluster.cluster_id,
            "parent": parent.cluster_id if parent is not None else None,
            "job_id": record.job_id,
            "state": record.state,
            "priority": vcluster.priority,
            "spec": vcluster.spec.to_dict(),
            "min": vcluster.minimum().to_dict(),
            "total": Resources(total).to_dict(),
            "used": Resources(used).to_dict(),
            "max": Resources({name: units for name, units in limits.items() if units is not None}).to_dict(),
            "position": self.clusters.position(record),
            "reason": self.clusters.why(record),
            "nodes": nodes,
        }

    # The rest

    def _find_borrowers(self) -> None:
        """Who uses more of a node than is left to it, because a minimum is owed to somebody else."""
        self._asked_back = {}
        for node_id, view in self.nodes.items():
            if node_id in self._cluster.nodes.by_id:
                number = self._cluster.nodes.by_id[node_id].number
                lenders = [each for each, where in self.clusters.called_back if each is not None and where == number]
                full = {
                    each
                    for each in lenders
                    if _beyond(self.clusters.running(each, node_id), self.clusters.allowed(each, node_id))
                }
                if _beyond(*self._outside(view)):
                    full.add(ROOT)
                self._asked_back[node_id] = full

    def _let_in(self, room: Room) -> None:
        """Between taking and giving: whoever stands in line goes on where the tokens that are out leave room. Who has begun
        already goes on soon in any case, but not before every worker knows that nothing else may start, and no placement group
        is about to reserve anything."""
        for each in self.returned.line():
            if each.kind is Kind.BACK:
                is_told = self._now() - self._overdrawn_since.get(each.cluster_id, inf) > TOLD_SECONDS
                if room.allows(each.cluster_id, each.amounts) or (is_told and not self.berths.under_way(self._overdrawn_since)):
                    self.returned.let_in(each.worker_id)
                room.use(each.node_id, each.cluster_id, each.amounts)
            elif self._may_start(each, room):
                self.returned.let_in(each.worker_id)
                room.use(each.node_id, each.cluster_id, each.amounts)
        overdrawn = room.overdrawn()
        for node_id in self.nodes:
            owners = (share_of_token(token) for token in self._steering.latest(node_id))
            here = overdrawn.intersection(works_in(owner[0]) for owner in owners if owner is not None)
            self._steering.tell_full(node_id, here.union(self._asked_back.get(node_id, ())))
        now = self._now()
        self._overdrawn_since = {cluster_id: self._overdrawn_since.get(cluster_id, now) for cluster_id in overdrawn}
        self.clusters.overdrawn = overdrawn

    def _may_start(self, each: Standing, room: Room) -> bool:
        if not self._is_here(each):
            return False
        if each.cluster_id != ROOT and each.cluster_id not in self.clusters.records:
            return True  # it is gone: nothing holds them up
        if not each.amounts.pairs:  # a placement group holds what it will use
            return each.cluster_id not in room.overdrawn()
        running, allowed = self._use(each)
        if any(running.get(name, 0) + units > allowed.get(name, 0) for name, units in each.amounts.pairs):
            return False
        return each.cluster_id == ROOT or room.admits(each.node_id, each.cluster_id, each.amounts)

    def _is_here(self, each: Standing) -> bool:
        return each.node_id in self._cluster.nodes.by_id and each.node_id in self.nodes

    def _use(self, each: Standing) -> tuple[Units, Units]:
        """What others like it use of its node, by the last report, and what they may."""
        if each.cluster_id == ROOT:
            return self._outside(self.nodes[each.node_id])
        if each.cluster_id not in self.clusters.records:
            return {}, dict(each.amounts)
        return self.clusters.running(each.cluster_id, each.node_id), self.clusters.allowed(each.cluster_id, each.node_id)

    def _outside(self, view: NodeView) -> tuple[Units, Units]:
        """What work in no virtual cluster uses of a node, and what it may."""
        node = self._cluster.nodes.by_id[view.node_id]
        taken = self.clusters.taken(view.node_id)[0]
        less = self.clusters.called_back.get((None, node.number), {})
        if not taken and not less:
            return {}, dict(node.total)
        allowed = {name: units - taken.get(name, 0) - less.get(name, 0) for name, units in node.total.items()}
        return self.loose.get(node.number, {}), allowed

    def _selects(self, spec: ClassSpec, vnode: VNode) -> bool:
        return any(admits(choice, labels_of(self._cluster, vnode)) for choice in spec.choices)

    def _drop_classes(self) -> None:
        """The classes of a cluster that is gone are nobody's."""
        gone = [
            class_id
            for class_id, spec in self._roster.offered.items()
            if spec.cluster is not None and spec.cluster not in self.clusters.records
        ]
        for class_id in gone:
            self._roster.drop(class_id)
            self._seen.pop(class_id, None)
            self._open.pop(class_id, None)

    def _node_id(self, number: int) -> str:
        return self._cluster.nodes.at(number).node_id


def _beyond(used: Units, allowed: Units) -> bool:
    return any(units > allowed.get(name, 0) for name, units in used.items())
