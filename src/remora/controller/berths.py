"""Berths: what placement groups have of the virtual clusters that they lie in.

Ray's placement groups have no guard: one that waits in GCS reserves whatever comes back first, and nobody could stop it. So a
group in a virtual cluster is a cluster inside of it, with a token of its own for each bundle on the node that was chosen for
it: nothing that others give back lets it in. It is created when its tokens stand there, and is *under way* until its creator
says that GCS has reserved it, or that it will not be. Meanwhile nobody goes on beyond a maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from remora.controller.cluster_memory import Berth, Record
from remora.controller.clusters import Clusters
from remora.controller.steering import Steering
from remora.kernel.cluster import Cluster
from remora.kernel.confined import untainted
from remora.kernel.tree import VNode
from remora.model.groups import GroupRequest
from remora.model.resources import from_units
from remora.seam.port import ENDED, GROUP, RUNNING, Port, Work
from remora.wire.tokens import TAKEN, bundle_id, counts_for, is_hold, share_of_token, share_token

_CREATED_SECONDS = 15.0
"""After so long without a word, whoever was to create a group has died over it."""


class Berths:
    def __init__(self, port: Port, cluster: Cluster, clusters: Clusters, steering: Steering, now: Callable[[], float]) -> None:
        self._port = port
        self._cluster = cluster
        self._clusters = clusters
        self._steering = steering
        self._now = now

    # What creators ask and say

    def make(self, request: GroupRequest, job_id: str, ask: str) -> Record | None:
        """Reserved by the kernel, or not at all; its tokens have yet to come. ``request`` has one option."""
        return self._clusters.enclose(request, job_id, ask)

    def answer_to(self, ask: str) -> Record | None:
        """What was offered already to somebody who asks once more, because the controller died in between."""
        return next((record for record, berth in self._clusters.berths() if berth.ask == ask and not berth.left), None)

    def take(self, cluster_id: str, group_id: str) -> None:
        """GCS has reserved all of it for this group."""
        record = self._clusters.records.get(cluster_id)
        if record is not None and record.berth is not None:
            record.berth.group_id, record.berth.taken = group_id, True

    def leave(self, berth_or_group: str) -> bool:
        """The group was removed, or was not created in the end; whether anything is known of it."""
        found = [
            berth
            for record, berth in self._clusters.berths()
            if berth_or_group in (record.vcluster.cluster_id, berth.group_id or None)
        ]
        for berth in found:
            berth.left = True
        return bool(found)

    # What is there

    def tokens(self, record: Record) -> dict[str, list[str]]:
        """Its tokens, and the one node that each stands on."""
        return {token: [node_id] for node_id, token, _ in self._tokens(record)}

    def of_work(self, names: Iterable[str]) -> Record | None:
        """The berth whose tokens a placement group takes."""
        owners = (owner for name in names if (owner := share_of_token(name)) is not None)
        found = (self._clusters.records.get(counts_for(owner[0])) for owner in owners)
        return next((record for record in found if record is not None and record.berth is not None), None)

    def stands(self, record: Record) -> bool:
        """Whether all of its tokens are on their nodes, as raylets say."""
        latest = {node_id: self._steering.latest(node_id) for node_id, _, _ in self._tokens(record)}
        return record.vcluster.whole and all(
            self._free_of_holds(node_id, token, latest[node_id].get(token, 0.0)) >= from_units(units) - TAKEN / 2
            for node_id, token, units in self._tokens(record)
        )

    def under_way(self, cluster_ids: Container[str]) -> bool:
        """Whether any of these is the berth of a group that may be about to reserve something."""
        return any(berth.under_way and record.vcluster.cluster_id in cluster_ids for record, berth in self._clusters.berths())

    @property
    def settled(self) -> bool:
        return not any(berth.under_way or berth.left for _, berth in self._clusters.berths())

    # In a round

    def look(self) -> None:
        """Who has taken its berth, and whose group has ended: by the nodes' reports, and where these leave it open by GCS."""
        for record, berth in self._clusters.berths():
            if berth.left:
                continue
            if self._is_held(record):
                berth.taken = True
            elif berth.under_way and not self._is_welcome(record):
                berth.left = True  # its creator is told that there is no room, and asks again
            elif berth.taken or self._now() - berth.since > _CREATED_SECONDS:
                self._ask(record, berth)

    def sweep(self, nodes: Iterable[str]) -> bool:
        """Remove what was left and stands on no node any more; whether there was any."""
        left = [record for record, berth in self._clusters.berths() if berth.left]
        out = {counts_for(owner) for node_id in nodes for owner in self._owners_on(node_id)} if left else set()
        gone = [record for record in left if record.vcluster.cluster_id not in out]
        for record in gone:
            self._clusters.remove(record)
        return bool(gone)

    # The rest

    def _tokens(self, record: Record) -> Iterator[tuple[str, str, int]]:
        """Node, token and amount."""
        for index, vnode in enumerate(record.vcluster.fixed):
            for name, units in vnode.total.items() if vnode is not None else ():
                assert vnode is not None
                yield self._node_id(vnode), share_token(bundle_id(record.vcluster.cluster_id, index), name), units

    def _is_held(self, record: Record) -> bool:
        """Whether all of it is in use, by the last reports."""
        vcluster = record.vcluster
        lack: dict[tuple[str, str], int] = {}
        for vnode in vcluster.vnodes():
            for name, units in vnode.total.items():
                key = self._node_id(vnode), name
                lack[key] = lack.get(key, 0) + units
        used = {key: self._clusters.running(vcluster.cluster_id, key[0]).get(key[1], 0) for key in lack}
        return vcluster.whole and all(used[key] >= units for key, units in lack.items())

    def _is_welcome(self, record: Record) -> bool:
        """Whether its nodes are such that it may lie there still: they may have been tainted since it was offered."""
        group = record.vcluster.group
        bundles = group.options[0] if group is not None else ()
        return all(
            vnode is None or untainted(self._cluster, bundle.nodes) >> vnode.node & 1
            for bundle, vnode in zip(bundles, record.vcluster.fixed, strict=True)
        )

    def _ask(self, record: Record, berth: Berth) -> None:
        group = self._group(record, berth)
        if group is None or group.state == ENDED:
            berth.left = True
        elif group.state == RUNNING:
            berth.group_id, berth.taken = group.work_id, True
        elif not berth.taken:
            self._port.let_go(group.work_id)  # it waits in GCS, and nobody knows of it
            berth.left = True

    def _group(self, record: Record, berth: Berth) -> Work | None:
        """As GCS knows it. Of whoever died before telling its id, the token tells."""
        found = [work for work in self._port.find(berth.group_id or record.job_id) if work.kind == GROUP]
        if not berth.group_id:
            found = [work for work in found if not is_hold(work.name)]  # its stand-ins take the same tokens
            tokens = {token for _, token, _ in self._tokens(record)}
            found = [work for work in found if any(not tokens.isdisjoint(shape) for shape in work.shapes)]
        return found[0] if found else None

    def _owners_on(self, node_id: str) -> Iterator[str]:
        for token, amount in self._steering.latest(node_id).items():
            owner = share_of_token(token)
            if owner is not None and self._free_of_holds(node_id, token, amount) > TAKEN / 2:
                yield owner[0]

    def _free_of_holds(self, node_id: str, token: str, amount: float) -> float:
        return amount - self._steering.held(node_id, token)

    def _node_id(self, vnode: VNode) -> str:
        return self._clusters.node_id(vnode.node)
