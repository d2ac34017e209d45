"""Label selectors over the nodes' own labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remora.kernel.rules.base import Change, Query, Screen, verb
from remora.kernel.state.node_sets import NodeSet, without
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import NODE

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster


class NodeLabelRule:
    name = "labels"

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        index = cluster.nodes.labels
        for term in query.choice.selector.terms:
            yield Screen(index.concerned(NODE, term), term.positive, self, (term,))
        for terms in query.choice.any_of:
            passing = 0
            for term in terms:
                passing |= _passing(cluster, term)
            yield Screen(passing, True, self, terms)

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        for term in query.request.wishes:
            yield _passing(cluster, term)

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        return f"{verb(count, 'does', 'do')} not match {' or '.join(term.show() for term in subject)}"

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        text = f"drop {' or '.join(term.show() for term in subject)}"
        return (Change("drop_selector", subject[0], text) if len(subject) == 1 else Change("drop_node_any", subject, text),)


def _passing(cluster: Cluster, term: LabelMatchExpression) -> NodeSet:
    concerned = cluster.nodes.labels.concerned(NODE, term)
    return concerned if term.positive else without(cluster.nodes.alive, concerned)
