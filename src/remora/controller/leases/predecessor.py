"""What a controller before us gave: its tokens stand, and whoever they were given for may still be on its way."""

from __future__ import annotations

from remora.controller.context import Context
from remora.controller.leases.lease_table import LeaseTable
from remora.controller.leases.slots import Slots
from remora.controller.tokens.book import Book
from remora.controller.tokens.class_tokens import ClassTokens
from remora.port.contract import RUNNING, Work
from remora.wire.asks import LEASE_LABEL
from remora.wire.timing import PREDECESSOR_SECONDS
from remora.wire.tokens import lease_token


class Predecessor:
    def __init__(self, context: Context, table: LeaseTable, slots: Slots, book: Book, tokens: ClassTokens) -> None:
        self._context = context
        self._table = table
        self._slots = slots
        self._book = book
        self._tokens = tokens
        self._began = context.now()
        self._keeps = True

    def is_kept(self, slot: str) -> bool:
        """Return whether a token is left alone though nobody wants it: a controller before us gave its slot, and its work may
        still be on its way."""
        return self._is_young and slot not in self._table.by_slot and self._slots.is_from_predecessor(slot)

    def is_settled(self, work: Work) -> bool:
        """Return whether an actor is somewhere, and nothing has to be decided about it: it runs, or its token stands."""
        slot = work.labels.get(LEASE_LABEL)
        return work.state == RUNNING or (slot is not None and self.token_on(slot) is not None)

    def token_on(self, slot: str) -> str | None:
        """Return the node on which the token of a slot stands."""
        token = lease_token(slot)
        return next((node_id for node_id in self._book.nodes() if self._book.amount(node_id, token)), None)

    def look(self) -> None:
        """In a round: what nobody has come for is taken away."""
        if self._keeps and not self._is_young:
            self._keeps = False
            self._tokens.dirty.update(self._book.nodes())

    @property
    def _is_young(self) -> bool:
        return self._context.now() - self._began < PREDECESSOR_SECONDS
