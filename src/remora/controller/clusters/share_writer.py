"""Share tokens on the nodes: lowered first, then whoever waits is admitted, then they are raised where there is room.

Whatever was decided, and wherever a controller died over it, two sums never grow: the shares on a node beyond what the node
has, and the shares of a cluster beyond its maximum. The one exception: while a worker waits in ``ray.get``, its share is lent,
and is counted for whoever uses it meanwhile.

A share that shrinks while its cluster lives is not taken from the node but *held*: Ray fails queued work that no node has
enough of everything for, so the total stays what it once was. Only where nothing of the cluster was ever offered to work,
nothing can be queued.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from remora.controller.clusters.admission import Admission
from remora.controller.clusters.growing import QUIET_SECONDS
from remora.controller.clusters.lending import Lending
from remora.controller.clusters.records import Record
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.room import Room
from remora.controller.clusters.use import Use
from remora.controller.clusters.wanted_shares import WantedShares
from remora.controller.context import Context
from remora.controller.tokens.book import EPSILON, Book, Tokens, Units
from remora.controller.tokens.holds import Holds
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.shares import bump
from remora.model.resources import UNIT, from_units
from remora.port.contract import NodeView
from remora.wire.owners import owner_of, share_in

_LOWERING = "lowering shares"


class ShareWriter:
    """``is_free`` says whether a node can be written to now."""

    def __init__(
        self,
        context: Context,
        registry: Registry,
        wanted: WantedShares,
        use: Use,
        lending: Lending,
        admission: Admission,
        book: Book,
        holds: Holds,
        is_free: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._registry = registry
        self._wanted = wanted
        self._use = use
        self._lending = lending
        self._admission = admission
        self._book = book
        self._holds = holds
        self._is_free = is_free
        self._lacking: dict[str, set[str]] = {}  # by node: tokens that should be raised, and there was no room
        self._highest: dict[str, dict[str, int]] = {}  # by node and token: the largest share that it stood for
        self._unsettled: set[str] = set()  # nodes where something is in use that should be lowered
        self._lent = lending.watch()
        self.dirty: set[str] = set()
        self.look = True
        """Whether anything has changed that the shares depend on."""

    @property
    def settled(self) -> bool:
        return not self._unsettled and not self._lacking

    def may_have_work(self, account: str) -> bool:
        """Return whether anything may be queued that wants the share of a cluster: not once it is closed and has given
        everything back, and nothing was seen to wait for a while."""
        record = self._registry.records.get(account)
        if record is None:
            return False
        is_quiet = not record.job_id or self._context.now() - record.busy_at > QUIET_SECONDS
        return record.has_something or not is_quiet

    def lacks(self, account: str) -> bool:
        """Return whether a token of a cluster should stand somewhere and does not."""
        return any(
            share is not None and share.owner.account == account
            for tokens in self._lacking.values()
            for share in map(share_in, tokens)
        )

    def lacking_nodes(self) -> Collection[str]:
        """Return the nodes where a share should be larger, and there is no room for that yet."""
        return self._lacking

    def refresh(self) -> None:
        """Take in what the kernel divided otherwise since."""
        clusters, nodes = self._wanted.refresh(self._admission.overdrawn)
        self.dirty |= nodes
        for account in clusters:
            self.dirty |= self._book.nodes_holding(account)  # of one that is gone nothing has to be protected
        if clusters or nodes:
            self.look = True
            self._registry.save(clusters)
        else:
            self._registry.save(())

    def again(self) -> None:
        """In a round: look again at what could not be done, or is given back bit by bit, and at what is held for work that will
        not come any more."""
        for account in self._book.held_accounts():
            if not self.may_have_work(account):
                self.dirty |= self._book.nodes_holding(account)
                self.look = True
        if self.dirty or self._unsettled or self._lacking or self._lending or self._admission.overdrawn:
            self.dirty |= self._unsettled
            self.look = True

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self._wanted.forget(node_id)
        for table in (self._lacking, self._highest):
            table.pop(node_id, None)
        self._unsettled.discard(node_id)
        self.dirty.discard(node_id)
        self.look = True

    def changes(self, views: Mapping[str, NodeView]) -> dict[str, Tokens]:
        """Return the totals to write, by node: one pass over what has changed. Admits whoever there is room for on the way."""
        self.refresh()
        if self._lent:
            self.dirty |= {node_id for _, node_id in self._lent}
            self._lent.clear()
            self.look = True
        if not self.look:
            return {}
        self.look = False
        self.dirty &= views.keys()  # on a node that is gone nothing is left to do
        changes: dict[str, Tokens] = {}
        ready = {node_id for node_id in self.dirty if self._may_write(node_id, views)}
        done = set()
        for node_id in ready:
            with self._context.aside.care_of("node", node_id, _LOWERING):
                lowered = self._lower(views[node_id])
                if lowered:
                    changes[node_id] = lowered
                done.add(node_id)
        room = Room(self._registry, self._use, self._lending, self._book, lambda node_id, name: _total(views, node_id, name))
        self._admission.admit(room, self._changing(changes))
        self.refresh()  # what became overdrawn, or ceased to be
        for node_id in ready | {each for each in self._lacking if self._may_write(each, views)}:
            with self._context.aside.care_of("node", node_id, "raising shares"):
                raised = self._raise(views[node_id], room, changes.get(node_id, {}))
                if raised:
                    changes.setdefault(node_id, {}).update(raised)
        self.dirty -= done  # the others are looked at when they answer, or in a round
        return changes

    # The rest

    def _may_write(self, node_id: str, views: Mapping[str, NodeView]) -> bool:
        may_be = node_id in views and self._book.is_known(node_id) and self._is_free(node_id)
        return may_be and self._context.aside.is_due("node", node_id, _LOWERING)

    def _changing(self, lowered: Mapping[str, Tokens]) -> set[str]:
        """Return all clusters of the trees of which a token is being lowered."""
        accounts = self._book.lowering()
        for node_id, tokens in lowered.items():
            for token, amount in tokens.items():
                share = share_in(token)
                if share is not None and amount < self._book.amount(node_id, token):
                    accounts.add(share.owner.account)
        tops = {record.vcluster.top for each in accounts if (record := self._registry.records.get(each)) is not None}
        return {each.cluster_id for top in tops for each in _tree(top)} | accounts

    def _wanted_on(self, node_id: str) -> Units:
        """Return what should stand on a node, with what is lent there."""
        wanted = dict(self._wanted.on(node_id))
        for cluster_id in self._lending.clusters_at(node_id):
            if cluster_id in self._registry.records:
                for name, units in self._lending.lent(cluster_id, node_id).pairs:
                    bump(wanted, owner_of(cluster_id).token(name), units)
        return wanted

    def _wanted_parts_on(self, node_id: str) -> Units:
        """Return what should stand of parts of clusters on a node, with what is lent there: what a worker waits for may have to
        run on the part that it selected itself."""
        wanted = dict(self._wanted.parts_on(node_id))
        for part, amounts in self._lending.parts_lent(node_id):
            for name, units in amounts.pairs:
                token = owner_of(part).token(name)
                if self._book.amount(node_id, token):  # its class tells nodes apart by this resource
                    bump(wanted, token, units)
        return wanted

    def _lower(self, view: NodeView) -> Tokens:
        node_id = view.node_id
        wanted = self._wanted_on(node_id)
        changes: Tokens = {}
        self._unsettled.discard(node_id)
        known = {**self._book.shares_on(node_id), **dict.fromkeys(self._held_here(node_id), 0)}
        for token in known:
            share = share_in(token)
            assert share is not None
            units = self._book.at_most(node_id, token)
            record, target = self._registry.records.get(share.owner.account), wanted.get(token, 0)
            if self._is_kept(record):
                # What was lent on top of it is no size that anybody could count on, so it is not held.
                held = round(self._book.held(node_id, token) * UNIT)
                is_less = self._wanted.on(node_id).get(token, 0) + held < self._highest_on(view, token)
                if units > target and (is_less or self._would_lose(record, share.resource, target + held, units + held)):
                    self._keep(view, token, units, target)
                    continue
            else:
                self._highest.get(node_id, {}).pop(token, None)
            if self._book.held(node_id, token) and not self.may_have_work(share.owner.account):
                self._holds.let_go(node_id, token)
                units = self._book.at_most(node_id, token)
            if units > target and not self._holds.is_making(node_id, token):
                changes[token] = from_units(target) + self._book.held(node_id, token)
                self._unsettled.add(node_id)  # what is in use stays until it is given back
        return changes | self._lower_parts(view)

    def _lower_parts(self, view: NodeView) -> Tokens:
        """What a class selects of a cluster shrinks when one inside gets it: it is held too, for who is queued for it."""
        node_id = view.node_id
        changes: Tokens = {}
        wanted = self._wanted_parts_on(node_id)
        for token in self._book.tokens(node_id):
            share = share_in(token)
            if share is None or not share.owner.is_part:
                continue
            if self._book.held(node_id, token) and not self.may_have_work(share.owner.account):
                self._holds.let_go(node_id, token)
            held = round(self._book.held(node_id, token) * UNIT)
            units, target = self._book.free_of_holds(node_id, token), wanted.get(token, 0)
            record = self._registry.records.get(share.owner.account)
            is_kept = self._is_kept(record)
            is_less = is_kept and self._wanted.parts_on(node_id).get(token, 0) + held < self._highest_on(view, token)
            would_lose = is_kept and self._would_lose(record, share.resource, target + held, units + held)
            if units > target and (is_less or would_lose):
                self._keep(view, token, units, target)
            elif units > target and not self._holds.is_making(node_id, token):
                changes[token] = from_units(target + held)
                self._unsettled.add(node_id)
            if not is_kept:
                self._highest.get(node_id, {}).pop(token, None)
        return changes

    def _held_here(self, node_id: str) -> list[str]:
        """Return the share tokens of which nothing but what is held stands on a node."""
        held = (token for amounts in self._holds.of_node(node_id).values() for token in amounts)
        return [token for token in held if (share := share_in(token)) is not None and not share.owner.is_part]

    def _is_kept(self, record: Record | None) -> bool:
        """Return whether somebody may be queued for the share of a cluster, also of a closed one: what was submitted in it
        before is left to finish. What a placement group has, nobody else wants."""
        if record is None or not record.offered or record.group is not None:
            return False
        return not record.vcluster.closing or (bool(record.job_id) and self.may_have_work(record.cluster_id))

    def _would_lose(self, record: Record | None, resource: str, after: int, before: int) -> bool:
        """Return whether something was seen in a cluster that fits what its token is now, and not what it would be: it may be
        queued since more than its share stood there, some of it lent or held."""
        return record is not None and any(after < size <= before for size in record.sizes.get(resource, ()))

    def _highest_on(self, view: NodeView, token: str) -> int:
        """Return the largest share that a token stood for on a node: work of that size may be queued for it."""
        node_id, highest = view.node_id, self._highest.setdefault(view.node_id, {})
        if token not in highest:
            # A controller before us wrote it: what is held was once a share too, though never more than the node has.
            share = share_in(token)
            is_part = share is not None and share.owner.is_part  # of which no sums are kept
            units = self._book.free_of_holds(node_id, token) if is_part else self._book.at_most(node_id, token)
            stands = units + round(self._book.held(node_id, token) * UNIT)
            highest[token] = min(stands, round(view.total.get(share.resource, 0.0) * UNIT)) if share is not None else stands
        wanted = self._wanted.on(node_id).get(token, 0) or self._wanted.parts_on(node_id).get(token, 0)
        highest[token] = max(highest[token], wanted)
        return highest[token]

    def _keep(self, view: NodeView, token: str, units: int, target: int) -> None:
        """Hold what is free of a token, by the last report of what is in use. What the report does not show yet cannot be held:
        a hold is placed by the same view."""
        held = self._book.held(view.node_id, token)
        reported = round(view.total.get(token, 0.0) * UNIT) >= units + round(held * UNIT)
        used = view.total.get(token, 0.0) - view.available.get(token, 0.0) - held
        free = units - max(target, round(used * UNIT))
        self._unsettled.add(view.node_id)
        if reported and free > 0:
            self._holds.want(view.node_id, {token: from_units(free)})

    def _raise(self, view: NodeView, room: Room, lowered: Tokens) -> Tokens:
        node_id = view.node_id
        changes: Tokens = {}
        lacking: set[str] = set()
        for token, units in self._wanted_on(node_id).items():
            share = share_in(token)
            assert share is not None
            self._highest_on(view, token)
            known = self._book.at_most(node_id, token)
            lack = units - known
            if lack <= 0 or token in lowered or self._holds.is_making(node_id, token):
                if lack > 0:
                    lacking.add(token)
                continue
            account = share.owner.account
            given = room.take(node_id, account, share.resource, lack) if self._may_raise(account) else 0
            if given:
                changes[token] = from_units(known + given) + self._book.held(node_id, token)
            if given < lack:
                lacking.add(token)
        if lacking:
            self._lacking[node_id] = lacking
        else:
            self._lacking.pop(node_id, None)
        for token, units in self._wanted_parts_on(node_id).items():
            self._highest_on(view, token)
            if self._book.free_of_holds(node_id, token) < units and not self._holds.is_making(node_id, token):
                changes[token] = from_units(units) + self._book.held(node_id, token)
        for token in self._book.spare_on(node_id):
            held = self._book.held(node_id, token)
            if token not in changes and self._book.amount(node_id, token) < held - EPSILON:
                changes[token] = from_units(self._book.at_most(node_id, token)) + held
        return changes

    def _may_raise(self, account: str) -> bool:
        """Return whether whoever comes after us knows what is promised; of a cluster that nobody can use yet nobody needs
        to."""
        record = self._registry.records.get(account)
        return record is None or not record.offered or self._registry.is_saved(account)


def _tree(vcluster: VCluster) -> list[VCluster]:
    return [vcluster, *(each for child in vcluster.children.values() for each in _tree(child))]


def _total(views: Mapping[str, NodeView], node_id: str, name: str) -> int:
    view = views.get(node_id)
    return round(view.total.get(name, 0.0) * UNIT) if view is not None else 0
