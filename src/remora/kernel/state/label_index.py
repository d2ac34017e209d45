"""Label -> nodes, with reference counts: the index that Ray's affinity proposals describe.

One class serves the labels of nodes, of what is placed on them, and taints. A *scope* keeps owners and namespaces
apart: ``("actor", "default")``. A label that lies on one node costs one dictionary entry; a common one keeps its node
set up to date as an integer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from remora.kernel.state.node_sets import NodeSet
from remora.model.labels import Labels
from remora.model.selectors import LabelMatchExpression

Scope = Hashable

_KEEP_ABOVE = 32


class Tally:
    """How often something lies on each node; its node set is kept once the set is large enough to be worth it."""

    __slots__ = ("_kept", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._kept: NodeSet | None = None

    def add(self, number: int) -> None:
        count = self.counts.get(number, 0)
        self.counts[number] = count + 1
        if not count and self._kept is not None:
            self._kept |= 1 << number

    def remove(self, number: int) -> None:
        count = self.counts[number]
        if count > 1:
            self.counts[number] = count - 1
            return
        del self.counts[number]
        if self._kept is not None:
            self._kept ^= 1 << number

    def copy(self) -> Tally:
        made = Tally()
        made.counts, made._kept = dict(self.counts), self._kept
        return made

    def nodes(self) -> NodeSet:
        if self._kept is not None:
            return self._kept
        nodes = 0
        for number in self.counts:
            nodes |= 1 << number
        if len(self.counts) > _KEEP_ABOVE:
            self._kept = nodes
        return nodes


class LabelIndex:
    """Which nodes have which labels, by scope."""

    def __init__(self) -> None:
        self._values: dict[tuple[Scope, str], dict[str, int | Tally]] = {}
        self._keys: dict[tuple[Scope, str], Tally] = {}

    def copy(self) -> LabelIndex:
        """Return the same index, to be changed apart from this one."""
        made = LabelIndex()
        made._values = {
            place: {value: entry if isinstance(entry, int) else entry.copy() for value, entry in values.items()}
            for place, values in self._values.items()
        }
        made._keys = {place: tally.copy() for place, tally in self._keys.items()}
        return made

    def add(self, scope: Scope, labels: Labels, number: int) -> None:
        for key, value in labels:
            place = (scope, key)
            values = self._values.get(place)
            if values is None:
                values = self._values[place] = {}
                self._keys[place] = Tally()
            self._keys[place].add(number)
            entry = values.get(value)
            if entry is None:
                values[value] = number  # the one node, once: most labels are of this kind
                continue
            if isinstance(entry, int):
                tally = values[value] = Tally()
                tally.add(entry)
                entry = tally
            entry.add(number)

    def remove(self, scope: Scope, labels: Labels, number: int) -> None:
        for key, value in labels:
            place = (scope, key)
            values = self._values[place]
            entry = values[value]
            if isinstance(entry, int):
                del values[value]
            else:
                entry.remove(number)
                if not entry.counts:
                    del values[value]
            tally = self._keys[place]
            tally.remove(number)
            if not tally.counts:
                del self._keys[place], self._values[place]

    def with_value(self, scope: Scope, key: str, values: Iterable[str]) -> NodeSet:
        known = self._values.get((scope, key))
        if known is None:
            return 0
        nodes = 0
        for value in values:
            entry = known.get(value)
            if entry is not None:
                nodes |= 1 << entry if isinstance(entry, int) else entry.nodes()
        return nodes

    def with_key(self, scope: Scope, key: str) -> NodeSet:
        tally = self._keys.get((scope, key))
        return tally.nodes() if tally is not None else 0

    def concerned(self, scope: Scope, term: LabelMatchExpression) -> NodeSet:
        """Return the nodes that have what the expression names; it wants or refuses them by ``term.positive``."""
        if term.takes_values:
            return self.with_value(scope, term.key, term.values)
        return self.with_key(scope, term.key)

    def values_of(self, scope: Scope, key: str) -> Iterable[str]:
        """Return every value that lies somewhere under a key."""
        return self._values.get((scope, key), {}).keys()

    def counts(self, scope: Scope, key: str, value: str) -> Mapping[int, int]:
        """Return how often a value that lies somewhere lies on each node."""
        entry = self._values[scope, key][value]
        return {entry: 1} if isinstance(entry, int) else entry.counts

    def values(self, scope: Scope) -> Iterator[tuple[str, str, NodeSet]]:
        """Yield every key and value of a scope with its nodes."""
        for (owner, key), values in self._values.items():
            if owner == scope:
                for value in values:
                    yield key, value, self.with_value(scope, key, (value,))

    def __bool__(self) -> bool:
        return bool(self._keys)

    def recount(self) -> dict[tuple[Scope, str, str], dict[int, int]]:
        """Return everything in the index in its plainest form, for ``validate()``."""
        plain: dict[tuple[Scope, str, str], dict[int, int]] = {}
        for (scope, key), values in self._values.items():
            for value, entry in values.items():
                plain[scope, key, value] = {entry: 1} if isinstance(entry, int) else dict(entry.counts)
        return plain
