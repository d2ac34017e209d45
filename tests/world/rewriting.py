"""What becomes of options at ``.remote()``: which tokens work takes to be placed and while it lives.

Everything that is decided is ``remora.wire``'s. Mirrored here is only what ``remora.live`` does with it:
``Submitter.ticketed`` (what has a lease), ``Submitter.tokens`` and ``entering.shares`` (class and share),
``CoreWorkerWithTokens._tokenize`` and ``_create`` (an actor's resources for life and those to be placed),
``Submitter.with_share`` and ``leased``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from remora.model.strategies import ACTOR, TASK
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.asks import LEASE_LABEL, REQUEST_LABEL, encode_ask
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, Rewritten, rewrite
from remora.wire.taken_shares import resources_selected, selects, taken_part, taken_shares
from remora.wire.tokens import ACTORS, CLUSTER_LABEL, TAKEN, TASKS, class_token, lease_token

Amounts = dict[str, float]
_DEFAULTS = Defaults()
_known: dict[str, Rewritten] = {}


@dataclass(frozen=True)
class Submission:
    """What Ray is given. ``spec`` is the class that it takes a token of, None for a lease; ``placement`` is empty where it is
    the same as ``resources``."""

    resources: Amounts
    placement: Amounts
    labels: dict[str, str]
    spec: ClassSpec | None
    hint: Amounts | None = None


def rewritten(options: dict[str, Any], resources: Amounts) -> Rewritten:
    key = repr(options) + repr(sorted(resources.items()))
    if key not in _known:
        _known[key] = rewrite(options, _DEFAULTS, resources)
    return _known[key]


def has_lease(asked: Rewritten, *, is_actor: bool, options: dict[str, Any]) -> bool:
    return bool(asked.placement.is_leased or (asked.labels and (is_actor or "labels" in options)))


def lease_text(asked: Rewritten, *, is_actor: bool, resources: Amounts, placement: Amounts, cluster: str | None) -> str:
    """The request as it travels."""
    ask = asked.ask(ACTOR if is_actor else TASK, resources, placement or resources, "tests", [])
    return encode_ask(ask._replace(request=replace(ask.request, cluster=cluster)))


def with_lease(
    asked: Rewritten, slot: str, text: str, resources: Amounts, placement: Amounts, cluster: str | None, *, is_actor: bool
) -> Submission:
    held = _with_share(resources, cluster)
    if not is_actor:
        return Submission({**held, lease_token(slot): TAKEN}, {}, {}, None)
    needs = {**(_with_share(placement, cluster) or held), lease_token(slot): TAKEN}
    labels = {**dict(asked.labels), LEASE_LABEL: slot, REQUEST_LABEL: text}
    return Submission(held, needs, labels | _of_cluster(cluster), None)


def with_class(
    asked: Rewritten,
    resources: Amounts,
    placement: Amounts,
    cluster: str | None,
    spec: VirtualCluster | None,
    *,
    is_actor: bool,
) -> Submission:
    """``spec`` is that of the virtual cluster."""
    kind = replace(asked.spec, takers=ACTORS if is_actor else TASKS, cluster=cluster)
    held = {**resources, **_tokens(kind, resources, cluster, spec)}
    needs = {**placement, **_tokens(kind, placement, cluster, spec)} if placement else {}
    labels = {**dict(asked.labels), **_of_cluster(cluster)} if is_actor else {}
    return Submission(held, needs, labels, kind, resources if cluster is not None else None)


def once_more(resources: Amounts, class_id: str, cluster: str | None) -> Submission:
    """As the guard submits what it hands on: with the same class, by its id alone."""
    return Submission({**_with_share(resources, cluster), class_token(class_id): TAKEN}, {}, {}, None)


def _tokens(kind: ClassSpec, resources: Amounts, cluster: str | None, spec: VirtualCluster | None) -> Amounts:
    taken = {class_token(kind.class_id): TAKEN}
    if cluster is None:
        return taken
    taken.update(taken_shares(cluster, resources))
    if spec is not None and selects(kind):
        taken.update(taken_part(kind, resources_selected(spec, kind), resources))
    return taken


def _with_share(resources: Amounts, cluster: str | None) -> Amounts:
    return resources if cluster is None else {**resources, **taken_shares(cluster, resources)}


def _of_cluster(cluster: str | None) -> dict[str, str]:
    return {} if cluster is None else {CLUSTER_LABEL: cluster}
