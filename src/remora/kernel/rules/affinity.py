"""Affinity and anti-affinity: the newcomer's rules over the labels of what is placed on a node, or in its domain.

Each expression is judged by itself over the union of those labels, within the newcomer's namespace. An expression over
``actor_id`` names handles: whoever holds a handle may refer to it, so namespaces play no part there. An expression with a
topology asks about all nodes with the same value of that label: a node without the label is in no domain, so nothing is near
it. Inside a virtual cluster a domain is made of the cluster's own nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, outside, verb, where
from remora.kernel.state.domains import around, in_any_domain
from remora.kernel.state.node_sets import NodeSet, without
from remora.model.ids import short_id
from remora.model.labels import ACTOR_ID
from remora.model.requests import Request
from remora.model.selectors import LabelMatchExpression

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster

_UNLABELLED = "no domain"


class AffinityRule:
    name = "affinity"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        request = query.request
        for affinity in request.affinities:
            if affinity.any_of:
                passing = 0
                for term in affinity.hard:
                    passing |= _passing(cluster, affinity.owner, request, term)
                yield Screen(passing, True, self, (affinity.owner, affinity.hard))
                continue
            for term in affinity.hard:
                if term.topology and term.positive:
                    labelled = in_any_domain(cluster.nodes, term.topology)
                    yield Screen(labelled, True, self, (affinity.owner, (term,), _UNLABELLED))
                nodes = _concerned(cluster, affinity.owner, request, term)
                yield Screen(nodes, term.positive, self, (affinity.owner, (term,)), term.topology)

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        for affinity in query.request.affinities:
            for term in affinity.soft:
                yield _passing(cluster, affinity.owner, query.request, term)

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        owner, terms, *unlabelled = subject
        a = f"{'an' if owner[0] in 'aeiou' else 'a'} {owner}"
        if len(terms) > 1:
            return f"{verb(count, 'meets', 'meet')} none of {' or '.join(f'{a} with {term.show()}' for term in terms)}"
        term = terms[0]
        what = _what(term)
        if unlabelled:
            return outside(count, term.topology)
        if domains:
            count, host = len(domains), where(count, term.topology, domains)
        else:
            host = str(count)
        hosts, does = ("hosts", "does") if count == 1 else ("host", "do")
        if not term.positive:
            return f"{host} already {hosts} {what if term.key == ACTOR_ID else f'{a} with {what}'}"
        if term.key == ACTOR_ID:
            return f"{host} {does} not host {what}"
        return f"{host} {hosts} no {owner} with {what}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        owner, terms, *_ = subject
        toward = "affinity" if terms[0].positive else "anti-affinity"
        whom = " or ".join(
            f"{_what(term) if term.key == ACTOR_ID else f'{owner}s with {_what(term)}'}"
            + (f" within {term.topology}" if term.topology else "")
            for term in terms
        )
        return (Change("drop_affinity", (owner, terms), f"drop the {toward} to {whom}"),)


def nobody(cluster: Cluster, query: Query, *, with_labels: bool) -> str:
    """Return whom a query wants to be near to and is placed nowhere at all, those that are named by labels too or only those
    named by a handle; empty where there is none."""
    found = []
    for affinity in query.request.affinities:
        terms = [term for term in affinity.hard if term.positive]
        near = [_holders(cluster, affinity.owner, query.request.namespace, term) for term in terms]
        absent = terms if not affinity.any_of else terms if len(terms) == len(affinity.hard) and not any(near) else []
        for term, nodes in zip(terms, near, strict=True):
            if term in absent and not nodes and (with_labels or term.key == ACTOR_ID):
                found.append(_what(term) if term.key == ACTOR_ID else f"no {affinity.owner} with {_what(term)}")
    some = " and ".join(dict.fromkeys(found))
    where = "anywhere" if some.startswith("no ") else "nowhere"
    return f"{some} is placed {where}" if some else ""


def _what(term: LabelMatchExpression) -> str:
    """Return the labels that an expression names, whether it wants or refuses them."""
    if term.key == ACTOR_ID:
        return f"the actor {' or '.join(map(short_id, term.values))}"
    return f"{term.key} in ({', '.join(term.values)})" if term.takes_values else f"any {term.key}"


def _concerned(cluster: Cluster, owner: str, request: Request, term: LabelMatchExpression) -> NodeSet:
    """Return the nodes where, or in whose domain, there is what an expression names."""
    topology = term.topology
    if topology and request.cluster is None and term.key != ACTOR_ID:
        return cluster.presence_by_domain.concerned(topology, (owner, request.namespace), term)
    nodes = _holders(cluster, owner, request.namespace, term)
    if not topology or not nodes:
        return nodes
    if request.cluster is None:
        return around(cluster.nodes, topology, nodes)
    # Its domains are made of its own nodes; and a node that it comes to have is one of them then.
    own = nodes & cluster.tree.get(request.cluster).nodes()
    return around(cluster.nodes, topology, own) | nodes & in_any_domain(cluster.nodes, topology)


def _holders(cluster: Cluster, owner: str, namespace: str, term: LabelMatchExpression) -> NodeSet:
    if term.key != ACTOR_ID:
        return cluster.presence.concerned((owner, namespace), term)
    nodes = 0
    for workload_id in term.values:
        workload = cluster.placed.get(workload_id)
        if workload is not None:
            nodes |= 1 << workload.node
    return nodes


def _passing(cluster: Cluster, owner: str, request: Request, term: LabelMatchExpression) -> NodeSet:
    concerned = _concerned(cluster, owner, request, term)
    return concerned if term.positive else without(cluster.nodes.alive, concerned)
