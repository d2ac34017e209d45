"""What is written to nodes: one write for each that should have other tokens, and what came of it."""

from __future__ import annotations

from remora.controller.clusters.share_writer import ShareWriter
from remora.controller.context import Context
from remora.controller.effects import Done, Effect, Resize
from remora.controller.groups.group_shares import GroupShares
from remora.controller.lanes import Lanes
from remora.controller.picture import Picture
from remora.controller.tokens.book import EPSILON, Book, Tokens
from remora.controller.tokens.class_tokens import ClassTokens
from remora.controller.tokens.roster import Roster
from remora.wire.owners import share_in
from remora.wire.tokens import class_of_token

_WRITING = "writing"


class TokenWrites:
    def __init__(
        self,
        context: Context,
        lanes: Lanes,
        book: Book,
        roster: Roster,
        class_tokens: ClassTokens,
        shares: ShareWriter,
        groups: GroupShares,
        picture: Picture,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._book = book
        self._roster = roster
        self._class_tokens = class_tokens
        self._shares = shares
        self._groups = groups
        self._picture = picture
        self._clamped: set[str] = set()  # nodes where something in use could not be taken away

    @property
    def settled(self) -> bool:
        return not self._clamped

    def touch(self, node_id: str) -> None:
        """Look at the tokens of a node again."""
        self._class_tokens.dirty.add(node_id)
        self._shares.dirty.add(node_id)
        self._shares.look = True

    def plan(self) -> list[Effect]:
        """Return one write for each node that should have other tokens, and may be written to."""
        self._class_tokens.refresh()
        views = self._picture.views
        changes: dict[str, Tokens] = {}
        with self._context.aside.care_of("step", "planning shares"):
            changes = self._shares.changes(views)
            if self._groups.sweep():
                for node_id, tokens in self._shares.changes(views).items():
                    changes.setdefault(node_id, {}).update(tokens)
        for node_id in [each for each in self._class_tokens.dirty if self._may_write(each)]:
            with self._context.aside.care_of("node", node_id, _WRITING):
                found = self._class_tokens.changes(node_id, self._may_be_queued_for)
                if found:
                    changes.setdefault(node_id, {}).update(found)
                self._class_tokens.dirty.discard(node_id)
        unsure: dict[str, Tokens] = {
            node_id: {} for node_id in self._book.unsure_nodes() if node_id in views and self._lanes.is_free(node_id)
        }
        return [
            self._book.ask(node_id, amounts)
            for node_id, amounts in {**unsure, **changes}.items()
            if self._lanes.is_free(node_id)
        ]

    def done(self, done: Done) -> list[str]:
        """Take in what came of a write. Return the tokens of which less stands than before."""
        assert isinstance(done.effect, Resize)
        node_id = done.effect.node_id
        changed = self._book.done(done)
        self._shares.look = True
        if done.error or not self._book.is_known(node_id):
            self.touch(node_id)
        if any(self._book.amount(node_id, token) > amount + EPSILON for token, amount in done.effect.amounts.items()):
            self._clamped.add(node_id)
        return [token for token, (before, after) in changed.items() if after < before]

    def look_again(self) -> None:
        """In a round: try again what could not be written."""
        for node_id in {*self._class_tokens.unsettled(), *self._clamped}:
            self.touch(node_id)
        self._clamped.clear()
        self._shares.again()

    def _may_be_queued_for(self, token: str) -> bool:
        """Return whether work may be queued at a raylet that asks for a token."""
        share = share_in(token)
        if share is not None:
            return self._shares.may_have_work(share.owner.account)
        return class_of_token(token) in self._roster.offered

    def _may_write(self, node_id: str) -> bool:
        may_be = node_id in self._picture.views and self._book.is_known(node_id) and self._lanes.is_free(node_id)
        if may_be and self._picture.minds_draining and self._picture.views[node_id].draining:
            return False  # it starts nothing new, and refuses holds
        return may_be and self._context.aside.is_due("node", node_id, _WRITING)
