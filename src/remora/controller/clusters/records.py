"""One virtual cluster as the controller knows and remembers it: whose it is, its spec, and where its shares lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remora.kernel.cycle import Scheduler
from remora.kernel.placing.reserving import restore_vnode
from remora.kernel.state.cluster_tree import QUEUED, READY, VCluster, VNode
from remora.kernel.state.workloads import Host
from remora.model.requests import plain_term
from remora.model.resources import Resources
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.classes import choice_from
from remora.wire.group_requests import decode_group, encode_group

CLOSED = "CLOSED"
_MOST_SIZES = 64


@dataclass
class GroupShare:
    """That a virtual cluster is what a placement group has of another one, and how far that is: offered, *reserved* when GCS
    has reserved it for the group, and *released* when the group has ended or will not be created. ``ask`` names the question
    that it answers."""

    ask: str
    since: float
    group_id: str = ""
    reserved: bool = False
    released: bool = False

    @property
    def under_way(self) -> bool:
        """Whether a group may be about to reserve it."""
        return not self.reserved and not self.released


class Record:
    """One virtual cluster and whose it is: of a job, and of the process in it that asked. ``ask`` is the question that it was
    made for; ``busy_at`` is when it last had work waiting or grew, ``used_at`` when work of it was last seen to run.
    ``offered`` says whether anything of it was ever offered to work: before that nothing can be queued at a raylet that wants
    its share. ``sizes`` is how much of each resource single pieces of its work asked for; ``announced`` says whether anybody
    was told that it is ready. ``goal`` is the maximum that it comes down to, in units, while it has more; ``asks`` are the last
    questions by which it was changed."""

    __slots__ = (
        "announced",
        "ask",
        "asks",
        "busy_at",
        "goal",
        "group",
        "idle_seconds",
        "job_id",
        "made_at",
        "offered",
        "saved_as",
        "sizes",
        "used_at",
        "vcluster",
        "worker_id",
    )

    def __init__(
        self,
        vcluster: VCluster,
        job_id: str,
        idle_seconds: float,
        now: float,
        group: GroupShare | None = None,
        ask: str = "",
        worker_id: str = "",
    ) -> None:
        self.vcluster = vcluster
        self.ask = ask
        self.worker_id = worker_id
        self.group = group
        self.job_id = job_id
        self.idle_seconds = idle_seconds
        self.made_at = self.busy_at = self.used_at = now
        self.saved_as: object = None
        self.offered = False
        self.announced = False
        self.sizes: dict[str, set[int]] = {}
        self.goal: dict[str, int] = {}
        self.asks: list[str] = []

    def saw(self, demand: Resources) -> None:
        """Work of this size was asked for in it."""
        for name, units in demand.pairs:
            sizes = self.sizes.setdefault(name, set())
            if len(sizes) < _MOST_SIZES:
                sizes.add(units)

    @property
    def cluster_id(self) -> str:
        return self.vcluster.cluster_id

    @property
    def state(self) -> str:
        return CLOSED if self.vcluster.closing else self.vcluster.state

    @property
    def has_something(self) -> bool:
        """Whether it is open, or has not given everything back."""
        return self.state != CLOSED or any(self.vcluster.vnodes())


def stamp(record: Record) -> object:
    """Return what has to change for a record to be remembered otherwise."""
    group = record.group
    how_far = (group.group_id, group.reserved, group.released) if group is not None else None
    vcluster = record.vcluster
    changed = (vcluster.priority, tuple(record.goal.items()), tuple(record.asks))
    return vcluster.changes, vcluster.state, vcluster.closing, vcluster.spec, record.job_id, how_far, changed


def to_body(record: Record, node_id: Callable[[int], str]) -> dict[str, Any]:
    """Return a record in plain values."""
    vcluster = record.vcluster
    parent = vcluster.parent
    return {
        "spec": vcluster.spec.to_dict(),
        "parent": parent.cluster_id if parent is not None else None,
        "job": record.job_id,
        "ask": record.ask,
        "worker": record.worker_id,
        "priority": vcluster.priority,
        "order": vcluster.order,
        "idle": record.idle_seconds,
        "state": vcluster.state,
        "closing": vcluster.closing,
        "goal": record.goal,
        "asks": record.asks,
        "tolerations": [list(plain_term(term)) for term in vcluster.tolerations.terms],
        "vnodes": [
            [_slot(vnode), node_id(vnode.node), _source(vnode), dict(sorted(vnode.total.items()))]
            for vnode in vcluster.vnodes()
        ],
        "group": _group_body(record),
    }


def restore(scheduler: Scheduler, parent: VCluster | None, cluster_id: str, body: Mapping[str, Any], now: float) -> Record:
    """Return a record as it was, but for nodes that are gone, or that the cluster around it does not have. Nothing is changed
    when the body cannot be understood."""
    group_body = body["group"] if "group" in body else _of_version_1(body["berth"])
    group = decode_group(group_body["request"].encode()) if group_body is not None else None
    tolerations = choice_from([], body["tolerations"], [], None).tolerations
    spec = VirtualCluster.parse(body["spec"])
    vnodes = [
        (slot, str(node_id), source, {str(k): int(v) for k, v in total.items()})
        for slot, node_id, source, total in body["vnodes"]
    ]
    goal = {str(name): int(units) for name, units in (body.get("goal") or {}).items()}
    asks = [str(each) for each in body.get("asks") or ()]
    state, closing, priority = str(body["state"]), bool(body["closing"]), int(body["priority"])
    count = sum(len(nodes.nodes) for nodes in spec.fixed_size_nodes)
    if state not in (QUEUED, READY) or any(slot is not None and not 0 <= slot < count for slot, *_ in vnodes):
        raise ValueError(f"{cluster_id} is {state!r} with the fixed-size nodes {[slot for slot, *_ in vnodes]} of {count}")
    how_far = (
        None
        if group_body is None
        else GroupShare(group_body["ask"], now, group_body["group_id"], group_body["reserved"], group_body["released"])
    )
    job_id, idle, ask = (
        str(body["job"]),
        float(body["idle"]),
        str(body.get("ask") or (how_far.ask if how_far is not None else "")),
    )
    # From here on nothing fails.
    vcluster = VCluster(cluster_id, spec, parent, priority, scheduler.next_order(), tolerations, group)
    vcluster.state, vcluster.closing = state, closing
    scheduler.cluster.tree.add(vcluster)
    scheduler.cluster.tree.made += 1
    if vcluster.state == QUEUED:
        scheduler.queue.append(vcluster)
    for slot, node_id, source, total in vnodes:
        node = scheduler.cluster.nodes.by_id.get(node_id)
        if node is not None:
            above = parent.fixed[source] if parent is not None and source is not None and source < len(parent.fixed) else None
            if parent is not None and above is None and node.number not in parent.flex:
                continue  # a controller before us died before it had remembered what the cluster around it has there
            restore_vnode(scheduler.cluster, vcluster, slot, Host(parent, node.number, above), total)
    record = Record(vcluster, job_id, idle, now, how_far, ask, str(body.get("worker", "")))
    record.offered = True  # as far as we know
    record.goal, record.asks = goal, asks
    return record


def revive(scheduler: Scheduler, cluster_id: str, now: float) -> Record:
    """Return a record for a cluster of which nothing is remembered and something still runs or waits: closed, without limits,
    with nothing reserved. It has what its work needs, and ends with it."""
    vcluster = VCluster(
        cluster_id, VirtualCluster(), None, 0, scheduler.next_order(), choice_from([], [], [], None).tolerations
    )
    vcluster.state, vcluster.closing = READY, True
    scheduler.cluster.tree.add(vcluster)
    record = Record(vcluster, "", 0.0, now)
    record.offered = True
    return record


def _group_body(record: Record) -> dict[str, Any] | None:
    share, request = record.group, record.vcluster.group
    if share is None or request is None:
        return None
    return {
        "request": encode_group(request).decode(),
        "ask": share.ask,
        "group_id": share.group_id,
        "reserved": share.reserved,
        "released": share.released,
    }


def _of_version_1(berth: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if berth is None:
        return None
    how_far = {"group_id": berth["group_id"], "reserved": berth["taken"], "released": berth["left"]}
    return {"request": berth["group"], "ask": berth["ask"], **how_far}


def _slot(vnode: VNode) -> int | None:
    return vnode.cluster.fixed.index(vnode) if vnode.fixed else None


def _source(vnode: VNode) -> int | None:
    """Return which of the parent's fixed-size nodes it lies on."""
    return _slot(vnode.host.fixed) if vnode.host.fixed is not None else None
