"""The book: which tokens stand on each node, by what its raylet answered last, and what of that we hold ourselves.

It is the only writer of that knowledge. A write that is in flight counts with the larger of before and after, so that no sum is
ever smaller than what may stand out there. A report is older than an answer: it has no say while we write, and where it differs
once we are quiet, the node is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from remora.controller.context import Context
from remora.controller.effects import Done, Resize
from remora.controller.lanes import Lanes
from remora.kernel.state.shares import bump
from remora.model.resources import UNIT
from remora.port.contract import NodeView
from remora.wire.owners import share_in
from remora.wire.timing import REPORTED_SECONDS
from remora.wire.tokens import TAKEN, is_token

Tokens = dict[str, float]
Units = dict[str, int]
EPSILON = TAKEN / 2


class Book:
    def __init__(self, context: Context, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes
        self._known: dict[str, Tokens] = {}
        self._asked: dict[str, Mapping[str, float]] = {}  # in flight
        self._changed_at: dict[str, float] = {}
        self._unsure: set[str] = set()  # nodes that have to be asked what stands there
        self._held: dict[str, Tokens] = {}
        self._held_on: dict[str, set[str]] = {}  # by token: where it is held
        self._held_of: dict[str, set[str]] = {}  # by account: its tokens that are held anywhere
        self._spare: dict[str, Mapping[str, float]] = {}
        self._counted: dict[str, Units] = {}  # of each node, the share tokens that are in the sums
        self._out_on: dict[tuple[str, str], int] = {}
        self._out_of: dict[str, dict[str, int]] = {}
        self._of_account: dict[str, dict[str, set[str]]] = {}  # by account and node, its tokens
        self.touched: set[str] = set()
        """Accounts whose sums have changed; whoever looks at them clears it."""

    # What stands there

    def nodes(self) -> Iterable[str]:
        return self._known

    def tokens(self, node_id: str) -> Mapping[str, float]:
        """Return the tokens of a node as its raylet answered last."""
        return self._known.get(node_id, {})

    def amount(self, node_id: str, token: str) -> float:
        return self._known.get(node_id, {}).get(token, 0.0)

    def stands(self, node_id: str, token: str) -> bool:
        """Return whether there is enough of a token on a node for one who takes it."""
        return self.amount(node_id, token) > EPSILON

    def held(self, node_id: str, token: str) -> float:
        """Return how much of a token our own holds take on a node, or will in a moment."""
        return self._held.get(node_id, {}).get(token, 0.0) + self._spare.get(node_id, {}).get(token, 0.0)

    def spare_on(self, node_id: str) -> Mapping[str, float]:
        """Return what should stand on a node only to be held in a moment."""
        return self._spare.get(node_id, {})

    def free_of_holds(self, node_id: str, token: str) -> int:
        """Return the units of a share token that are not held, by the last answer."""
        return round((self.amount(node_id, token) - self.held(node_id, token)) * UNIT)

    def at_most(self, node_id: str, token: str) -> int:
        """Return the units of a share token that may stand on a node and are not held, with what is in flight."""
        return self._counted.get(node_id, {}).get(token, 0)

    def shares_on(self, node_id: str) -> Mapping[str, int]:
        """Return the share tokens that may stand on a node, without what is held."""
        return self._counted.get(node_id, {})

    def out_on(self, node_id: str, resource: str) -> int:
        """Return the units of all shares of a resource that may stand on a node."""
        return self._out_on.get((node_id, resource), 0)

    def out_of(self, account: str) -> Mapping[str, int]:
        """Return the units of each resource that may stand on all nodes for one cluster, or one placement group's share."""
        return self._out_of.get(account, {})

    def places_of(self, account: str) -> Mapping[str, set[str]]:
        """Return the nodes on which an account has tokens, and which."""
        return self._of_account.get(account, {})

    def is_left(self, account: str) -> bool:
        """Return whether a token of an account may stand on any node, be it that all of it is held, or will be in a moment."""
        if account in self._of_account or account in self._held_of:
            return True
        spare = (share_in(token) for tokens in self._spare.values() for token in tokens)
        return any(share is not None and share.owner.account == account for share in spare)

    def held_accounts(self) -> Iterable[str]:
        """Return every cluster and placement group's share of which a token is held anywhere."""
        return self._held_of

    def nodes_holding(self, account: str) -> set[str]:
        """Return the nodes on which tokens of an account are held."""
        return {node_id for token in self._held_of.get(account, ()) for node_id in self._held_on[token]}

    def nodes_holding_token(self, token: str) -> Collection[str]:
        return self._held_on.get(token, ())

    def is_known(self, node_id: str) -> bool:
        """Return whether no raylet has to be asked before its shares are changed."""
        return node_id in self._known and node_id not in self._unsure

    def is_writing(self, node_id: str, token: str | None = None) -> bool:
        """Return whether a write to a node is in flight, or one of a single token."""
        asked = self._asked.get(node_id)
        return asked is not None and (token is None or token in asked)

    def lowering(self) -> set[str]:
        """Return the accounts of which a share token is being lowered right now."""
        found = set()
        for node_id, asked in self._asked.items():
            for token, amount in asked.items():
                share = share_in(token)
                if share is not None and amount < self.amount(node_id, token):
                    found.add(share.owner.account)
        return found

    # What changes it

    def see(self, view: NodeView, *, sure: bool) -> bool:
        """Take in a report. Return whether the node has to be looked at: it is new, or differs from what we knew.

        ``sure``: whatever a new node reports is all that stands there; otherwise it is asked first.
        """
        node_id = view.node_id
        reported = {name: amount for name, amount in view.total.items() if is_token(name) and amount}
        if node_id not in self._known:
            self._known[node_id] = reported
            self._recount(node_id, reported)
            if not sure:
                self._unsure.add(node_id)
            return True
        quiet = self._context.now() - self._changed_at.get(node_id, 0.0) > REPORTED_SECONDS
        if node_id in self._asked or not quiet or reported == self._known[node_id]:
            return False
        self._unsure.add(node_id)
        return True

    def doubt(self, node_id: str) -> None:
        """Ask a node what stands there before anything is decided by it."""
        self._unsure.add(node_id)

    def ask(self, node_id: str, amounts: Mapping[str, float]) -> Resize:
        """Return the write of these totals, which counts as in flight from now on."""
        self._asked[node_id] = amounts
        self._recount(node_id, amounts)
        return Resize(node_id, amounts)

    def unsure_nodes(self) -> list[str]:
        return [node_id for node_id in self._unsure if node_id not in self._asked]

    def done(self, done: Done) -> Mapping[str, tuple[float, float]]:
        """Take in the answer of a write. Return the tokens that changed by it, with before and after."""
        write = done.effect
        assert isinstance(write, Resize)
        node_id, asked = write.node_id, self._asked.pop(write.node_id, {})
        self._changed_at[node_id] = self._context.now()
        if node_id not in self._known:
            return {}
        if done.gone:  # nothing was given there, and a report will say so
            self._recount(node_id, asked)
            return {}
        known = self._known[node_id]
        if done.error:
            # It may have happened or not: nothing is given by it before the node is asked.
            for token, amount in asked.items():
                known[token] = max(known.get(token, 0.0), amount)
            self._unsure.add(node_id)
            self._recount(node_id, asked)
            return {}
        answered = {name: amount for name, amount in done.answer.items() if is_token(name) and amount}
        self._unsure.discard(node_id)
        self._known[node_id] = answered
        self._recount(node_id, {*known, *answered, *asked})
        return {
            name: (known.get(name, 0.0), answered.get(name, 0.0))
            for name in {*known, *answered}
            if known.get(name) != answered.get(name)
        }

    def hold(self, node_id: str, amounts: Mapping[str, float], sign: int = 1) -> None:
        """Our own holds take so much more on a node, or with a sign of -1 less."""
        held = self._held.setdefault(node_id, {})
        for token, amount in amounts.items():
            left = round(held.get(token, 0.0) + sign * amount, 4)
            if left > EPSILON:
                held[token] = left
            else:
                held.pop(token, None)
            self._note_held(node_id, token)
        self._recount(node_id, amounts)

    def set_spare(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """Say what should stand on a node only to be held in a moment; nothing from then on."""
        before = self._spare.pop(node_id, {})
        if amounts:
            self._spare[node_id] = amounts
        self._recount(node_id, {*before, *amounts})

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        for token in list(self._counted.get(node_id, {})):
            self._count(node_id, token, 0)
        for token in self._held.pop(node_id, {}):
            self._note_held(node_id, token)
        for table in (self._known, self._asked, self._spare, self._changed_at, self._counted):
            table.pop(node_id, None)
        self._unsure.discard(node_id)

    def validate(self) -> None:
        """Count the sums anew; raise AssertionError when they differ from those that are kept."""
        out_on: dict[tuple[str, str], int] = {}
        for node_id, known in self._known.items():
            for token in {*known, *self._asked.get(node_id, ())}:
                share = share_in(token)
                if share is not None and not share.owner.is_part:
                    key = node_id, share.resource
                    out_on[key] = out_on.get(key, 0) + self._units(node_id, token)
        kept = {key: units for key, units in self._out_on.items() if units}
        assert {key: units for key, units in out_on.items() if units} == kept, (out_on, kept)
        held_on = {token: {each for each, held in self._held.items() if token in held} for token in self._held_on}
        assert held_on == self._held_on
        assert all(token in self._held_on for held in self._held.values() for token in held)

    # The rest

    def _note_held(self, node_id: str, token: str) -> None:
        share, nodes = share_in(token), self._held_on.setdefault(token, set())
        if token in self._held.get(node_id, ()):
            nodes.add(node_id)
            if share is not None:
                self._held_of.setdefault(share.owner.account, set()).add(token)
            return
        nodes.discard(node_id)
        if not nodes:
            del self._held_on[token]
            if share is not None:
                tokens = self._held_of.get(share.owner.account, set())
                tokens.discard(token)
                if not tokens:
                    self._held_of.pop(share.owner.account, None)

    def _recount(self, node_id: str, tokens: Iterable[str]) -> None:
        for token in tokens:
            share = share_in(token)
            if share is not None and not share.owner.is_part:
                self._count(node_id, token, self._units(node_id, token))

    def _units(self, node_id: str, token: str) -> int:
        most = max(self.amount(node_id, token), self._asked.get(node_id, {}).get(token, 0.0))
        return max(round((most - self.held(node_id, token)) * UNIT), 0)

    def _count(self, node_id: str, token: str, units: int) -> None:
        share = share_in(token)
        assert share is not None
        counted = self._counted.setdefault(node_id, {})
        delta = units - counted.get(token, 0)
        places = self._of_account.setdefault(share.owner.account, {})
        if units:
            counted[token] = units
            places.setdefault(node_id, set()).add(token)
        else:
            counted.pop(token, None)
            if node_id in places:
                places[node_id].discard(token)
                if not places[node_id]:
                    del places[node_id]
        if not places:
            del self._of_account[share.owner.account]
        if delta:
            account = share.owner.account
            self.touched.add(account)
            key = node_id, share.resource
            self._out_on[key] = self._out_on.get(key, 0) + delta
            bump(self._out_of.setdefault(account, {}), share.resource, delta)
            if not self._out_on[key]:
                del self._out_on[key]
            if not self._out_of[account]:
                del self._out_of[account]
