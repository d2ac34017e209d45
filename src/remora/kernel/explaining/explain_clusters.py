"""Why something waits inside a virtual cluster, and why a virtual cluster is queued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from remora.kernel.explaining.explain import (
    AFFINITY,
    BOTH,
    COMPANY,
    FITS,
    NODES,
    RESOURCES,
    Explanation,
    Refusal,
    Suggestion,
    about_to_start,
    domains_with,
    explain,
    fitting,
    sentence,
)
from remora.kernel.explaining.never_fits import kept_out, taints_in_the_way
from remora.kernel.placing import inside
from remora.kernel.placing.amend import amend
from remora.kernel.placing.placement import decide, feasible
from remora.kernel.placing.reserving import could_reserve
from remora.kernel.placing.what_if import could_ever_reserve
from remora.kernel.rules import DYNAMIC, STATIC, Change, Query, Screen
from remora.kernel.rules.base import verb
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members
from remora.kernel.state.virtual_labels import admits, labels_of, openings
from remora.kernel.state.workloads import Host
from remora.model.labels import Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources, show_amount, show_amounts, show_pair
from remora.model.selectors import LabelSelector

_MOST_SUGGESTIONS = 3


def explain_request(cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "") -> Explanation:
    """Return why a request waits, inside a virtual cluster or not."""
    if request.cluster is None:
        return explain(cluster, request, labels, workload_id)
    vcluster = cluster.tree.get(request.cluster)
    if vcluster.state != READY:
        return Explanation(f"its virtual cluster {vcluster.cluster_id} is queued", case=RESOURCES)
    queries = [Query(request, choice, labels, workload_id) for choice in request.choices]
    query = next((query for query in queries if feasible(cluster, query)), queries[0])
    places = list(_places(cluster, vcluster, query))
    refusals = _count_refusals(cluster, query, places)
    what = "nodes open to" if any(place.coming for place in places) else "virtual nodes of"
    full = any(_full_of(vcluster, name, units) for name, units in request.demand.pairs)
    rules = {refusal.rule for refusal in refusals}
    near, short = bool(rules & {*COMPANY}), "share" in rules or not places
    if fitting(len(places), refusals) and not full:
        return about_to_start(len(places), f"{what} {vcluster.cluster_id}", refusals)
    return Explanation(
        reason=sentence(len(places), f"{what} {vcluster.cluster_id} fit", refusals),
        refusals=refusals,
        suggestions=_suggest_inside(cluster, vcluster, query, places),
        case=BOTH if near and short else AFFINITY if near else RESOURCES if short else NODES,
    )


def explain_cluster(cluster: Cluster, vcluster: VCluster, position: int, ahead: VCluster | None) -> Explanation:
    """Return why a virtual cluster is queued, or what a ready one has lost."""
    if vcluster.state == READY:
        lost = "" if vcluster.whole else f"{vcluster.cluster_id} lost virtual nodes and waits for room to make them again"
        return Explanation(lost, case=RESOURCES if lost else "")
    parent = vcluster.parent
    where = parent.cluster_id if parent is not None else "the cluster"
    place = f"position {position} in the queue"
    if parent is not None and parent.state != READY:
        return Explanation(f"{place}: its parent {where} is itself queued", case=RESOURCES)
    if not could_ever_reserve(cluster, vcluster):
        taints = taints_in_the_way(cluster, vcluster)
        if taints:
            why = kept_out(cluster, vcluster, taints)
            return replace(why, reason=f"{place}: {why.reason}")
        needed = show_amounts(vcluster.minimum())
        return Explanation(f"{place}: {where} can not hold {needed} as it is now, even when nothing else runs", case=RESOURCES)
    if ahead is not None:
        rank = "has a higher priority" if ahead.priority > vcluster.priority else "came first"
        return Explanation(f"{place}: behind {ahead.cluster_id}, which {rank} and needs the same resources", case=RESOURCES)
    allowed = inside.untainted(cluster, NodeClass(LabelSelector(), vcluster.tolerations))
    changes, parts = [], []
    for name, units in vcluster.minimum().pairs:
        free = _free(cluster, parent, name, allowed)
        if free < units:
            parts.append(f"{show_pair(name, units)} needed, {_show_free(name, free)} free")
            changes.append(Change("free", (where, name, units - free), f"free {show_pair(name, units - free)} in {where}"))
    if parts:
        return Explanation(f"{place}: in {where} {' and '.join(parts)}", (), (Suggestion(tuple(changes)),), RESOURCES)
    found = f"{place}: in {where} {show_amounts(vcluster.minimum())} free"
    if could_reserve(cluster, vcluster):
        return Explanation(f"{found}: it is about to be reserved", case=FITS)
    return Explanation(f"{found}, but {_layout(vcluster)}", case=RESOURCES)


def _layout(vcluster: VCluster) -> str:
    """Return why a minimum that is free in sum cannot be reserved."""
    if vcluster.inconclusive:
        return "no way to lay it out as asked was found"
    if vcluster.spec.fixed_size_nodes:
        return "not laid out as asked"
    return "in virtual nodes whose resources can not be joined: all that a share has on a node comes from one of them"


class _Place(NamedTuple):
    """A virtual node, or (``coming``) a node where the cluster could have one."""

    name: str
    host: Host
    labels: dict[str, str]
    coming: bool = False


def _places(cluster: Cluster, vcluster: VCluster, query: Query) -> Iterator[_Place]:
    demand = query.request.demand
    for vnode in vcluster.vnodes():
        host = Host(vcluster, vnode.node, vnode if vnode.fixed else None)
        yield _Place(vnode.vnode_id, host, labels_of(cluster, vnode))
    if _closed(vcluster, demand) or (not demand and any(vcluster.vnodes())):
        return
    for number in members(_within(cluster, vcluster.parent, demand)):
        if number not in vcluster.flex:
            ways = openings(cluster, vcluster, number)
            host, labels = next((way for way in ways if admits(query.choice, way[1])), ways[0])
            yield _Place(cluster.nodes.at(number).node_id, host, labels, True)


def _within(cluster: Cluster, vcluster: VCluster | None, demand: Resources) -> NodeSet:
    """Return where a cluster has virtual nodes or may come to have them, however full those nodes are."""
    if vcluster is None:
        return cluster.nodes.alive
    return vcluster.nodes() | (0 if _closed(vcluster, demand) else _within(cluster, vcluster.parent, demand))


def _closed(vcluster: VCluster, demand: Resources) -> bool:
    """Return whether the flexible part may never have that much."""
    return any((limit := vcluster.spec.limit(name)) is not None and limit < units for name, units in demand.pairs)


def _count_refusals(cluster: Cluster, query: Query, places: list[_Place]) -> tuple[Refusal, ...]:
    """Count every place under the first thing that refuses it: by labels, by the rules about nodes, by its share."""
    screens = [screen for rule in (*STATIC, *DYNAMIC) for screen in rule.screens(cluster, query) if rule.name != "labels"]
    counted: dict[str, tuple[str, Screen | None, list[_Place]]] = {}
    for place in places:
        rule, words, screen = _first_refusal(cluster, query, screens, place)
        counted.setdefault(f"{rule} {words}", (rule, screen, []))[2].append(place)
    refusals = []
    for key, (rule, screen, refused) in counted.items():
        words, count = key.removeprefix(f"{rule} "), len(refused)
        if screen is not None:
            domains = domains_with(cluster, screen, collect(place.host.node for place in refused))
            text = screen.rule.refusal(screen.subject, count, domains)
        else:
            text = verb(count, *words.split("|"))
        refusals.append(Refusal(rule, text, count, tuple(place.name for place in refused[:1_000])))
    return tuple(refusals)


def _first_refusal(cluster: Cluster, query: Query, screens: list[Screen], place: _Place) -> tuple[str, str, Screen | None]:
    """Return the rule that refuses a place, its words for one and for many nodes, and its screen where it has one."""
    for terms in [*((term,) for term in query.choice.selector.terms), *query.choice.any_of]:
        if not any(term.matches(place.labels) for term in terms):
            what = " or ".join(term.show() for term in terms)
            return "labels", f"does not match {what}|do not match {what}", None
    for screen in screens:
        if not screen.passing(1 << place.host.node):
            return screen.rule.name, repr(screen.subject), screen
    for name, units in query.request.demand.pairs:
        if shares.reach(cluster, place.host, name) < units:
            full = None if place.host.fixed else _full_of(place.host.cluster, name, units)
            if full:
                return "share", f"is closed as {full}|are closed as {full}", None
            return "share", f"lacks {show_pair(name, units)}|lack {show_pair(name, units)}", None
    what = f"{show_amounts(query.request.demand)} at once"
    return "share", f"lacks {what}|lack {what}", None


def _suggest_inside(cluster: Cluster, vcluster: VCluster, query: Query, places: list[_Place]) -> tuple[Suggestion, ...]:
    """Return changes to the request that would place it, one or two at a time, each tried out; if there are none, what would
    make room."""
    remedies = [
        remedy
        for rule in (*STATIC, *DYNAMIC)
        for screen in rule.screens(cluster, query)
        if (remedy := screen.rule.remedy(cluster, query, screen.subject, -1))
    ]
    for size in (1, 2):
        found: list[Suggestion] = []
        for some in combinations(remedies, size):
            suggestion = Suggestion(tuple(change for remedy in some for change in remedy))
            request, labels = amend(query.request, query.labels, suggestion.changes)
            if suggestion not in found and decide(cluster, request, labels, query.workload_id) is not None:
                found.append(suggestion)
        if found:
            return tuple(found[:_MOST_SUGGESTIONS])
    return _make_room(vcluster, query, places)


def _make_room(vcluster: VCluster, query: Query, places: list[_Place]) -> tuple[Suggestion, ...]:
    where = vcluster.cluster_id
    demand = query.request.demand
    raised = []
    for name, units in demand.pairs:
        limit = vcluster.spec.limit(name)
        largest = max((place.host.fixed.total.get(name, 0) for place in places if place.host.fixed), default=0)
        if limit is not None and limit < units and largest < units:
            text = f"raise the maximum of {where} to {show_pair(name, units)}"
            raised.append(Change("raise_max", (where, name, units), text))
    if raised:
        return (Suggestion(tuple(raised)),)
    missing = [(name, units - vcluster.flex_idle(name)) for name, units in demand.pairs if units > vcluster.flex_idle(name)]
    changes = tuple(Change("free", (where, *pair), f"free {show_pair(*pair)} in {where}") for pair in missing)
    return (Suggestion(changes),) if changes else ()


def _full_of(vcluster: VCluster | None, name: str, units: int) -> str:
    """Return the limit that is in the way: ``vc1 has 4 of at most 4 CPU``; empty where none is."""
    limit = vcluster.spec.limit(name) if vcluster is not None else None
    if vcluster is None or not limit or limit - vcluster.flex_used.get(name, 0) >= units:
        return ""
    has = show_amount(vcluster.flex_total.get(name, 0))
    return f"{vcluster.cluster_id} has {has} of at most {show_amount(limit)} {name}"


def _show_free(name: str, units: int) -> str:
    return show_pair(name, units).removesuffix(f" {name}")


def _free(cluster: Cluster, parent: VCluster | None, name: str, allowed: NodeSet) -> int:
    if parent is None:
        return sum(max(cluster.available.get(number, name), 0) for number in members(allowed))
    idle = sum(vnode.idle(name) for vnode in parent.vnodes() if allowed >> vnode.node & 1)
    room, above = parent.headroom(name), _free(cluster, parent.parent, name, allowed)
    return idle + (above if room is None else min(room, above))
