"""Which machines are kept from being ended though they look idle, each by a hold on a token of its own; and which are made idle
because nothing but our own holds keeps them busy."""

from __future__ import annotations

from collections.abc import Mapping

from remora.controller.context import Context
from remora.controller.effects import Nudge
from remora.controller.tokens.book import EPSILON, Book
from remora.controller.tokens.class_tokens import ClassTokens
from remora.controller.tokens.holds import Holds
from remora.kernel.provisioning.keeping import LEASE, Kept
from remora.port.contract import NodeView
from remora.wire.owners import share_in
from remora.wire.tokens import KEEP, TAKEN, is_real, is_token

STARTING_SECONDS = 5.0
"""The token of a lease starts the clock of an idle machine again when it is written: what starts soon needs no hold."""

NUDGED_SECONDS = 5.0


class Keeper:
    def __init__(self, context: Context, class_tokens: ClassTokens, holds: Holds, book: Book) -> None:
        self._context = context
        self._class_tokens = class_tokens
        self._holds = holds
        self._book = book
        self._kept: dict[str, Kept] = {}
        self._starting: dict[str, float] = {}  # by node: since when something is about to start there
        self._nudged_at: dict[str, float] = {}
        self._nudges: dict[str, Nudge] = {}

    @property
    def kept(self) -> Mapping[str, Kept]:
        """The machines that are kept, with why."""
        return self._kept

    def keep(self, wanted: Mapping[str, Kept], views: Mapping[str, NodeView]) -> None:
        """Keep these machines and no others. The hold is made when a report shows its token: GCS places holds by it."""
        now = self._context.now()
        starting = [node_id for node_id, kept in wanted.items() if kept.kind == LEASE]
        self._starting = {node_id: self._starting.get(node_id, now) for node_id in starting}
        due = {
            node_id: kept
            for node_id, kept in wanted.items()
            if kept.kind != LEASE or now - self._starting[node_id] >= STARTING_SECONDS
        }
        for node_id, kept in due.items():
            if node_id not in self._kept:
                self._context.note("machines", node_id, f"the node is kept: {kept.why}")
            if self._book.held(node_id, KEEP) or self._holds.is_making(node_id, KEEP):
                continue
            self._class_tokens.put_keep(node_id)
            view = views.get(node_id)
            if view is not None and view.available.get(KEEP, 0.0) >= TAKEN:
                self._holds.want(node_id, {KEEP: TAKEN})
        for node_id in [each for each in self._holds.holding(KEEP) if each not in due]:
            self._holds.let_go(node_id, KEEP)
        for node_id in self._kept.keys() - due.keys():
            self._context.note("machines", node_id, "the node is no longer kept")
        self._kept = due

    @property
    def settled(self) -> bool:
        """Return whether every machine that is to be kept is held."""
        return all(self._book.held(node_id, KEEP) for node_id in self._kept)

    def holds_back(self, views: Mapping[str, NodeView]) -> bool:
        """Return whether a machine is busy by our holds alone."""
        held = (views[node_id] for node_id in self._holds.nodes if node_id in views)
        return any(view.node_type and self.is_held_by_us(view) for view in held)

    def is_held_by_us(self, view: NodeView) -> bool:
        """Return whether nothing but our own holds is in use on a node, and it is not kept."""
        if not self._holds.of_node(view.node_id) or view.node_id in self._kept or self._book.held(view.node_id, KEEP):
            return False
        held = False
        for name, amount in view.total.items():
            used = amount - view.available.get(name, 0.0)
            if used <= EPSILON:
                continue
            if is_real(name) or (is_token(name) and abs(used - self._book.held(view.node_id, name)) > EPSILON):
                return False
            held = held or is_token(name)
        return held

    def nudge(self, views: Mapping[str, NodeView], busy: frozenset[str]) -> None:
        """Make machines idle that are busy by our holds alone: once, and again when they are busy again."""
        now = self._context.now()
        self._nudges.clear()
        for node_id in busy & views.keys():
            view = views[node_id]
            if not view.node_type or now - self._nudged_at.get(node_id, -1e9) < NUDGED_SECONDS or not self.is_held_by_us(view):
                continue
            shares = {
                name: self._book.amount(node_id, name)
                for name in view.total
                if share_in(name) is not None and self._book.held(node_id, name)
            }
            if shares:
                self._nudges[node_id] = Nudge(node_id, shares)

    def plan(self) -> list[Nudge]:
        """Return the nudges that are due."""
        for node_id in self._nudges:
            self._nudged_at[node_id] = self._context.now()
        due, self._nudges = list(self._nudges.values()), {}
        return due

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self._kept.pop(node_id, None)
        self._nudges.pop(node_id, None)
        self._nudged_at.pop(node_id, None)
