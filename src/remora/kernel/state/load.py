"""How busy each node is, in steps, as node sets: what Ray's hybrid policy ranks by.

A node's utilisation is that of its most used critical resource (CPU, memory, object store), as in Ray.
"""

from __future__ import annotations

from remora.kernel.state.ledger import Ledger
from remora.kernel.state.node_sets import NodeSet

STEPS = 32
CALM_STEPS = STEPS // 2
"""Below half, nodes count as equally good and are filled in order; above, the least used is taken: Ray's 0.5 threshold."""

_CRITICAL = ("CPU", "memory", "object_store_memory")


class Load:
    def __init__(self, totals: Ledger, available: Ledger) -> None:
        self._totals = totals
        self._available = available
        self._step: list[int] = []
        self.levels: list[NodeSet] = [0] * (STEPS + 1)
        self.calm: NodeSet = 0

    def copy(self, totals: Ledger, available: Ledger) -> Load:
        """Return the same over copies of the ledgers."""
        made = Load(totals, available)
        made._step, made.levels, made.calm = list(self._step), list(self.levels), self.calm
        return made

    def add_node(self, number: int) -> None:
        if number >= len(self._step):
            self._step.extend([-1] * (number + 1 - len(self._step)))
        self.update(number)

    def remove_node(self, number: int) -> None:
        self._move(number, -1)

    def update(self, number: int) -> None:
        step = self.step_of(number)
        if step != self._step[number]:
            self._move(number, step)

    def step_of(self, number: int) -> int:
        step = 0
        for name in _CRITICAL:
            total = self._totals.get(number, name)
            if total:
                used = (total - self._available.get(number, name)) * STEPS // total
                if used > step:
                    step = used
        return min(step, STEPS)  # more than all, while a node that shrank is repaid

    def _move(self, number: int, step: int) -> None:
        bit = 1 << number
        old = self._step[number]
        if old >= 0:
            self.levels[old] ^= bit
            if old < CALM_STEPS:
                self.calm ^= bit
        self._step[number] = step
        if step >= 0:
            self.levels[step] |= bit
            if step < CALM_STEPS:
                self.calm |= bit
