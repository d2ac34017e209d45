"""One virtual cluster as the controller knows and remembers it: whose it is, its spec, and where its shares lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remora.kernel.cycle import Scheduler
from remora.kernel.observing import put_back
from remora.kernel.tree import QUEUED, VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.requests import plain_term
from remora.model.virtual_clusters import VirtualCluster
from remora.seam.port import Port
from remora.wire.classes import choice_from, cluster_key
from remora.wire.groups import decode_group, encode_group

CLOSED = "CLOSED"


@dataclass
class Berth:
    """That a virtual cluster is the share of a placement group in another one, and how far that is: offered, *taken* when GCS
    has reserved it for the group, and *left* when the group has ended or will not be created. ``ask`` names the question that
    it answers."""

    ask: str
    since: float
    group_id: str = ""
    taken: bool = False
    left: bool = False

    @property
    def under_way(self) -> bool:
        return not self.taken and not self.left


class Record:
    """One virtual cluster and whose it is. ``busy_at`` is when it last had work waiting or grew; ``offered`` says whether
    anything of it was ever offered to work: before that nothing can be queued at a raylet that wants its share."""

    __slots__ = ("berth", "busy_at", "idle_seconds", "job_id", "offered", "saved", "saved_as", "vcluster")

    def __init__(self, vcluster: VCluster, job_id: str, idle_seconds: float, now: float, berth: Berth | None = None) -> None:
        self.vcluster = vcluster
        self.berth = berth
        self.job_id = job_id
        self.idle_seconds = idle_seconds
        self.busy_at = now
        self.saved = b""
        self.saved_as: object = None
        self.offered = False

    @property
    def state(self) -> str:
        return CLOSED if self.vcluster.closing else self.vcluster.state


def stamp(record: Record) -> object:
    """Of a berth, what has to change for it to be remembered otherwise: there may be many, and they change seldom."""
    berth = record.berth
    if berth is None:
        return None
    return record.vcluster.layout, record.vcluster.closing, record.job_id, berth.group_id, berth.taken, berth.left


def encode(record: Record, node_id: Callable[[int], str]) -> bytes:
    vcluster = record.vcluster
    parent = vcluster.parent
    body: Mapping[str, Any] = {
        "spec": vcluster.spec.to_dict(),
        "parent": parent.cluster_id if parent is not None else None,
        "job": record.job_id,
        "priority": vcluster.priority,
        "order": vcluster.order,
        "idle": record.idle_seconds,
        "state": vcluster.state,
        "closing": vcluster.closing,
        "tolerations": [plain_term(term) for term in vcluster.tolerations.terms],
        "vnodes": [
            [_slot(vnode), node_id(vnode.node), _source(vnode), dict(sorted(vnode.total.items()))]
            for vnode in vcluster.vnodes()
        ],
        "berth": _encode_berth(record),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def stored(port: Port) -> list[tuple[str, bytes]]:
    """What is remembered, parents before children."""
    found = [(key.removeprefix(cluster_key("")), port.get(key) or b"") for key in port.keys(cluster_key(""))]
    return sorted([pair for pair in found if pair[1]], key=lambda pair: int(json.loads(pair[1])["order"]))


def restore(scheduler: Scheduler, known: Mapping[str, Record], cluster_id: str, data: bytes, now: float) -> Record:
    """It is as it was, but for nodes that are gone."""
    body = json.loads(data)
    parent = known[body["parent"]].vcluster if body["parent"] in known else None
    tolerations = choice_from([], body["tolerations"], [], None).tolerations
    spec = VirtualCluster.parse(body["spec"])
    group = decode_group(body["berth"]["group"].encode()) if body["berth"] is not None else None
    vcluster = VCluster(cluster_id, spec, parent, body["priority"], scheduler.next_order(), tolerations, group)
    vcluster.state, vcluster.closing = body["state"], body["closing"]
    scheduler.cluster.tree.add(vcluster)
    scheduler.cluster.tree.made += 1
    if vcluster.state == QUEUED:
        scheduler.queue.append(vcluster)
    for slot, node_id, source, total in body["vnodes"]:
        node = scheduler.cluster.nodes.by_id.get(node_id)
        if node is not None:
            above = parent.fixed[source] if parent is not None and source is not None else None
            put_back(scheduler.cluster, vcluster, slot, Host(parent, node.number, above), total)
    record = Record(vcluster, body["job"], body["idle"], now, _berth(body["berth"], now))
    record.saved = data
    record.offered = True  # as far as we know
    return record


def _encode_berth(record: Record) -> dict[str, Any] | None:
    berth, group = record.berth, record.vcluster.group
    if berth is None or group is None:
        return None
    how_far = {"ask": berth.ask, "group_id": berth.group_id, "taken": berth.taken, "left": berth.left}
    return {"group": encode_group(group).decode(), **how_far}


def _berth(body: Mapping[str, Any] | None, now: float) -> Berth | None:
    return None if body is None else Berth(body["ask"], now, body["group_id"], body["taken"], body["left"])


def _slot(vnode: VNode) -> int | None:
    return vnode.cluster.fixed.index(vnode) if vnode.fixed else None


def _source(vnode: VNode) -> int | None:
    """Which of the parent's fixed-size nodes it lies on."""
    return _slot(vnode.host.fixed) if vnode.host.fixed is not None else None
