"""Stand-ins: so that Ray tries a bundle again that has lost its node.

The token of a bundle stands on its node and nowhere else. With the node it is gone, and GCS never looks again at a group that
no node could hold, unless a node joins. So for each bundle a *hold* takes the same amount of its token on some other node: that
is never free, but GCS finds the group possible and tries it until the kernel has chosen another node, with its token on it.

GCS tries such a group without a pause, before all others, and with a whole core (tests/live/test_traps.py). So while it has no
place its stand-ins are let go after a moment: GCS finds it impossible, and is quiet until a node joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remora.controller.cluster_memory import Record
from remora.controller.clusters import Clusters
from remora.controller.steering import Steering, Tokens
from remora.model.resources import UNIT, Resources, from_units
from remora.seam.port import NodeView
from remora.wire.tokens import TAKEN, bundle_id, counts_for, is_real, share_of_token, share_token

_SETTLED_SECONDS = 2.0
"""A group that does not live as long needs none."""

_TRIED_SECONDS = 3.0
"""So long GCS may try one that has no place."""

_QUIET_SECONDS = 1.0
"""After so long without stand-ins GCS has found it impossible."""


class StandIns:
    def __init__(
        self, clusters: Clusters, stands: Callable[[Record], bool], steering: Steering, now: Callable[[], float]
    ) -> None:
        self._clusters = clusters
        self._stands = stands  # whether all tokens of a berth are there
        self._steering = steering
        self._now = now
        self._coming: tuple[str, Tokens] | None = None  # on a node, and about to be held
        self._nodes: frozenset[str] = frozenset()
        self._lost: dict[str, float] = {}  # berths with a bundle that has no token: since when GCS tries them
        self._quiet: dict[str, float] = {}  # and until when they have no stand-ins
        self._served: dict[str, int] = {}  # berths that have all of theirs, and with which layout

    def look(self, nodes: Mapping[str, NodeView]) -> None:
        """In each round: what was about to be held, then the next that lacks one. One at a time, because each takes a moment in
        which nothing else is decided."""
        self._watch(frozenset(nodes))
        self._hold(nodes)
        for record, berth in self._clusters.berths():
            if berth.left:
                self.let_go(record)
            elif self._coming is None and berth.taken and not self._is_served(record):
                self._prepare(record, nodes)

    def let_go(self, record: Record) -> None:
        berth = record.vcluster.cluster_id
        self._served.pop(berth, None)
        for node_id in self._nodes:
            for token in [name for name in self._steering.latest(node_id) if _is_of(berth, name)]:
                self._steering.let_go(node_id, token)
        if self._coming is not None and any(_is_of(berth, token) for token in self._coming[1]):
            self._drop()

    def _watch(self, nodes: frozenset[str]) -> None:
        """Whom GCS tries in vain."""
        joined = nodes - self._nodes
        if nodes != self._nodes:
            self._nodes = nodes
            self._served.clear()
        now = self._now()
        berths = [record for record, berth in self._clusters.berths() if berth.taken and not berth.left]
        lost = {record.vcluster.cluster_id: record for record in berths if not self._stands(record)}
        self._lost = {each: now if joined else self._lost.get(each, now) for each in lost}
        for each, since in self._lost.items():
            if now - since > _TRIED_SECONDS and each not in self._quiet:
                self.let_go(lost[each])
                self._quiet[each] = now + _QUIET_SECONDS
        self._quiet = {each: until for each, until in self._quiet.items() if each in lost and not joined}
        self._steering.may_hold = not any(now - since <= _TRIED_SECONDS + _QUIET_SECONDS for since in self._lost.values())

    def _hold(self, nodes: Mapping[str, NodeView]) -> None:
        """As soon as the report shows the tokens: GCS places holds by it."""
        if self._coming is None:
            return
        node_id, amounts = self._coming
        if node_id not in nodes:
            self._drop()
        elif all(nodes[node_id].total.get(token, 0.0) >= amount - TAKEN / 2 for token, amount in amounts.items()):
            self._drop()
            self._steering.hold(node_id, amounts)  # if not, the next steering takes them away again

    def _is_served(self, record: Record) -> bool:
        """Whether it has all that it needs, or does not need it yet."""
        vcluster = record.vcluster
        return self._now() - record.busy_at < _SETTLED_SECONDS or self._served.get(vcluster.cluster_id) == vcluster.layout

    def _prepare(self, record: Record, nodes: Mapping[str, NodeView]) -> None:
        berth = record.vcluster.cluster_id
        if self._quiet.get(berth, 0.0) > self._now() or not self._steering.may_hold:
            return
        lacking = [index for index in range(len(record.vcluster.fixed)) if not self._has_one(record, index)]
        if not lacking:
            self._served[berth] = record.vcluster.layout
            return
        by_node = {node_id: [i for i in lacking if self._could(record, i, node_id, view)] for node_id, view in nodes.items()}
        node_id = max(by_node, key=lambda each: len(by_node[each]), default="")
        if not by_node.get(node_id):
            return
        amounts: Tokens = {}
        for index in by_node[node_id]:
            for name, units in _bundle(record, index).pairs:
                amounts[share_token(bundle_id(berth, index), name)] = from_units(units)
        self._coming = node_id, amounts
        self._steering.spare[node_id] = amounts
        latest = self._steering.latest(node_id)
        self._steering.write(node_id, {token: latest.get(token, 0.0) + amount for token, amount in amounts.items()})

    def _has_one(self, record: Record, index: int) -> bool:
        tokens = [share_token(bundle_id(record.vcluster.cluster_id, index), name) for name in _bundle(record, index)]
        here = self._node_of(record, index)
        return any(all(self._steering.held(each, token) for token in tokens) for each in self._nodes if each != here)

    def _could(self, record: Record, index: int, node_id: str, view: NodeView) -> bool:
        real = {name: round(amount * UNIT) for name, amount in view.total.items() if is_real(name)}
        return self._node_of(record, index) != node_id and _bundle(record, index).fits_in(real)

    def _node_of(self, record: Record, index: int) -> str | None:
        vnode = record.vcluster.fixed[index]
        return self._clusters.node_id(vnode.node) if vnode is not None else None

    def _drop(self) -> None:
        if self._coming is not None:
            self._steering.spare.pop(self._coming[0], None)
            self._coming = None


def _bundle(record: Record, index: int) -> Resources:
    return [node for nodes in record.vcluster.spec.fixed_size_nodes for node in nodes.nodes][index].resources


def _is_of(berth: str, name: str) -> bool:
    owner = share_of_token(name)
    return owner is not None and counts_for(owner[0]) == berth
