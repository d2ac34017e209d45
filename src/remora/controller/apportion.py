"""Share tokens on the nodes: taken away first, then given, and given only where there is room by what the raylets said.

Whatever was decided, and wherever a controller died over it, two sums never grow: the shares on a node beyond what the node
has, and the shares of a cluster beyond its maximum. Only what its holders have given back for a while counts twice.

A share that shrinks while its cluster lives is not taken from the node but *held*: Ray fails queued work that no node has
enough of everything for, so the total stays what it once was. Only where nothing of the cluster was ever offered to work,
nothing can be queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from remora.controller.cluster_memory import Record
from remora.controller.clusters import Clusters, Units
from remora.controller.returned import Returned
from remora.controller.steering import Steering, Tokens
from remora.controller.wanted import share_tokens
from remora.kernel.shares import bump
from remora.kernel.tree import VCluster
from remora.model.resources import UNIT, Resources, from_units
from remora.seam.port import NodeView
from remora.wire.tokens import counts_for, is_part, share_of_token, share_token

Parts = Mapping[str, Units]


class Apportion:
    def __init__(
        self, clusters: Clusters, returned: Returned, steering: Steering, ended: Callable[[Iterable[str]], list[str]]
    ) -> None:
        self._clusters = clusters
        self._ended = ended
        self._returned = returned
        self._steering = steering
        self._highest: dict[tuple[str, str], int] = {}  # by node and token: the largest share that it stood for
        self.settled = True

    def steer(
        self, nodes: Mapping[str, NodeView], parts: Parts, besides: Mapping[str, Tokens], let_in: Callable[[Room], None]
    ) -> None:
        """Write the difference. ``parts`` are shares that classes select inside a cluster; ``besides`` goes along. ``let_in``
        comes between taking and giving: who stands in line has a token already and needs only the room."""
        self.settled = True
        shares = share_tokens(self._clusters)
        wanted = {node_id: dict(shares.get(node_id, {})) for node_id in nodes}
        for cluster_id, node_id in self._returned.places():
            for name, units in self._returned.on(cluster_id, node_id, lent=True).pairs:
                if cluster_id in self._clusters.records and node_id in wanted:
                    bump(wanted[node_id], share_token(cluster_id, name), units)
        before = {node_id: self._actual(nodes[node_id]) for _, node_id in self._returned.places() if node_id in nodes}
        for node_id, view in nodes.items():
            self._lower(node_id, view, wanted[node_id], shares.get(node_id, {}))
        self._bury(before, {node_id: self._actual(nodes[node_id]) for node_id in before})
        # By the tokens that stand on the nodes now: what was decided since may not have come about.
        room = Room(self._clusters, self._returned, nodes, {node_id: self._actual(nodes[node_id]) for node_id in nodes})
        let_in(room)
        for node_id, view in nodes.items():
            changes: Tokens = dict(besides.get(node_id, {}))
            actual = self._actual(view)
            for token, units in wanted[node_id].items():
                key = node_id, token
                self._highest[key] = max(self._highest.get(key, 0), shares.get(node_id, {}).get(token, 0))
                lack = units - actual.get(token, 0)
                given = room.take(node_id, token, lack) if lack > 0 else 0
                if given:
                    changes[token] = from_units(actual.get(token, 0) + given) + self._steering.held(node_id, token)
                self.settled &= given == max(lack, 0)
            latest = self._steering.latest(node_id)
            for token, units in parts.get(node_id, {}).items():
                if round(latest.get(token, 0.0) * UNIT) != units:
                    changes[token] = from_units(units)
            if changes:
                self._steering.write(node_id, changes)

    def _lower(self, node_id: str, view: NodeView, wanted: Units, shares: Units) -> None:
        changes: Tokens = {}
        actual = self._actual(view)
        for token, units in actual.items():
            target = wanted.get(token, 0)
            owner = share_of_token(token)
            record = self._clusters.records.get(counts_for(owner[0])) if owner is not None else None
            held = self._steering.held(node_id, token)
            # What a placement group has, nobody else is queued for.
            if record is None or record.vcluster.closing or not record.offered or record.berth is not None:
                self._highest.pop((node_id, token), None)
            else:
                highest = self._highest.setdefault((node_id, token), units)
                if units > target and shares.get(token, 0) + round(held * UNIT) < highest:
                    self._keep(node_id, view, token, units, target)
                    continue
            if held and not self._clusters.may_have_work(counts_for(owner[0]) if owner is not None else ""):
                self._steering.let_go(node_id, token)
                held, units = 0.0, units + round(held * UNIT)
            if units > target:
                changes[token] = from_units(target) + held
        if changes:
            self._steering.write(node_id, changes)
            now = self._actual(view)
            self.settled &= all(now.get(token, 0) <= wanted.get(token, 0) for token in changes)

    def _bury(self, before: Mapping[str, Units], after: Mapping[str, Units]) -> None:
        """What was taken away may be what somebody gave back who waited and was killed: then it would count twice."""
        shrunk = {
            (owner[0], node_id)
            for node_id, tokens in before.items()
            for token, units in tokens.items()
            if after[node_id].get(token, 0) < units and (owner := share_of_token(token)) is not None
        }
        for place in shrunk & self._returned.places():
            for worker_id in self._ended(self._returned.workers(*place)):
                self._returned.bury(worker_id)
                self._returned.take(worker_id)

    def _keep(self, node_id: str, view: NodeView, token: str, units: int, target: int) -> None:
        """Hold what is free of it, by the last report of what is in use. What the report does not show yet cannot be held: a
        hold is placed by the same view."""
        reported = round(view.total.get(token, 0.0) * UNIT) >= units + round(self._steering.held(node_id, token) * UNIT)
        used = view.total.get(token, 0.0) - view.available.get(token, 0.0) - self._steering.held(node_id, token)
        free = units - max(target, round(used * UNIT))
        if not reported or free <= 0 or not self._steering.hold(node_id, {token: from_units(free)}):
            self.settled = False

    def _actual(self, view: NodeView) -> Units:
        """The share tokens of a node, without what is held; classes' parts of a cluster stand beside, not in the sums."""
        latest = self._steering.latest(view.node_id)
        return {
            token: round((amount - self._steering.held(view.node_id, token)) * UNIT)
            for token, amount in latest.items()
            if (owner := share_of_token(token)) is not None
            and not (is_part(owner[0]) and counts_for(owner[0]) in self._clusters.records)
        }


