"""Slots: the names of lease tokens, and a few in reserve.

Names are used again, the lowest first, because Ray never forgets one. While leases are asked for, each node has slots in
reserve whose tokens stand there already: work that gets one of them starts at once, and all other work only when the raylets
have told each other of its token.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection

from remora.controller.context import Context
from remora.controller.tokens.class_tokens import ClassTokens
from remora.wire.timing import CREATE_SECONDS, KNOWN_SECONDS
from remora.wire.tokens import lease_token

_RESERVE = 4
_MOST_RESERVED_NODES = 64
"""In a cluster of more nodes than these only those have reserves that leases were given on last."""

_BUSY_SECONDS = 10.0
COOL_SECONDS = 2.0
"""A slot of a task is given to nobody else sooner: its last user may not have returned its worker yet."""


class Slots:
    """``generation`` tells our slots from those of controllers before us, which may still be on their way. ``is_standing`` says
    whether a node's raylet has answered that a token stands there."""

    def __init__(self, context: Context, tokens: ClassTokens, generation: int, is_standing: Callable[[str, str], bool]) -> None:
        self._context = context
        self._tokens = tokens
        self._generation = generation
        self._is_standing = is_standing
        self._numbers = 0
        self._free: dict[str, float] = {}  # and from when on each may be taken again
        self._ready: list[tuple[int, str]] = []
        self._cooling: list[tuple[float, str]] = []
        self._reserves: dict[str, deque[tuple[float, str]]] = {}
        self._busy_at: dict[str, float] = {}
        self._kept: dict[str, tuple[str, str]] = {}  # slots that a process may still use, however late: who, and its question

    def take(self, node_id: str | None) -> str:
        """Return one that is in reserve on the node where it is needed, or else the lowest that is free."""
        if node_id is None:
            return self._lowest()
        self._busy_at.pop(node_id, None)
        self._busy_at[node_id] = self._context.now()
        reserve = self._reserves.get(node_id)
        if not reserve or self._context.now() - reserve[0][0] < KNOWN_SECONDS or not self._stands(node_id, reserve[0][1]):
            return self._lowest()
        _, slot = reserve.popleft()
        self._tokens.drop_lease(node_id, lease_token(slot))  # whoever took it puts it there again
        self._fill(node_id, reserve)
        return slot

    def give_back(self, slot: str, after: float = COOL_SECONDS) -> None:
        """A slot may be taken again when nobody can use it any more."""
        self._free[slot] = self._context.now() + after
        heapq.heappush(self._cooling, (self._free[slot], slot))

    def keep(self, slot: str, worker_id: str, question: str) -> None:
        """Nobody came for a slot in time. Whoever asked may have been stopped, and come yet: while that process lives the slot
        is given to nobody else."""
        self._kept[slot] = worker_id, question

    def give_up(self, slot: str, question: str) -> None:
        """Whoever a slot is kept for says that it will not come."""
        if slot in self._kept and self._kept[slot][1] == question:
            del self._kept[slot]
            self.give_back(slot)

    def worker_ended(self, worker_id: str) -> None:
        """By the time that its slots are taken again, whatever a process has created is known of."""
        for slot in [slot for slot, (owner, _) in self._kept.items() if owner == worker_id]:
            del self._kept[slot]
            self.give_back(slot, after=CREATE_SECONDS)

    def kept_for(self) -> set[str]:
        """Return the processes for which slots are kept."""
        return {worker_id for worker_id, _ in self._kept.values()}

    def adopt(self, slot: str) -> None:
        """A slot turns out to be in use: it is given to nobody else."""
        self._free.pop(slot, None)
        self._kept.pop(slot, None)
        for node_id, reserve in self._reserves.items():
            if any(reserved == slot for _, reserved in reserve):
                self._reserves[node_id] = deque(each for each in reserve if each[1] != slot)
                self._tokens.drop_lease(node_id, lease_token(slot))

    def is_from_predecessor(self, slot: str) -> bool:
        """Return whether a controller before us gave this slot, and it has not come back to us."""
        return slot.partition(".")[0] != str(self._generation) and slot not in self._free

    def fill_reserves(self, alive: Collection[str]) -> None:
        """Keep a few where leases are asked for; afterwards nothing is in reserve."""
        now = self._context.now()
        busy = [node_id for node_id, at in self._busy_at.items() if now - at < _BUSY_SECONDS and node_id in alive]
        self._busy_at = {node_id: self._busy_at[node_id] for node_id in busy[-_MOST_RESERVED_NODES:]}
        nodes = alive if busy and len(alive) <= _MOST_RESERVED_NODES else self._busy_at
        for node_id in [each for each in self._reserves if each not in nodes]:
            for _, slot in self._reserves.pop(node_id):
                self._tokens.drop_lease(node_id, lease_token(slot))
                self.give_back(slot)
        for node_id in nodes:
            self._fill(node_id, self._reserves.setdefault(node_id, deque()))

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self._busy_at.pop(node_id, None)
        for _, slot in self._reserves.pop(node_id, ()):
            self.give_back(slot)

    def reserved(self) -> set[str]:
        return {slot for reserve in self._reserves.values() for _, slot in reserve}

    def _stands(self, node_id: str, slot: str) -> bool:
        return self._is_standing(node_id, lease_token(slot))

    def _fill(self, node_id: str, reserve: deque[tuple[float, str]]) -> None:
        while len(reserve) < _RESERVE:
            slot = self._lowest()
            reserve.append((self._context.now(), slot))
            self._tokens.put_lease(node_id, lease_token(slot))

    def _lowest(self) -> str:
        while self._cooling and self._cooling[0][0] <= self._context.now():
            at, slot = heapq.heappop(self._cooling)
            if self._free.get(slot) == at:
                heapq.heappush(self._ready, (len(slot), slot))
        while self._ready:
            _, slot = heapq.heappop(self._ready)
            if self._free.pop(slot, None) is not None:
                return slot
        self._numbers += 1
        return f"{self._generation}.{self._numbers}"
