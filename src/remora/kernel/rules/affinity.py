"""Affinity and anti-affinity: the newcomer's rules over the labels of what is placed on a node.

Each expression is judged by itself over the union of those labels, within the newcomer's namespace. An expression over
``actor_id`` names handles: whoever holds a handle may refer to it, so namespaces play no part there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.node_sets import NodeSet, without
from remora.model.labels import ACTOR_ID
from remora.model.selectors import LabelMatchExpression

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class AffinityRule:
    name = "affinity"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        namespace = query.request.namespace
        for affinity in query.request.affinities:
            if affinity.any_of:
                passing = 0
                for term in affinity.hard:
                    passing |= _passing(cluster, affinity.owner, namespace, term)
                yield Screen(passing, True, self, (affinity.owner, affinity.hard))
                continue
            for term in affinity.hard:
                nodes = _concerned(cluster, affinity.owner, namespace, term)
                yield Screen(nodes, term.positive, self, (affinity.owner, (term,)))

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        for affinity in query.request.affinities:
            for term in affinity.soft:
                yield _passing(cluster, affinity.owner, query.request.namespace, term)

    def refusal(self, subject: Any, count: int) -> str:
        owner, terms = subject
        a = f"{'an' if owner[0] in 'aeiou' else 'a'} {owner}"
        if len(terms) > 1:
            return f"{verb(count, 'meets', 'meet')} none of {' or '.join(f'{a} with {term.show()}' for term in terms)}"
        term = terms[0]
        what = _what(term)
        if not term.positive:
            return f"{verb(count, 'already hosts', 'already host')} {what if term.key == ACTOR_ID else f'{a} with {what}'}"
        if term.key == ACTOR_ID:
            return f"{verb(count, 'does', 'do')} not host {what}"
        return f"{verb(count, 'hosts', 'host')} no {owner} with {what}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        owner, terms = subject
        toward = "affinity" if terms[0].positive else "anti-affinity"
        whom = " or ".join(_what(term) if term.key == ACTOR_ID else f"{owner}s with {_what(term)}" for term in terms)
        return (Change("drop_affinity", subject, f"drop the {toward} to {whom}"),)


def _what(term: LabelMatchExpression) -> str:
    """Return the labels that an expression names, whether it wants or refuses them."""
    if term.key == ACTOR_ID:
        return f"the actor {' or '.join(term.values)}"
    return f"{term.key} in ({', '.join(term.values)})" if term.takes_values else f"any {term.key}"


def _concerned(cluster: Cluster, owner: str, namespace: str, term: LabelMatchExpression) -> NodeSet:
    if term.key != ACTOR_ID:
        return cluster.presence.concerned((owner, namespace), term)
    nodes = 0
    for workload_id in term.values:
        workload = cluster.placed.get(workload_id)
        if workload is not None:
            nodes |= 1 << workload.node
    return nodes


def _passing(cluster: Cluster, owner: str, namespace: str, term: LabelMatchExpression) -> NodeSet:
    concerned = _concerned(cluster, owner, namespace, term)
    return concerned if term.positive else without(cluster.nodes.alive, concerned)
