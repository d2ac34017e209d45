"""A request with suggested changes applied to it: what ``explain`` promises, and tests hold it to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from remora.kernel.rules import Change
from remora.model.labels import Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.selectors import LabelMatchExpression

_ChoiceChange = Callable[..., NodeClass]


def amend(request: Request, labels: Labels, changes: tuple[Change, ...]) -> tuple[Request, Labels]:
    """Return the request and labels of the newcomer after those changes that concern the newcomer itself."""
    for change in changes:
        if change.action == "tolerate":
            request = _with_choices(request, lambda c, key=change.subject: replace(c, tolerations=c.tolerations.also(key)))
        elif change.action == "drop_selector":
            request = _with_choices(request, lambda c, term=change.subject: replace(c, selector=c.selector.without(term)))
        elif change.action == "drop_node_any":
            request = _with_choices(
                request, lambda c, terms=change.subject: replace(c, any_of=tuple(other for other in c.any_of if other != terms))
            )
        elif change.action == "drop_pin":
            request = _with_choices(request, lambda c: replace(c, node_id=None))
        elif change.action == "drop_affinity":
            request = _without_affinity(request, *change.subject)
        elif change.action == "drop_spread":
            request = replace(request, spreads=tuple(each for each in request.spreads if each != change.subject))
        elif change.action == "reduce":
            name, units = change.subject
            request = replace(
                request,
                demand=Resources({**request.demand, name: units}),
                resources=Resources({**request.resources, name: min(units, request.resources.get(name, 0))}),
            )
        elif change.action == "drop_label":
            labels = tuple(label for label in labels if label != change.subject)
    return request, labels


def _with_choices(request: Request, change: _ChoiceChange) -> Request:
    return replace(request, choices=tuple(change(choice) for choice in request.choices))


def _without_affinity(request: Request, owner: str, terms: tuple[LabelMatchExpression, ...]) -> Request:
    affinities = []
    for affinity in request.affinities:
        if affinity.owner == owner:
            left = tuple(term for term in affinity.expressions if term not in terms)
            affinity = replace(affinity, expressions=left)
        if affinity.expressions:
            affinities.append(affinity)
    return replace(request, affinities=tuple(affinities))
