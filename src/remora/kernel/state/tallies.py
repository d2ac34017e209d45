"""How many of the same kind lie in each domain, for the rule about evenness: one tally for each kind that somebody asked about.

A tally keeps the nodes of its domains by how many are there, so that the least and whatever is not far above it are found
without a look at every domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from remora.kernel.state.domains import domain_of, domains_of, in_domain
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Nodes
from remora.kernel.state.workloads import Workload
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import OBJECT

_MOST = 4_096


class TallyKey(NamedTuple):
    """What is counted: by which label of nodes, in which namespace, in which virtual cluster (None: everywhere), with which
    labels."""

    over: str
    namespace: str
    cluster: str | None
    counted: tuple[LabelMatchExpression, ...]

    def counts(self, workload: Workload) -> bool:
        request = workload.request
        if request.kind == OBJECT or request.namespace != self.namespace or self.cluster not in (None, request.cluster):
            return False
        labels = dict(workload.labels)
        return all(term.matches(labels) for term in self.counted)


class DomainTally:
    """``counts`` by domain, without those that have none; ``levels`` are the nodes of the domains by their count."""

    __slots__ = ("_levels", "_version", "counts", "domains", "over")

    def __init__(self, over: str) -> None:
        self.over = over
        self.counts: dict[str, int] = {}
        self._levels: dict[int, NodeSet] = {}
        self._version = -1
        # By whom it is asked for: the version that it is of, and the domains where that could run.
        self.domains: dict[object, tuple[int, tuple[str, ...]]] = {}

    def copy(self) -> DomainTally:
        made = DomainTally(self.over)
        made.counts, made._levels, made._version = dict(self.counts), dict(self._levels), self._version
        return made

    def add(self, nodes: Nodes, domain: str, step: int) -> None:
        """Count one more, or one less, in a domain."""
        before = self.counts.get(domain, 0)
        after = before + step
        if after:
            self.counts[domain] = after
        else:
            del self.counts[domain]
        if self._version == nodes.version:
            members = in_domain(nodes, self.over, domain)
            left = self._levels[before] ^ members
            if left:
                self._levels[before] = left
            else:
                del self._levels[before]
            self._levels[after] = self._levels.get(after, 0) | members

    def levels(self, nodes: Nodes) -> Mapping[int, NodeSet]:
        """Return the nodes of all domains, by how many are there."""
        if self._version != nodes.version:
            self._levels = {}
            for domain in domains_of(nodes, self.over):
                count = self.counts.get(domain, 0)
                self._levels[count] = self._levels.get(count, 0) | in_domain(nodes, self.over, domain)
            self._version = nodes.version
        return self._levels


class Tallies:
    """All tallies. Those that nobody has asked for lately are dropped."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._by_key: dict[TallyKey, DomainTally] = {}
        # Which of them may count what has a label: by one of its labels that they ask for, or without one.
        self._by_label: dict[tuple[str, str], list[TallyKey]] = {}
        self._unlabelled: list[TallyKey] = []

    def copy(self, nodes: Nodes) -> Tallies:
        made = Tallies(nodes)
        made._by_key = {key: tally.copy() for key, tally in self._by_key.items()}
        made._by_label = {label: list(keys) for label, keys in self._by_label.items()}
        made._unlabelled = list(self._unlabelled)
        return made

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def get(self, key: TallyKey, placed: Iterable[Workload]) -> DomainTally:
        """Return a tally; ``placed`` is looked through when it is asked for the first time."""
        tally = self._by_key.get(key)
        if tally is None:
            if len(self._by_key) >= _MOST:
                self._drop(next(iter(self._by_key)))
            tally = self._by_key[key] = DomainTally(key.over)
            for label in _labels(key):
                self._by_label.setdefault(label, []).append(key)
            if not _labels(key):
                self._unlabelled.append(key)
            tally.counts = self._recounted(key, placed)
        return tally

    def add(self, workload: Workload, number: int, step: int = 1) -> None:
        """Count a workload that was placed on a node, or with ``step`` -1 that leaves it."""
        for key in self._concerned(workload):
            if key.counts(workload):
                domain = domain_of(self._nodes, key.over, number)
                if domain is not None:
                    self._by_key[key].add(self._nodes, domain, step)

    def items(self) -> Iterable[tuple[TallyKey, DomainTally]]:
        return self._by_key.items()

    def recount(self, placed: Iterable[Workload]) -> None:
        """Raise AssertionError where what is kept is not what a recount gives, for ``validate()``."""
        everything = list(placed)
        for key, tally in self._by_key.items():
            assert tally.counts == self._recounted(key, everything), (key, tally.counts)
            kept = dict(tally.levels(self._nodes))
            tally._version = -1
            assert kept == dict(tally.levels(self._nodes)), (key, kept)

    def _recounted(self, key: TallyKey, placed: Iterable[Workload]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for workload in placed:
            if key.counts(workload):
                domain = domain_of(self._nodes, key.over, workload.node)
                if domain is not None:
                    counts[domain] = counts.get(domain, 0) + 1
        return counts

    def _concerned(self, workload: Workload) -> Iterator[TallyKey]:
        for label in workload.labels:
            yield from self._by_label.get(label, ())
        yield from self._unlabelled

    def _drop(self, key: TallyKey) -> None:
        del self._by_key[key]
        for label in _labels(key):
            self._by_label[label].remove(key)
            if not self._by_label[label]:
                del self._by_label[label]
        if not _labels(key):
            self._unlabelled.remove(key)


def _labels(key: TallyKey) -> list[tuple[str, str]]:
    """Return labels of which whatever is counted has exactly one; none where that is not known."""
    term = next((term for term in key.counted if term.positive and term.takes_values), None)
    return [(term.key, value) for value in term.values] if term is not None else []
