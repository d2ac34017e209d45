"""How much of each resource every node has, with an index from a shape to the nodes that hold it.

A *view* is the node set for one shape. It is built once and then brought up to date only for the nodes that changed
since it was last asked, so a decision does not pay for nodes that it does not concern. A node has an entry only for what it
has: on a live cluster every node has a resource of its own, named after its address.
"""

from __future__ import annotations

from remora.kernel.state.node_sets import NodeSet
from remora.model.resources import Amounts, Resources

_VIEW_BYTES = 64_000_000


class _View:
    __slots__ = ("flags", "nodes", "pairs", "seen")

    def __init__(self, pairs: tuple[tuple[str, int], ...], size: int, seen: int) -> None:
        self.pairs = pairs
        self.flags = bytearray(size)
        self.nodes: NodeSet = 0
        self.seen = seen


class Ledger:
    """Amounts by node number and resource name; what a node has none of has no entry."""

    def __init__(self) -> None:
        self._amounts: list[dict[str, int]] = []
        self._views: dict[Resources, _View] = {}
        self._log: list[int] = []
        self._base = 0
        self.present: NodeSet = 0

    def add_node(self, number: int, amounts: Resources) -> None:
        while number >= len(self._amounts):
            self._amounts.append({})
        self.present |= 1 << number
        self.set(number, amounts)

    def remove_node(self, number: int) -> None:
        self._amounts[number] = {}
        self.present &= ~(1 << number)
        self._changed(number)

    def copy(self) -> Ledger:
        """Return the same amounts, to be changed apart from these; views are made as they are asked for."""
        made = Ledger()
        made._amounts = [dict(held) for held in self._amounts]
        made.present = self.present
        return made

    def get(self, number: int, name: str) -> int:
        """Return how much of a resource a node has."""
        return self._amounts[number].get(name, 0)

    def amounts(self, number: int) -> Amounts:
        """Return all that a node has, as it is at this moment: it is not to be kept."""
        return self._amounts[number]

    def set(self, number: int, amounts: Resources) -> bool:
        """Let a node have exactly this; return whether that is a change."""
        if amounts.same_as(self._amounts[number]):
            return False
        self._amounts[number] = dict(amounts.pairs)
        self._changed(number)
        return True

    def add(self, number: int, name: str, delta: int) -> None:
        held = self._amounts[number]
        left = held.get(name, 0) + delta
        if left:
            held[name] = left
        else:
            held.pop(name, None)
        self._changed(number)

    def take(self, number: int, amounts: Resources) -> None:
        held = self._amounts[number]
        for name, units in amounts.pairs:
            left = held.get(name, 0) - units
            if left:
                held[name] = left
            else:
                del held[name]
        self._changed(number)

    def give(self, number: int, amounts: Resources) -> None:
        for name, units in amounts.pairs:
            self.add(number, name, units)

    def at_least(self, shape: Resources) -> NodeSet:
        """Return the nodes that have at least ``shape``."""
        if not shape.pairs:
            return self.present
        view = self._views.get(shape)
        end = self._base + len(self._log)
        if view is None or view.seen < self._base:
            return self._build(shape, end)
        if view.seen < end:
            self._refresh(view, end)
        return view.nodes

    def shapes(self) -> list[Resources]:
        """Return the shapes that have a view, for ``validate()``."""
        return list(self._views)

    def _build(self, shape: Resources, end: int) -> NodeSet:
        if shape not in self._views and len(self._views) * (len(self._amounts) + 1) > _VIEW_BYTES:
            self._views.pop(next(iter(self._views)))
        view = _View(shape.pairs, len(self._amounts), end)
        name, need = shape.pairs[0]
        found = [number for number, held in enumerate(self._amounts) if held.get(name, 0) >= need]
        for name, need in shape.pairs[1:]:
            found = [number for number in found if self._amounts[number].get(name, 0) >= need]
        for number in found:
            view.flags[number] = 1
        view.nodes = int(view.flags[::-1].translate(_TO_DIGITS) or b"0", 2)
        self._views[shape] = view
        return view.nodes

    def _refresh(self, view: _View, end: int) -> None:
        flags, nodes = view.flags, view.nodes
        if len(flags) < len(self._amounts):
            flags.extend(bytes(len(self._amounts) - len(flags)))
        for number in self._log[view.seen - self._base :]:
            held = self._amounts[number]
            fits = 1
            for name, need in view.pairs:
                if held.get(name, 0) < need:
                    fits = 0
                    break
            if fits != flags[number]:
                flags[number] = fits
                nodes ^= 1 << number
        view.nodes = nodes
        view.seen = end

    def _changed(self, number: int) -> None:
        log = self._log
        log.append(number)
        if len(log) > 4 * len(self._amounts) + 1024:
            self._base += len(log)
            log.clear()


_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")
