"""Domains: all nodes with the same value of a label (a zone, a rack); a node without the label is in none.

``DomainIndex`` says in which domains something lies, as ``LabelIndex`` says on which nodes; it follows that index for exactly
the labels and topologies that somebody asked about. Which nodes make a domain is read from the index of node labels, so nothing
is to be done when a node joins or leaves: a kept node set is of one version of the nodes, and made again for the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from remora.kernel.state.label_index import LabelIndex, Scope
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Nodes
from remora.model.labels import Labels
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import NODE


def domain_of(nodes: Nodes, topology: str, number: int) -> str | None:
    """Return the domain that a node is in, None when it is in none."""
    return nodes.at(number).labels.get(topology)


def in_domain(nodes: Nodes, topology: str, domain: str) -> NodeSet:
    """Return the nodes of a domain."""
    return nodes.labels.with_value(NODE, topology, (domain,))


def in_any_domain(nodes: Nodes, topology: str) -> NodeSet:
    """Return the nodes that have the label at all."""
    return nodes.labels.with_key(NODE, topology)


def domains_of(nodes: Nodes, topology: str) -> Iterable[str]:
    """Return every domain of a topology."""
    return nodes.labels.values_of(NODE, topology)


def around(nodes: Nodes, topology: str, some: NodeSet) -> NodeSet:
    """Return all nodes of the domains in which one of these nodes is."""
    found = 0
    left = some & in_any_domain(nodes, topology)
    while left:
        number = (left & -left).bit_length() - 1
        domain = domain_of(nodes, topology, number)
        assert domain is not None, number
        members = in_domain(nodes, topology, domain)
        found |= members
        left ^= left & members
    return found


class _Hosts:
    """How often something lies in each domain, and the nodes of these domains as they were at one version."""

    __slots__ = ("counts", "nodes", "version")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.nodes: NodeSet = 0
        self.version = -1

    def copy(self) -> _Hosts:
        made = _Hosts()
        made.counts, made.nodes, made.version = dict(self.counts), self.nodes, self.version
        return made


class DomainIndex:
    """Label -> nodes of the domains that host it, derived from a ``LabelIndex`` of what is placed."""

    def __init__(self, base: LabelIndex, nodes: Nodes) -> None:
        self._base = base
        self._nodes = nodes
        # By label: by topology, by value; the value None stands for any.
        self._watched: dict[tuple[Scope, str], dict[str, dict[str | None, _Hosts]]] = {}

    def copy(self, base: LabelIndex, nodes: Nodes) -> DomainIndex:
        """Return the same index over copies of what it is derived from."""
        made = DomainIndex(base, nodes)
        made._watched = {
            place: {topology: {value: each.copy() for value, each in hosts.items()} for topology, hosts in watched.items()}
            for place, watched in self._watched.items()
        }
        return made

    def __bool__(self) -> bool:
        return bool(self._watched)

    def add(self, scope: Scope, labels: Labels, number: int) -> None:
        """Count labels that were just added to a node in the index that this one is derived from."""
        if not self._watched:
            return
        for key, value in labels:
            for topology, hosts in self._watched.get((scope, key), {}).items():
                domain = domain_of(self._nodes, topology, number)
                if domain is not None:
                    self._count(topology, hosts.setdefault(value, _Hosts()), domain, 1)
                    self._count(topology, hosts[None], domain, 1)

    def remove(self, scope: Scope, labels: Labels, number: int) -> None:
        if not self._watched:
            return
        for key, value in labels:
            for topology, hosts in self._watched.get((scope, key), {}).items():
                domain = domain_of(self._nodes, topology, number)
                if domain is not None:
                    self._uncount(topology, hosts[value], domain)
                    self._uncount(topology, hosts[None], domain)
                    if not hosts[value].counts:
                        del hosts[value]

    def with_value(self, topology: str, scope: Scope, key: str, values: Iterable[str]) -> NodeSet:
        """Return the nodes of the domains in which something has one of these values."""
        hosts = self._watch(topology, scope, key)
        nodes = 0
        for value in values:
            each = hosts.get(value)
            if each is not None:
                nodes |= self._nodes_of(topology, each)
        return nodes

    def concerned(self, topology: str, scope: Scope, term: LabelMatchExpression) -> NodeSet:
        """Return the nodes of the domains that have what the expression names."""
        if term.takes_values:
            return self.with_value(topology, scope, term.key, term.values)
        return self._nodes_of(topology, self._watch(topology, scope, term.key)[None])

    def recount(self) -> None:
        """Raise AssertionError where what is kept is not what a recount gives, for ``validate()``."""
        for (scope, key), watched in self._watched.items():
            for topology, hosts in watched.items():
                fresh = self._build(topology, scope, key)
                kept = {value: each.counts for value, each in hosts.items()}
                assert kept == {value: each.counts for value, each in fresh.items()}, (scope, key, topology)
                for value, each in hosts.items():
                    assert self._nodes_of(topology, each) == self._nodes_of(topology, fresh[value]), (scope, key, value)

    def _watch(self, topology: str, scope: Scope, key: str) -> dict[str | None, _Hosts]:
        watched = self._watched.get((scope, key))
        hosts = watched.get(topology) if watched is not None else None
        if hosts is None:
            hosts = self._build(topology, scope, key)
            self._watched.setdefault((scope, key), {})[topology] = hosts
        return hosts

    def _build(self, topology: str, scope: Scope, key: str) -> dict[str | None, _Hosts]:
        anywhere = _Hosts()
        hosts: dict[str | None, _Hosts] = {None: anywhere}
        for value in self._base.values_of(scope, key):
            each = _Hosts()
            for number, count in self._base.counts(scope, key, value).items():
                domain = domain_of(self._nodes, topology, number)
                if domain is not None:
                    each.counts[domain] = each.counts.get(domain, 0) + count
                    anywhere.counts[domain] = anywhere.counts.get(domain, 0) + count
            if each.counts:
                hosts[value] = each
        return hosts

    def _count(self, topology: str, hosts: _Hosts, domain: str, times: int) -> None:
        known = hosts.counts.get(domain, 0)
        hosts.counts[domain] = known + times
        if not known and hosts.version == self._nodes.version:
            hosts.nodes |= in_domain(self._nodes, topology, domain)

    def _uncount(self, topology: str, hosts: _Hosts, domain: str) -> None:
        if hosts.counts[domain] > 1:
            hosts.counts[domain] -= 1
            return
        del hosts.counts[domain]
        if hosts.version == self._nodes.version:
            hosts.nodes ^= in_domain(self._nodes, topology, domain)

    def _nodes_of(self, topology: str, hosts: _Hosts) -> NodeSet:
        if hosts.version != self._nodes.version:
            hosts.nodes = 0
            for domain in hosts.counts:
                hosts.nodes |= in_domain(self._nodes, topology, domain)
            hosts.version = self._nodes.version
        return hosts.nodes
