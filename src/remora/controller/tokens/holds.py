"""Holds: placement groups of our own that keep tokens from others. A token that is held stays on its node with nothing free.

Ray fails work that is queued at a raylet when no node in the cluster has what it asks for, in total. So what somebody may be
queued for is held rather than removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping

from remora.controller.context import Context
from remora.controller.effects import Done, Hold, LetGo
from remora.controller.lanes import Lanes
from remora.controller.store import Store
from remora.controller.tokens.book import Book, Tokens
from remora.wire.keys import HOLDS
from remora.wire.tokens import KEEP, hold_name

_AGAIN_SECONDS = 0.1
"""What was refused is tried again in the next round at the earliest."""


class Holds:
    """A hold is remembered before it is made, so that a controller that dies over it is not survived by it."""

    def __init__(self, context: Context, lanes: Lanes, store: Store, book: Book) -> None:
        self._context = context
        self._lanes = lanes
        self._store = store
        self._book = book
        self._made: dict[str, dict[str, Tokens]] = {}
        self._wanted: dict[str, tuple[str, Tokens]] = {}  # by node: the name and amounts of the one that is to be made
        self._refused_at: dict[str, float] = {}
        self._ending: dict[str, str] = {}  # names that are to be let go, and their nodes
        self._is_over = False
        self.may_hold = True  # not while GCS is busy with a group that lost its node, and would not come to it

    # What others ask

    def of_node(self, node_id: str) -> Mapping[str, Tokens]:
        """Return the holds of a node by name."""
        return self._made.get(node_id, {})

    @property
    def nodes(self) -> Collection[str]:
        """Return the nodes with holds."""
        return self._made.keys()

    def is_making(self, node_id: str, token: str | None = None) -> bool:
        """Return whether a hold is about to be made on a node, or one of a single token."""
        wanted = self._wanted.get(node_id)
        return wanted is not None and (token is None or token in wanted[1])

    @property
    def settled(self) -> bool:
        return not self._wanted and not self._ending

    def holding(self, token: str) -> list[str]:
        """Return the nodes on which a token is held, or will be in a moment."""
        found = [node_id for node_id, holds in self._made.items() if any(token in amounts for amounts in holds.values())]
        return [*found, *(node_id for node_id in self._wanted if self.is_making(node_id, token) and node_id not in found)]

    # What changes them

    def want(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """Take so much on a node as soon as that may be, and keep it. One at a time on each node."""
        refused_at = self._refused_at.get(node_id, 0.0)
        if self._is_over or node_id in self._wanted or not self.may_hold or self._context.now() - refused_at < _AGAIN_SECONDS:
            return
        taken = {*self._made.get(node_id, ()), *(name for name, where in self._ending.items() if where == node_id)}
        name = next(name for number in itertools.count() if (name := hold_name(node_id, number)) not in taken)
        self._wanted[node_id] = name, dict(amounts)
        self._store.set(HOLDS.key(node_id, name), HOLDS.write(dict(sorted(amounts.items()))))

    def let_go(self, node_id: str, token: str) -> None:
        """End every hold of a token on a node: nothing has to be protected by it any more."""
        for name, amounts in list(self._made.get(node_id, {}).items()):
            if token in amounts:
                self._end(node_id, name)

    def let_go_unless(self, node_id: str, is_wanted: Callable[[str], bool]) -> None:
        """End the holds of a node whose tokens nobody wants any more. What keeps a machine is let go by whoever keeps it."""
        for name, amounts in list(self._made.get(node_id, {}).items()):
            if not any(map(is_wanted, amounts)) and KEEP not in amounts:
                self._end(node_id, name)

    def restore(self, node_id: str, name: str, amounts: Mapping[str, float]) -> None:
        """One that a controller before us has made."""
        self._made.setdefault(node_id, {})[name] = dict(amounts)
        self._book.hold(node_id, amounts)

    def discard(self, node_id: str, name: str) -> None:
        """One that a controller before us may have been making when it died."""
        self._ending[name] = node_id

    def forget(self, node_id: str) -> None:
        """The node is gone, and with it what was held there; the groups of Ray's are removed."""
        self._unwant(node_id)
        for name in list(self._made.get(node_id, {})):
            self._end(node_id, name)
        self._made.pop(node_id, None)
        self._refused_at.pop(node_id, None)

    def end_all(self) -> None:
        """Let go of everything and hold nothing any more; what is just being made is let go when it is there."""
        self._is_over = True
        for node_id in [each for each in self._wanted if not self._lanes.is_busy(f"hold {each}")]:
            self._unwant(node_id)
        for node_id in list(self._made):
            for name in list(self._made[node_id]):
                self._end(node_id, name)

    # Effects

    def plan(self) -> list[Hold | LetGo]:
        """Return what may be done now. A hold is made when the store knows of it."""
        effects: list[Hold | LetGo] = []
        for node_id, (name, amounts) in self._wanted.items():
            hold = Hold(name, node_id, amounts)
            if self._store.is_confirmed(HOLDS.key(node_id, name)) and self._lanes.is_free(hold.lane):
                effects.append(hold)
        ending = (LetGo(name, node_id) for name, node_id in self._ending.items())
        busy = {effect.lane for effect in effects}
        for let_go in ending:
            if let_go.lane not in busy and self._lanes.is_free(let_go.lane):
                effects.append(let_go)
                busy.add(let_go.lane)
        return effects

    def held(self, done: Done) -> bool:
        """Take in what came of a hold. Return whether it was made."""
        hold = done.effect
        assert isinstance(hold, Hold)
        wanted = self._wanted.pop(hold.node_id, None)
        if done.answer is not True or wanted is None or self._is_over:
            self._refused_at[hold.node_id] = self._context.now()
            self._ending[hold.name] = hold.node_id  # after an error it may be there all the same
            return False
        self._made.setdefault(hold.node_id, {})[hold.name] = wanted[1]
        self._book.hold(hold.node_id, wanted[1])
        return True

    def let_go_done(self, done: Done) -> None:
        let_go = done.effect
        assert isinstance(let_go, LetGo)
        if not done.error:
            self._ending.pop(let_go.name, None)
            self._store.set(HOLDS.key(let_go.node_id, let_go.name), None)

    def _unwant(self, node_id: str) -> None:
        """Forget one that is to be made. One that is being made just now is let go when it is there."""
        wanted = self._wanted.pop(node_id, None)
        if wanted is not None and not self._lanes.is_busy(f"hold {node_id}"):
            self._store.set(HOLDS.key(node_id, wanted[0]), None)

    def _end(self, node_id: str, name: str) -> None:
        amounts = self._made[node_id].pop(name)
        self._ending[name] = node_id
        self._book.hold(node_id, amounts, -1)
