"""Slots: the names of lease tokens, and a few in reserve.

Names are used again, the lowest first, because Ray never forgets one. While leases are asked for, each node has slots in
reserve whose tokens stand there already: work that gets one of them starts at once, and all other work only when the raylets
have told each other of its token.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection

from remora.controller.standing import Standing
from remora.seam.port import Port

_GENERATION = "generation"
_RESERVE = 4
_BUSY_SECONDS = 10.0
_KNOWN_SECONDS = 0.3  # until every raylet knows of a token
_COOL_SECONDS = 2.0


class Slots:
    def __init__(self, port: Port, standing: Standing, now: Callable[[], float]) -> None:
        self._standing = standing
        self._now = now
        # Slots of a killed controller may still be on their way: ours are told apart by a number of its own.
        self._generation = int(port.get(_GENERATION) or b"0") + 1
        port.put(_GENERATION, str(self._generation).encode())
        self._numbers = 0
        self._free: set[str] = set()
        self._ready: list[tuple[int, str]] = []
        self._cooling: list[tuple[float, str]] = []
        self._reserves: dict[str, deque[tuple[float, str]]] = {}
        self._busy_at = -_BUSY_SECONDS

    def take(self, node_id: str | None) -> str:
        """One that is in reserve on the node where it is needed, or else the lowest that is free."""
        self._busy_at = self._now()
        reserve = self._reserves.get(node_id or "")
        if node_id is None or not reserve or self._now() - reserve[0][0] < _KNOWN_SECONDS:
            return self._lowest()
        _, slot = reserve.popleft()
        self._fill(node_id, reserve)
        return slot

    def give_back(self, slot: str, after: float = _COOL_SECONDS) -> None:
        """It may be taken again when nobody can use it any more: its last user may not have returned its worker yet."""
        self._free.add(slot)
        heapq.heappush(self._cooling, (self._now() + after, slot))

    def is_free(self, slot: str) -> bool:
        return slot in self._free

    def fill_reserves(self, alive: Collection[str]) -> None:
        """While leases are asked for; afterwards nothing is in reserve."""
        busy = self._now() - self._busy_at < _BUSY_SECONDS
        for node_id in [node_id for node_id in self._reserves if not busy or node_id not in alive]:
            for _, slot in self._reserves.pop(node_id):
                self._standing.take(node_id, slot)
                self.give_back(slot)
        for node_id in alive if busy else ():
            self._fill(node_id, self._reserves.setdefault(node_id, deque()))

    def _fill(self, node_id: str, reserve: deque[tuple[float, str]]) -> None:
        while len(reserve) < _RESERVE:
            slot = self._lowest()
            reserve.append((self._now(), slot))
            self._standing.put(node_id, slot)

    def _lowest(self) -> str:
        while self._cooling and self._cooling[0][0] <= self._now():
            _, slot = heapq.heappop(self._cooling)
            heapq.heappush(self._ready, (len(slot), slot))
        if self._ready:
            _, slot = heapq.heappop(self._ready)
            self._free.discard(slot)
            return slot
        self._numbers += 1
        return f"{self._generation}.{self._numbers}"
