"""A request that the kernel places by itself, as it travels: everything that decides, and the labels of the work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from remora.model.labels import Labels
from remora.model.requests import Request, plain_spread, plain_term, spread_from
from remora.model.resources import Resources
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import Affinity
from remora.wire.classes import choice_from
from remora.wire.tokens import CLUSTER_LABEL

LEASE_LABEL = "remora.io/lease"
REQUEST_LABEL = "remora.io/request"
"""Labels of an actor in GCS that only we read: its slot and what was asked for, all that a restarted controller needs."""

_OWN = (LEASE_LABEL, REQUEST_LABEL, CLUSTER_LABEL)


class Ask(NamedTuple):
    request: Request
    labels: Labels = ()


def encode_ask(ask: Ask) -> str:
    request = ask.request
    body = {
        "kind": request.kind,
        "resources": dict(request.resources),
        "demand": dict(request.demand),
        "choices": [choice.canonical() for choice in request.choices],
        "wishes": [plain_term(term) for term in request.wishes],
        "wished_node": request.wished_node,
        "affinities": [
            [item.owner, [plain_term(term) for term in item.expressions], item.any_of, item.symmetric, item.on_failover]
            for item in request.affinities
        ],
        "policy": request.policy,
        "namespace": request.namespace,
        "cluster": request.cluster,
        "labels": ask.labels,
    }
    if request.spreads:
        body["spreads"] = [plain_spread(each) for each in request.spreads]
    return json.dumps(body, separators=(",", ":"))


@lru_cache(maxsize=1_000)
def decode_ask(text: str) -> Ask:
    """The same text comes again and again: actors of one kind, and each of them again when the controller restarts."""
    body: Mapping[str, Any] = json.loads(text)
    request = Request(
        kind=body["kind"],
        resources=Resources(body["resources"]),
        demand=Resources(body["demand"]),
        choices=tuple(choice_from(*parts) for parts in body["choices"]),
        wishes=tuple(LabelMatchExpression(*part) for part in body["wishes"]),
        wished_node=body["wished_node"],
        affinities=tuple(
            Affinity(owner, tuple(LabelMatchExpression(*part) for part in terms), *rest)
            for owner, terms, *rest in body["affinities"]
        ),
        policy=body["policy"],
        namespace=body["namespace"],
        cluster=body["cluster"],
        spreads=tuple(spread_from(*parts) for parts in body.get("spreads", ())),
    )
    return Ask(request, tuple((key, value) for key, value in body["labels"]))


def own_labels(labels: Mapping[str, str]) -> Labels:
    """The labels that the user gave."""
    return tuple(sorted((key, value) for key, value in labels.items() if key not in _OWN))
