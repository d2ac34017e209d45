"""Why something waits inside a virtual cluster, why a placement group waits, and why a virtual cluster is queued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from remora.kernel import confined, shares
from remora.kernel.amend import amend
from remora.kernel.cluster import Cluster
from remora.kernel.explain import AFFINITY, BOTH, NODES, RESOURCES, Explanation, Refusal, Suggestion, explain, sentence
from remora.kernel.nodesets import members
from remora.kernel.placement import decide, feasible
from remora.kernel.rules import DYNAMIC, STATIC, Change, Query, Screen
from remora.kernel.rules.base import verb
from remora.kernel.tree import READY, VCluster
from remora.kernel.whatif import could_ever_reserve
from remora.kernel.workloads import Group, Host
from remora.model.labels import Labels
from remora.model.requests import Request
from remora.model.resources import EMPTY, Resources, show_amount, show_amounts
from remora.model.strategies import TASK

_MOST_SUGGESTIONS = 3


def explain_request(cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "") -> Explanation:
    """Why a request waits, inside a virtual cluster or not."""
    if request.cluster is None:
        return explain(cluster, request, labels, workload_id)
    vcluster = cluster.tree.get(request.cluster)
    if vcluster.state != READY:
        return Explanation(f"its virtual cluster {vcluster.cluster_id} is queued", case=RESOURCES)
    queries = [Query(request, choice, labels, workload_id) for choice in request.choices]
    query = next((query for query in queries if feasible(cluster, query)), queries[0])
    refusals = _refusals_inside(cluster, vcluster, query)
    total = sum(refusal.count for refusal in refusals)
    full = _full(vcluster, request.demand)
    rules = {refusal.rule for refusal in refusals}
    near, short = bool(rules & {"affinity", "symmetry"}), "share" in rules or not total
    return Explanation(
        reason=sentence(total, f"virtual nodes of {vcluster.cluster_id}", refusals) + (f"; it has {full}" if full else ""),
        refusals=refusals,
        suggestions=_suggest_inside(cluster, vcluster, query),
        case=BOTH if near and short else AFFINITY if near else RESOURCES if short else NODES,
    )


def explain_group(cluster: Cluster, group: Group) -> Explanation:
    """Why a placement group waits: the bundles that fit nowhere by themselves, else that they do not fit together."""
    request = group.request
    if request.cluster is not None and cluster.tree.get(request.cluster).state != READY:
        return Explanation(f"its virtual cluster {request.cluster} is queued", case=RESOURCES)
    bundles = request.options[0]
    alone = []
    for bundle in bundles:
        single = Request(TASK, bundle.resources, bundle.resources, (bundle.nodes,), cluster=request.cluster)
        if decide(cluster, single) is None:
            alone.append(single)
    if alone:
        first = explain_request(cluster, alone[0])
        what = f"{verb(len(alone), 'bundle fits', 'bundles fit')} nowhere"
        return Explanation(f"{what} (of {len(bundles)}): {first.reason}", first.refusals, first.suggestions, first.case)
    total = sum((bundle.resources for bundle in bundles), EMPTY)
    how = {"STRICT_SPREAD": "on different nodes", "STRICT_PACK": "on one node"}.get(request.strategy, "together")
    return Explanation(
        f"each of the {len(bundles)} bundles fits somewhere, but not all {how}: they need {show_amounts(total)}", case=RESOURCES
    )


def explain_cluster(cluster: Cluster, vcluster: VCluster, position: int, ahead: VCluster | None) -> Explanation:
    """Why a virtual cluster is queued, or what a ready one has lost."""
    if vcluster.state == READY:
        return Explanation(
            "" if vcluster.whole else f"{vcluster.cluster_id} lost virtual nodes and waits for room to make them again"
        )
    parent = vcluster.parent
    where = parent.cluster_id if parent is not None else "the cluster"
    place = f"position {position} in the queue"
    if parent is not None and parent.state != READY:
        return Explanation(f"{place}: its parent {where} is itself queued", case=RESOURCES)
    if not could_ever_reserve(cluster, vcluster):
        needed = show_amounts(vcluster.minimum())
        return Explanation(f"{place}: {where} can not hold {needed} as it is now, even when nothing else runs", case=RESOURCES)
    if ahead is not None:
        rank = "has a higher priority" if ahead.priority > vcluster.priority else "came first"
        return Explanation(f"{place}: behind {ahead.cluster_id}, which {rank} and needs the same resources", case=RESOURCES)
    changes, parts = [], []
    for name, units in vcluster.minimum().pairs:
        free = _free(cluster, parent, name)
        if free < units:
            missing = show_amount(units - free)
            parts.append(f"{show_amount(units)} {name} are needed and {show_amount(free)} free")
            changes.append(Change("free", (where, name, units - free), f"free {missing} {name} in {where}"))
    text = " and ".join(parts) or f"{show_amounts(vcluster.minimum())} are free, but not laid out as asked"
    return Explanation(f"{place}: in {where} {text}", (), (Suggestion(tuple(changes)),) if changes else (), RESOURCES)


class _Place(NamedTuple):
    """A virtual node, or a node where the cluster could have one."""

    name: str
    host: Host
    labels: dict[str, str]


def _refusals_inside(cluster: Cluster, vcluster: VCluster, query: Query) -> tuple[Refusal, ...]:
    """Every place under the first thing that refuses it: by labels, by the rules about nodes, by its share."""
    screens = [
        screen
        for rule in (*STATIC, *DYNAMIC)
        for screen in rule.screens(cluster, query)
        # Labels of one term are asked of the virtual node instead, which has more of them than its node.
        if screen.rule.name != "labels" or len(screen.subject) > 1
    ]
    counted: dict[str, tuple[str, Screen | None, list[str]]] = {}
    for place in _places(cluster, vcluster, query.request.demand):
        rule, words, screen = _first_refusal(cluster, query, screens, place)
        counted.setdefault(f"{rule} {words}", (rule, screen, []))[2].append(place.name)
    refusals = []
    for key, (rule, screen, names) in counted.items():
        words = key.removeprefix(f"{rule} ")
        text = screen.rule.refusal(screen.subject, len(names)) if screen else verb(len(names), *words.split("|"))
        refusals.append(Refusal(rule, text, len(names), tuple(names[:1_000])))
    return tuple(refusals)


def _first_refusal(cluster: Cluster, query: Query, screens: list[Screen], place: _Place) -> tuple[str, str, Screen | None]:
    """The rule, its words for one and for many nodes, and its screen where it has one."""
    for term in query.choice.selector.terms:
        if not term.matches(place.labels):
            return "labels", f"does not match {term.show()}|do not match {term.show()}", None
    for screen in screens:
        if not screen.passing(1 << place.host.node):
            return screen.rule.name, repr(screen.subject), screen
    for name, units in query.request.demand.pairs:
        if shares.reach(cluster, place.host, name) < units:
            return "share", f"lacks {show_amount(units)} {name}|lack {show_amount(units)} {name}", None
    what = f"{show_amounts(query.request.demand)} together"
    return "share", f"lacks {what}|lack {what}", None


def _places(cluster: Cluster, vcluster: VCluster, demand: Resources) -> Iterator[_Place]:
    for vnode in vcluster.vnodes():
        host = Host(vcluster, vnode.node, vnode if vnode.fixed else None)
        yield _Place(vnode.vnode_id, host, dict(confined.labels_of(cluster, vnode)))
    if not demand or any(vcluster.spec.limit(name) == 0 for name in demand):
        return
    within = cluster.nodes.alive if vcluster.parent is None else vcluster.parent.nodes()
    for number in members(within):
        if number not in vcluster.flex:
            node = cluster.nodes.at(number)
            yield _Place(node.node_id, Host(vcluster, number, None), dict(node.labels))


def _suggest_inside(cluster: Cluster, vcluster: VCluster, query: Query) -> tuple[Suggestion, ...]:
    """Single changes to the request, each tried out: only what places it is named. Else what has to be freed."""
    found: list[Suggestion] = []
    for rule in (*STATIC, *DYNAMIC):
        for screen in rule.screens(cluster, query):
            suggestion = Suggestion(screen.rule.remedy(cluster, query, screen.subject, -1))
            request, labels = amend(query.request, query.labels, suggestion.changes)
            if suggestion not in found and decide(cluster, request, labels, query.workload_id) is not None:
                found.append(suggestion)
    where = vcluster.cluster_id
    missing = Resources(
        {
            name: units - vcluster.flex_idle(name)
            for name, units in query.request.demand.pairs
            if units > vcluster.flex_idle(name)
        }
    )
    if not found and missing:
        found.append(
            Suggestion(
                tuple(Change("free", (where, *pair), f"free {show_amounts(dict([pair]))} in {where}") for pair in missing.pairs)
            )
        )
    return tuple(found[:_MOST_SUGGESTIONS])


def _full(vcluster: VCluster, demand: Resources) -> str:
    """The limits that are in the way: ``4 of at most 4 CPU``."""
    return " and ".join(
        f"{show_amount(vcluster.flex_total.get(name, 0))} of at most {show_amount(limit)} {name}"
        for name, units in demand.pairs
        if (limit := vcluster.spec.limit(name)) and limit - vcluster.flex_used.get(name, 0) < units
    )


def _free(cluster: Cluster, parent: VCluster | None, name: str) -> int:
    if parent is None:
        return sum(max(cluster.available.get(number, name), 0) for number in members(cluster.nodes.alive))
    idle = sum(vnode.idle(name) for vnode in parent.vnodes())
    room, above = parent.headroom(name), _free(cluster, parent.parent, name)
    return idle + (above if room is None else min(room, above))
