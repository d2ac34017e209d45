"""Class and lease tokens: which should stand on each node, and how one is taken away without hurting what is queued there.

Taking a class away has three steps. The *fence* goes up first: workers submit again what it names instead of starting it. Then
a *hold* takes the smallest amount of each token and keeps it, because somebody may be queued for it. Then the rest is taken,
again and again while something that runs there gives back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from remora.controller.context import Context
from remora.controller.tokens.book import EPSILON, Book, Tokens
from remora.controller.tokens.holds import Holds
from remora.controller.tokens.node_fences import Fences
from remora.controller.tokens.roster import Roster
from remora.kernel.placing.class_nodes import offered
from remora.kernel.placing.inside import untainted
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members
from remora.kernel.state.virtual_labels import admits, asks_labels, labels_of, openings
from remora.model.requests import NodeClass
from remora.wire.classes import ClassSpec
from remora.wire.owners import share_in
from remora.wire.tokens import KEEP, KEPT, OFFERED, TAKEN, class_of_token, class_token, slot_of_token

_GROWING_SECONDS = 1.0
"""So long after its first share a class is offered everywhere still: its cluster may be about to grow there too."""

_FAILED_SECONDS = 1.0


class ClassTokens:
    """``is_kept(slot)`` says whether a lease token that we did not write is left alone."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        roster: Roster,
        book: Book,
        holds: Holds,
        fences: Fences,
        is_kept: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._roster = roster
        self._book = book
        self._holds = holds
        self._fences = fences
        self._is_kept = is_kept
        self._nodes: dict[str, NodeSet] = {}  # by class: where it is offered
        self._wanted: dict[str, set[str]] = {}  # by node: class tokens
        self._leases: dict[str, set[str]] = {}  # by node: lease tokens
        self._kept: set[str] = set()  # nodes on which the token stands that keeps them
        self._welcome: dict[str, NodeSet] = {}  # by class of a virtual cluster: where that has had a share
        self._everywhere: dict[str, tuple[float, NodeSet]] = {}  # and where it was offered when it last had none, and when
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self._look_again_at = 0.0
        self._failed: set[str] = set()  # classes of which it could not be said where they are offered
        self.dirty: set[str] = set()

    # What should stand

    def nodes_of(self, spec: ClassSpec) -> list[str]:
        """Return the ids of the nodes that a class is offered on now."""
        return [self._cluster.nodes.at(number).node_id for number in members(self._offered_on(spec))]

    def wake(self, spec: ClassSpec) -> list[str]:
        """A class is offered from now on, by what its cluster has at this moment. Return the ids of its nodes."""
        self._refresh(spec)
        return self.nodes_of(spec)

    def put_lease(self, node_id: str, token: str) -> None:
        """The token of a lease should stand on a node."""
        self._leases.setdefault(node_id, set()).add(token)
        self.dirty.add(node_id)

    def drop_lease(self, node_id: str, token: str) -> None:
        """The token of a lease should no longer stand on a node."""
        if node_id in self._leases:
            self._leases[node_id].discard(token)
            self.dirty.add(node_id)

    def put_keep(self, node_id: str) -> None:
        """The token that keeps a machine should stand on a node. It stays when it is not held any more: then it keeps nothing,
        and to take it away would only start the clock of an idle machine again."""
        self._kept.add(node_id)
        self.dirty.add(node_id)

    def leases_on(self, node_id: str) -> Collection[str]:
        """Return the lease tokens that should stand on a node."""
        return self._leases.get(node_id, ())

    def refresh(self) -> None:
        """Bring up to date where classes are offered, as far as anything has changed that it depends on."""
        now = self._context.now()
        stamp = self._cluster.nodes.version, self._roster.changes, self._cluster.tree.changes
        if stamp == self._seen and now < self._look_again_at:
            return
        everything, dropped = stamp[0] != self._seen[0], stamp[1] != self._seen[1]
        self._seen, self._look_again_at = stamp, now + 3600.0
        for class_id in [known for known in self._nodes if known not in self._roster.offered] if dropped else ():
            self._move(class_id, 0)
            self.dirty.update(self._book.nodes_holding_token(class_token(class_id)))  # for nobody any more
            self._context.aside.forget("class", class_id)
            for table in (self._nodes, self._welcome, self._everywhere):
                table.pop(class_id, None)
        for class_id, spec in self._roster.offered.items():
            if everything or spec.cluster is not None or class_id not in self._nodes or class_id in self._failed:
                self._failed.add(class_id)
                with self._context.aside.care_of("class", class_id):
                    self._refresh(spec)
                    self._failed.discard(class_id)
        self._failed &= self._roster.offered.keys()
        if self._failed:
            self._look_again_at = min(self._look_again_at, now + _FAILED_SECONDS)

    def remembered(self, class_id: str) -> None:
        """Whoever comes after us knows of a class: it may be offered."""
        self.dirty.update(self._cluster.nodes.at(number).node_id for number in members(self._nodes.get(class_id, 0)))

    def forget(self, node_id: str, number: int) -> None:
        """The node is gone."""
        gone = ~(1 << number)
        self._nodes = {class_id: nodes & gone for class_id, nodes in self._nodes.items()}
        self._welcome = {class_id: nodes & gone for class_id, nodes in self._welcome.items()}
        self._everywhere = {class_id: (at, nodes & gone) for class_id, (at, nodes) in self._everywhere.items()}
        self._wanted.pop(node_id, None)
        self._leases.pop(node_id, None)
        self._kept.discard(node_id)
        self.dirty.discard(node_id)

    # What has to be written

    def changes(self, node_id: str, may_be_queued_for: Callable[[str], bool]) -> Tokens:
        """Return the totals to write on a node so that it has what it should, as far as that may be done now.
        ``may_be_queued_for`` says whether somebody may be queued for a token. Raises fences and asks for holds on the way."""
        known = self._book.tokens(node_id)
        classes, leases = self._wanted.get(node_id, set()), self._leases.get(node_id, set())
        changes = {token: OFFERED for token in classes if known.get(token) != OFFERED and self._is_remembered(token)}
        changes |= {token: TAKEN for token in leases if known.get(token) != TAKEN}
        if node_id in self._kept and known.get(KEEP) != KEPT:
            changes[KEEP] = KEPT
        unwanted = [token for token in known if token not in classes and token not in leases and self._is_ours(token)]
        fenced = frozenset(filter(may_be_queued_for, unwanted))
        self._fences.fence(node_id, fenced)
        bare = {token: TAKEN for token in fenced if not self._book.held(node_id, token)}
        if bare and self._fences.is_confirmed(node_id):
            self._holds.want(node_id, bare)
        for token in unwanted:
            if token in bare or (token in fenced and not self._fences.is_confirmed(node_id)):
                continue  # it stays until nothing that is queued for it can be hurt
            least = self._book.held(node_id, token)
            if known[token] > least + EPSILON:
                changes[token] = 0.0
        self._holds.let_go_unless(node_id, may_be_queued_for)
        return {token: amount for token, amount in changes.items() if not self._holds.is_making(node_id, token)}

    def is_lowered(self, node_id: str) -> bool:
        """Return whether what a node no longer accepts was taken from there, but for what is in use or held."""
        return all(self._book.amount(node_id, token) < OFFERED for token in self._fences.classes(node_id))

    def unsettled(self) -> list[str]:
        """Return the nodes where something that is no longer wanted is in use, or has yet to be held."""
        return [
            node_id
            for node_id in self._fences.fenced_nodes()
            if any(
                self._book.amount(node_id, token) > self._book.held(node_id, token) + EPSILON
                for token in self._fences.classes(node_id)
            )
        ]

    # The rest

    def _is_remembered(self, token: str) -> bool:
        """Return whether a controller that comes after us would know of a class: one that did not would take its token away
        from those who are queued for it."""
        return self._roster.is_saved(class_of_token(token) or "")

    def _is_ours(self, token: str) -> bool:
        """Classes and leases; shares have rules of their own, and what keeps a machine stays."""
        if share_in(token) is not None or token == KEEP:
            return False
        slot = slot_of_token(token)
        return slot is None or not self._is_kept(slot)

    def _refresh(self, spec: ClassSpec) -> None:
        self._move(spec.class_id, self._offered_on(spec))
        if spec.cluster is not None:
            self._note_share(spec)

    def _move(self, class_id: str, nodes: NodeSet) -> None:
        before, token = self._nodes.get(class_id, 0), class_token(class_id)
        self._nodes[class_id] = nodes
        for number in members(nodes & ~before):
            node_id = self._cluster.nodes.at(number).node_id
            self._wanted.setdefault(node_id, set()).add(token)
            self.dirty.add(node_id)
        for number in members(before & ~nodes):
            node_id = self._cluster.nodes.at(number).node_id
            self._wanted.get(node_id, set()).discard(token)
            self.dirty.add(node_id)

    def _offered_on(self, spec: ClassSpec) -> NodeSet:
        """Return where a class is offered. In a virtual cluster it stays welcome where the cluster has been: without a share
        nothing of size starts there, and taking a class away is costly. Before it has any share it is welcome everywhere, and
        for a moment after: it may be about to grow there too."""
        if spec.cluster is None:
            return offered(self._cluster, spec.choices, spec.demand)
        vcluster = self._cluster.tree.clusters.get(spec.cluster)
        if vcluster is None:
            return 0
        nodes = offered(self._cluster, spec.choices, spec.demand, vcluster)
        at, everywhere = self._everywhere.get(spec.class_id, (0.0, 0))
        welcome = self._welcome.get(spec.class_id, 0)
        if self._context.now() - at < _GROWING_SECONDS:
            welcome |= everywhere
        return nodes | self._admitting(spec.choices[0], vcluster, welcome & untainted(self._cluster, spec.choices[0]))

    def _admitting(self, choice: NodeClass, vcluster: VCluster, nodes: NodeSet) -> NodeSet:
        """Return those nodes whose labels, as they are now, are what a class asks for, on whatever a cluster has or could have
        there."""
        if not nodes or not asks_labels(choice):
            return nodes
        return collect(
            number
            for number in members(nodes)
            if any(admits(choice, labels_of(self._cluster, vnode)) for vnode in vcluster.vnodes() if vnode.node == number)
            or any(admits(choice, labels) for _, labels in openings(self._cluster, vcluster, number))
        )

    def _note_share(self, spec: ClassSpec) -> None:
        """Keep in mind where a class's cluster has shares, or that it has none yet."""
        vcluster = self._cluster.tree.clusters.get(spec.cluster or "")
        if vcluster is None:
            return
        nodes, now = offered(self._cluster, spec.choices, spec.demand, vcluster), self._context.now()
        if any(vcluster.vnodes()):
            self._welcome[spec.class_id] = self._welcome.get(spec.class_id, 0) | nodes
            at = self._everywhere.get(spec.class_id, (0.0, 0))[0]
            if now - at < _GROWING_SECONDS:
                self._look_again_at = min(self._look_again_at, at + _GROWING_SECONDS)
        else:
            self._everywhere[spec.class_id] = now, nodes
            self._look_again_at = min(self._look_again_at, now + _GROWING_SECONDS / 2)


def classes_in(names: Iterable[str]) -> list[str]:
    """Return the classes whose tokens are among these resource names."""
    return [class_id for name in names if (class_id := class_of_token(name)) is not None]


def in_use(total: Mapping[str, float], available: Mapping[str, float], held: Callable[[str], float]) -> list[str]:
    """Return the classes whose tokens work on a node holds, by its report."""
    return [
        class_id
        for name, amount in total.items()
        if (class_id := class_of_token(name)) is not None and amount - available.get(name, 0.0) > held(name) + EPSILON
    ]
