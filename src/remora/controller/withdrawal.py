"""Withdrawing: every token is taken from every node and everything is forgotten, so that the cluster is stock again."""

from __future__ import annotations

from collections.abc import Iterable

from remora.controller.context import Context
from remora.controller.effects import Done, Resize
from remora.controller.lanes import Lanes
from remora.controller.store import Store
from remora.controller.tokens.book import Book
from remora.controller.tokens.holds import Holds
from remora.port.contract import NodeView
from remora.wire.keys import OUTLIVES_WITHDRAWAL, kind_of
from remora.wire.tokens import is_token

_PATIENT_SECONDS = 5.0
"""A node that cannot be written to, or a store, is tried again for so long."""


class Withdrawal:
    def __init__(self, context: Context, lanes: Lanes, store: Store, holds: Holds, book: Book) -> None:
        self._context = context
        self._lanes = lanes
        self._store = store
        self._holds = holds
        self._book = book
        self._names: dict[str, set[str]] = {}  # nodes that have yet to be emptied, and tokens that were reported there
        self._nodes: list[str] = []
        self._until = 0.0
        self.has_begun = False

    def begin(self, views: Iterable[NodeView]) -> None:
        """Let go of all that is held, forget all that is remembered, and empty these nodes. It may be begun again: what was in
        use may have been given back."""
        self.has_begun = True
        self._until = self._context.now() + _PATIENT_SECONDS
        self._names = {view.node_id: {name for name in view.total if is_token(name)} for view in views}
        self._nodes = list(self._names)
        self._holds.end_all()
        self._context.journal.clear()
        for key in self._store.all_keys():
            if kind_of(key, OUTLIVES_WITHDRAWAL) is None:
                self._store.set(key, None)

    def plan(self) -> list[Resize]:
        """Return the writes that empty nodes. What is held has to be let go first, and what is in flight to be answered."""
        if not self._holds.settled:
            return []
        ready = [node_id for node_id in self._names if self._lanes.is_free(node_id)]
        tokens = {node_id: {*self._names[node_id], *self._book.tokens(node_id)} for node_id in ready}
        for node_id in [each for each in ready if not tokens[each]]:
            del self._names[node_id]
        return [self._book.ask(node_id, dict.fromkeys(tokens[node_id], 0.0)) for node_id in ready if tokens[node_id]]

    def done(self, done: Done) -> None:
        """Take in what came of a write to a node; one from before may just have given it tokens."""
        write = done.effect
        assert isinstance(write, Resize)
        if done.gone:
            self._book.forget(write.node_id)
        empties = self._book.tokens(write.node_id).keys() <= write.amounts.keys() and not any(write.amounts.values())
        if done.gone or (not done.error and empties):
            self._names.pop(write.node_id, None)

    @property
    def is_patient(self) -> bool:
        """Return whether what does not go at once is still waited for."""
        return self._context.now() < self._until

    def left(self) -> list[str] | None:
        """Return the nodes that still have tokens, because something holds them; None while tokens are being taken away."""
        is_done = not self._names and self._store.settled and self._holds.settled
        if not is_done and self.is_patient:
            return None
        return [node_id for node_id in self._nodes if self._book.tokens(node_id)]