class Room:
    """How much more may be given: on a node, and to a cluster and each one above it."""

    def __init__(
        self, clusters: Clusters, returned: Returned, nodes: Mapping[str, NodeView], actual: Mapping[str, Units]
    ) -> None:
        self._clusters = clusters
        self._on_node: dict[tuple[str, str], int] = {}
        self._of_cluster: dict[tuple[str, str], int] = {}
        for node_id, view in nodes.items():
            for name, total in view.total.items():
                self._on_node[node_id, name] = round(total * UNIT)
            for token, units in actual[node_id].items():
                owner, name = share_of_token(token) or ("", "")
                self._count(node_id, owner, name, units)
        for cluster_id, node_id in returned.places():
            for name, units in returned.on(cluster_id, node_id).pairs if cluster_id in clusters.records else ():
                self._count(node_id, cluster_id, name, -units)

    def take(self, node_id: str, token: str, units: int) -> int:
        """As much of a token as there is room for, up to so much."""
        owner, name = share_of_token(token) or ("", "")
        most = min(units, self._left(node_id, owner, name))
        self._count(node_id, owner, name, most)
        return most

    def admits(self, node_id: str, cluster_id: str, amounts: Resources) -> bool:
        """Whether work that has its token but gave its share back may use it."""
        return all(units <= self._left(node_id, cluster_id, name) for name, units in amounts.pairs)

    def allows(self, cluster_id: str, amounts: Resources) -> bool:
        """Whether no maximum forbids it. What a node has is not asked: work that has begun runs on beyond it in Ray too, and
        nothing starts there before it has a CPU."""
        return all(units <= self._below_caps(cluster_id, name) for name, units in amounts.pairs)

    def use(self, node_id: str, cluster_id: str, amounts: Resources) -> None:
        for name, units in amounts.pairs:
            self._count(node_id, cluster_id, name, units)

    def overdrawn(self) -> frozenset[str]:
        """The clusters of which nothing more may start: more than their maximum is out, or more than that of one above them."""
        over = {cluster_id for (cluster_id, name), units in self._of_cluster.items() if units > self._cap(cluster_id, name)}
        below = ((cluster_id, record.vcluster.chain()) for cluster_id, record in self._clusters.records.items())
        return frozenset(cluster_id for cluster_id, chain in below if any(each.cluster_id in over for each in chain))

    def _left(self, node_id: str, owner: str, name: str) -> int:
        return int(max(min(self._on_node.get((node_id, name), 0), self._below_caps(owner, name)), 0))

    def _below_caps(self, owner: str, name: str) -> float:
        chain = (vcluster.cluster_id for vcluster in self._chain(owner))
        return min((self._cap(each, name) - self._of_cluster.get((each, name), 0) for each in chain), default=inf)

    def _cap(self, cluster_id: str, name: str) -> float:
        cap = self._clusters.cap(cluster_id, name)
        return inf if cap is None else cap

    def _count(self, node_id: str, owner: str, name: str, units: int) -> None:
        self._on_node[node_id, name] = self._on_node.get((node_id, name), 0) - units
        for vcluster in self._chain(owner):
            key = vcluster.cluster_id, name
            self._of_cluster[key] = self._of_cluster.get(key, 0) + units

    def _chain(self, owner: str) -> Iterator[VCluster]:
        record: Record | None = self._clusters.records.get(counts_for(owner))
        return record.vcluster.chain() if record is not None else iter(())
