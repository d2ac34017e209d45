"""How much of each resource every node has, with an index from a shape to the nodes that hold it.

A *view* is the node set for one shape. It is built once and then brought up to date only for the nodes that changed
since it was last asked, so a decision does not pay for nodes that it does not concern.
"""

from __future__ import annotations

from remora.kernel.nodesets import NodeSet
from remora.model.resources import Amounts, Resources

_VIEW_BYTES = 64_000_000


class _View:
    __slots__ = ("columns", "flags", "nodes", "seen")

    def __init__(self, columns: list[tuple[list[int], int]], size: int, seen: int) -> None:
        self.columns = columns
        self.flags = bytearray(size)
        self.nodes: NodeSet = 0
        self.seen = seen


class Ledger:
    """Amounts by node number and resource name."""

    def __init__(self) -> None:
        self.size = 0
        self._columns: dict[str, list[int]] = {}
        self._views: dict[Resources, _View] = {}
        self._log: list[int] = []
        self._base = 0
        self.present: NodeSet = 0

    def add_node(self, number: int, amounts: Amounts) -> None:
        if number >= self.size:
            grown = number + 1 - self.size
            for column in self._columns.values():
                column.extend([0] * grown)
            self.size = number + 1
        self.present |= 1 << number
        for name, units in amounts.items():
            self._column(name)[number] = units
        self._changed(number)

    def remove_node(self, number: int) -> None:
        for column in self._columns.values():
            column[number] = 0
        self.present &= ~(1 << number)
        self._changed(number)

    def get(self, number: int, name: str) -> int:
        column = self._columns.get(name)
        return column[number] if column is not None else 0

    def add(self, number: int, name: str, delta: int) -> None:
        self._column(name)[number] += delta
        self._changed(number)

    def take(self, number: int, amounts: Resources) -> None:
        for name, units in amounts.pairs:
            self._column(name)[number] -= units
        self._changed(number)

    def give(self, number: int, amounts: Resources) -> None:
        for name, units in amounts.pairs:
            self._column(name)[number] += units
        self._changed(number)

    def amounts(self, number: int) -> dict[str, int]:
        return {name: column[number] for name, column in self._columns.items() if column[number]}

    def at_least(self, shape: Resources) -> NodeSet:
        """The nodes that have at least ``shape``."""
        if not shape.pairs:
            return self.present
        view = self._views.get(shape)
        end = self._base + len(self._log)
        if view is None or view.seen < self._base:
            return self._build(shape, end)
        if view.seen < end:
            self._refresh(view, end)
        return view.nodes

    def names(self) -> list[str]:
        return list(self._columns)

    def shapes(self) -> list[Resources]:
        """The shapes that have a view, for ``validate()``."""
        return list(self._views)

    def _build(self, shape: Resources, end: int) -> NodeSet:
        if shape not in self._views and len(self._views) * (self.size + 1) > _VIEW_BYTES:
            self._views.pop(next(iter(self._views)))
        view = _View([(self._column(name), units) for name, units in shape.pairs], self.size, end)
        column, need = view.columns[0]
        found = [number for number, units in enumerate(column) if units >= need]
        for column, need in view.columns[1:]:
            found = [number for number in found if column[number] >= need]
        for number in found:
            view.flags[number] = 1
        view.nodes = int(view.flags[::-1].translate(_TO_DIGITS) or b"0", 2)
        self._views[shape] = view
        return view.nodes

    def _refresh(self, view: _View, end: int) -> None:
        flags, nodes = view.flags, view.nodes
        if len(flags) < self.size:
            flags.extend(bytes(self.size - len(flags)))
        for number in self._log[view.seen - self._base :]:
            fits = 1
            for column, need in view.columns:
                if column[number] < need:
                    fits = 0
                    break
            if fits != flags[number]:
                flags[number] = fits
                nodes ^= 1 << number
        view.nodes = nodes
        view.seen = end

    def _column(self, name: str) -> list[int]:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = [0] * self.size
        return column

    def _changed(self, number: int) -> None:
        log = self._log
        log.append(number)
        if len(log) > 4 * self.size + 1024:
            self._base += len(log)
            log.clear()


_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")
