"""Placeholders: so that Ray tries a bundle again that has lost its node.

The token of a bundle stands on its node and nowhere else. With the node it is gone, and GCS never looks again at a group that
no node could hold, unless a node joins. So for each bundle a *hold* takes the same amount of its token on some other node: that
is never free, but GCS finds the group possible and tries it until the kernel has chosen another node, with its token on it.

GCS tries such a group without a pause, before all others, and with a whole core (tests/live/test_traps.py). So while it has no
place its placeholders are let go after a moment: GCS finds it impossible, and is quiet until a node joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remora.controller.clusters.records import Record
from remora.controller.clusters.registry import Registry
from remora.controller.context import Context
from remora.controller.tokens.book import EPSILON, Book, Tokens
from remora.controller.tokens.holds import Holds
from remora.kernel.state.cluster import Cluster
from remora.model.resources import UNIT, Resources, from_units
from remora.port.contract import NodeView
from remora.wire.owners import owner_of, share_in
from remora.wire.tokens import is_real

_SETTLED_SECONDS = 2.0
"""A group that does not live as long needs none."""

_TRIED_SECONDS = 3.0
"""So long GCS may try one that has no place."""

_QUIET_SECONDS = 1.0
"""After so long without placeholders GCS has found it impossible."""


class Placeholders:
    """``in_place`` says whether all tokens of a group's share are there; ``touch`` that a node has to be written to."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        registry: Registry,
        book: Book,
        holds: Holds,
        in_place: Callable[[Record], bool],
        touch: Callable[[str], None],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._registry = registry
        self._book = book
        self._holds = holds
        self._in_place = in_place
        self._touch = touch
        self._coming: tuple[str, Tokens] | None = None  # on a node, and about to be held
        self._nodes: frozenset[str] = frozenset()
        self._lost: dict[str, float] = {}  # shares with a bundle that has no token: since when GCS tries them
        self._quiet: dict[str, float] = {}  # and until when they have no placeholders
        self._served: dict[str, int] = {}  # shares that have all of theirs, and with which layout

    def look(self, views: Mapping[str, NodeView]) -> None:
        """Hold what was about to be held, then prepare the next that lacks one. One at a time."""
        if self._coming is None and not self._registry_has_groups():
            if self._lost or not self._holds.may_hold:
                self._lost, self._holds.may_hold = {}, True
            self._nodes = frozenset()
            return
        self._watch(frozenset(views))
        if self._coming is not None and not any(map(self._is_wanted, self._coming[1])):
            self._drop()  # its group ended before it was held
        self._hold(views)
        for record, group in self._registry.group_shares():
            if group.released:
                self.let_go(record.cluster_id)
            elif self._coming is None and group.reserved and not self._is_served(record):
                self._prepare(record, views)

    def let_go(self, account: str) -> None:
        """End the placeholders of a group's share."""
        self._served.pop(account, None)
        for node_id in list(self._nodes):
            tokens = [token for amounts in self._holds.of_node(node_id).values() for token in amounts]
            for token in [each for each in tokens if _is_of(account, each)]:
                self._holds.let_go(node_id, token)
                self._touch(node_id)
        if self._coming is not None and any(_is_of(account, token) for token in self._coming[1]):
            self._drop()

    def node_left(self, node_id: str) -> None:
        if self._coming is not None and self._coming[0] == node_id:
            self._coming = None

    # The rest

    def _registry_has_groups(self) -> bool:
        return next(self._registry.group_shares(), None) is not None

    def _is_wanted(self, token: str) -> bool:
        share = share_in(token)
        record = self._registry.records.get(share.owner.account) if share is not None else None
        return record is not None and record.group is not None and not record.group.released

    def _watch(self, nodes: frozenset[str]) -> None:
        """Find out whom GCS tries in vain."""
        joined = nodes - self._nodes
        if nodes != self._nodes:
            self._nodes = nodes
            self._served.clear()
        now = self._context.now()
        shares = [record for record, group in self._registry.group_shares() if group.reserved and not group.released]
        lost = {record.cluster_id: record for record in shares if not self._in_place(record)}
        self._lost = {each: now if joined else self._lost.get(each, now) for each in lost}
        for each, since in self._lost.items():
            if now - since > _TRIED_SECONDS and each not in self._quiet:
                self.let_go(each)
                self._quiet[each] = now + _QUIET_SECONDS
        self._quiet = {each: until for each, until in self._quiet.items() if each in lost and not joined}
        self._holds.may_hold = not any(now - since <= _TRIED_SECONDS + _QUIET_SECONDS for since in self._lost.values())

    def _hold(self, views: Mapping[str, NodeView]) -> None:
        """Hold the tokens as soon as the report shows them: GCS places holds by it."""
        if self._coming is None:
            return
        node_id, amounts = self._coming
        if node_id not in views:
            self._drop()
        elif self._holds.is_making(node_id, next(iter(amounts))):
            return
        elif all(views[node_id].total.get(token, 0.0) >= amount - EPSILON for token, amount in amounts.items()):
            self._holds.want(node_id, amounts)
            if self._holds.is_making(node_id, next(iter(amounts))):
                self._coming = None  # what is spare is held, or taken away again: ``made`` says which

    def made(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """A hold was made or refused: what was spare for it is not any more."""
        if self._book.spare_on(node_id) == amounts:
            self._book.set_spare(node_id, {})
            self._touch(node_id)

    def _is_served(self, record: Record) -> bool:
        """Return whether a share has all that it needs, or does not need it yet."""
        vcluster = record.vcluster
        young = self._context.now() - record.made_at < _SETTLED_SECONDS
        return young or self._served.get(vcluster.cluster_id) == vcluster.layout

    def _prepare(self, record: Record, views: Mapping[str, NodeView]) -> None:
        account = record.cluster_id
        if self._quiet.get(account, 0.0) > self._context.now() or not self._holds.may_hold:
            return
        lacking = [index for index in range(len(record.vcluster.fixed)) if not self._has_one(record, index)]
        if not lacking:
            self._served[account] = record.vcluster.layout
            return
        by_node = {
            node_id: [index for index in lacking if self._could(record, index, view)]
            for node_id, view in views.items()
            if not self._book.spare_on(node_id)
        }
        node_id = max(by_node, key=lambda each: len(by_node[each]), default="")
        if not by_node.get(node_id):
            return
        amounts: Tokens = {}
        for index in by_node[node_id]:
            for name, units in _bundle(record, index).pairs:
                amounts[owner_of(account)._replace(bundle=index).token(name)] = from_units(units)
        self._coming = node_id, amounts
        self._book.set_spare(node_id, amounts)
        self._touch(node_id)

    def _has_one(self, record: Record, index: int) -> bool:
        owner = owner_of(record.cluster_id)._replace(bundle=index)
        tokens = [owner.token(name) for name in _bundle(record, index)]
        here = self._node_of(record, index)
        return any(all(self._book.held(each, token) for token in tokens) for each in self._nodes if each != here)

    def _could(self, record: Record, index: int, view: NodeView) -> bool:
        real = {name: round(amount * UNIT) for name, amount in view.total.items() if is_real(name)}
        return self._node_of(record, index) != view.node_id and _bundle(record, index).fits_in(real)

    def _node_of(self, record: Record, index: int) -> str | None:
        vnode = record.vcluster.fixed[index]
        return self._cluster.nodes.at(vnode.node).node_id if vnode is not None else None

    def _drop(self) -> None:
        if self._coming is not None:
            node_id, self._coming = self._coming[0], None
            self._book.set_spare(node_id, {})
            self._touch(node_id)


def _bundle(record: Record, index: int) -> Resources:
    return [node for nodes in record.vcluster.spec.fixed_size_nodes for node in nodes.nodes][index].resources


def _is_of(account: str, token: str) -> bool:
    share = share_in(token)
    return share is not None and share.owner.account == account
