"""Why a placement group waits: the bundles that fit nowhere by themselves, else that they do not fit together."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from remora.kernel.explaining.explain import FITS, RESOURCES, Explanation, Suggestion, labels_for, new_node
from remora.kernel.explaining.explain_clusters import explain_request
from remora.kernel.placing.gang import gang_of_bundles
from remora.kernel.placing.group_fit import attempt, space_of, would_fit
from remora.kernel.placing.placement import decide, feasible
from remora.kernel.rules import Change, Query
from remora.kernel.rules.base import verb
from remora.kernel.rules.tolerance import tolerate
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import READY
from remora.kernel.state.node_table import TAINT
from remora.kernel.state.workloads import Group, Host
from remora.model.groups import Bundle
from remora.model.ids import short_id
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY, Resources, show_amounts
from remora.model.strategies import TASK
from remora.model.taints import Tolerations
from remora.model.topology import show_levels

_MOST_NAMED = 3
_MOST_TRIED = 64
_HOW = {"STRICT_SPREAD": "on different nodes", "STRICT_PACK": "on one node"}


def explain_group(cluster: Cluster, group: Group) -> Explanation:
    request = group.request
    if request.cluster is not None and cluster.tree.get(request.cluster).state != READY:
        return Explanation(f"its virtual cluster {request.cluster} is queued", case=RESOURCES)
    option = group.option if group.hosts else _option(cluster, group)
    bundles = request.options[option]
    missing = [bundle for index, bundle in enumerate(bundles) if not group.hosts or group.hosts[index] is None]
    alone = [single for bundle in missing if decide(cluster, single := _single(group, bundle)) is None]
    if alone:
        first = explain_request(cluster, alone[0])
        what = f"{verb(len(alone), 'bundle fits', 'bundles fit')} nowhere (of {len(bundles)})"
        return Explanation(f"{what}: {first.reason}", first.refusals, _suggest(cluster, group, bundles, missing), first.case)
    gang = attempt(cluster, space_of(cluster, group), group, option, list(group.hosts) or [None] * len(bundles))
    hosts = gang.place()
    if hosts is not None:
        return Explanation(f"it fits on {_name_nodes(cluster, hosts)}: Ray is about to reserve it", case=FITS)
    total = sum((bundle.resources for bundle in missing), EMPTY)
    how = " and ".join(filter(None, (show_levels(request.levels(option)), _HOW.get(request.strategy, "")))) or "together"
    but = f"no way to have all {how} was found" if gang.gave_up else f"not all {how}"
    return Explanation(
        f"each of the {len(missing)} bundles fits somewhere, but {but}: they need {show_amounts(total)}",
        suggestions=_suggest(cluster, group, bundles, missing),
        case=RESOURCES,
    )


def _name_nodes(cluster: Cluster, hosts: list[Host]) -> str:
    names = list(dict.fromkeys(short_id(cluster.nodes.at(host.node).node_id) for host in hosts))
    more = len(names) - _MOST_NAMED
    return " and ".join([", ".join(names[:_MOST_NAMED]), f"{more} more"] if more > 0 else [", ".join(names)])


def _option(cluster: Cluster, group: Group) -> int:
    """Return the option that is waited for: the first whose bundles could each be held, by size, labels and taints."""
    for option, bundles in enumerate(group.request.options):
        singles = [_single(group, bundle) for bundle in bundles]
        if all(feasible(cluster, Query(single, single.choices[0])) for single in singles):
            return option
    return 0


def _single(group: Group, bundle: Bundle) -> Request:
    return Request(TASK, bundle.resources, bundle.resources, (bundle.nodes,), cluster=group.request.cluster)


def _suggest(cluster: Cluster, group: Group, bundles: tuple[Bundle, ...], missing: list[Bundle]) -> tuple[Suggestion, ...]:
    """Return which taint to tolerate or term to drop, for all bundles alike, where that places the group; and new nodes."""
    found = [
        Suggestion((change,))
        for change in _relaxations(cluster, bundles)
        if would_fit(cluster, group, tuple(replace(bundle, nodes=_relaxed(bundle.nodes, change)) for bundle in bundles))
    ]
    topology = group.request.levels(group.option if group.hosts else 0)
    if group.request.cluster is None and not topology:
        added = _new_nodes(_too_many(cluster, group, bundles, missing), group)
    else:
        added = ()
    if added:
        found.append(Suggestion(added))
    return tuple(found[:3])


def _relaxations(cluster: Cluster, bundles: tuple[Bundle, ...]) -> list[Change]:
    taints: dict[str, dict[str, None]] = {}
    for key, value, _ in cluster.nodes.taints.values(TAINT):
        taints.setdefault(key, {})[value] = None
    terms = dict.fromkeys(term for bundle in bundles for term in bundle.nodes.selector.terms)
    return [
        *(Change("tolerate", key, tolerate(_tolerations(bundles, key), key, values)) for key, values in taints.items()),
        *(Change("drop_selector", term, f"drop {term.show()}") for term in terms),
    ]


def _tolerations(bundles: tuple[Bundle, ...], key: str) -> Tolerations:
    """Return those of the first bundle that says anything about a taint."""
    known = (bundle.nodes.tolerations for bundle in bundles if any(t.key == key for t in bundle.nodes.tolerations.terms))
    return next(known, bundles[0].nodes.tolerations)


def _relaxed(nodes: NodeClass, change: Change) -> NodeClass:
    if change.action == "tolerate":
        return replace(nodes, tolerations=nodes.tolerations.also(change.subject))
    return replace(nodes, selector=nodes.selector.without(change.subject))


def _too_many(cluster: Cluster, group: Group, bundles: tuple[Bundle, ...], missing: list[Bundle]) -> list[Bundle]:
    """Return the fewest bundles without which the rest would fit now; all that are missing where that is not found soon."""
    if group.request.strategy == "STRICT_PACK":
        return missing
    tried = 0
    for count in range(1, len(missing)):
        for some in dict.fromkeys(combinations(sorted(missing, key=repr), count)):
            tried += 1
            if tried > _MOST_TRIED:
                return missing
            if _rest_fits(cluster, group, bundles, some):
                return list(some)
    return missing


def _rest_fits(cluster: Cluster, group: Group, bundles: tuple[Bundle, ...], without: tuple[Bundle, ...]) -> bool:
    left = list(without)
    rest, taken = [], []
    for index, bundle in enumerate(bundles):
        host = group.hosts[index] if group.hosts else None
        if host is None and bundle in left:
            left.remove(bundle)
            continue
        rest.append(bundle)
        taken.append(host)
    gang = gang_of_bundles(cluster, space_of(cluster, group), tuple(rest), group.request.strategy, taken)
    return gang.place() is not None


def _new_nodes(missing: list[Bundle], group: Group) -> tuple[Change, ...]:
    """Return a new node for each of these bundles, or for STRICT_PACK one that takes them all."""
    if group.request.strategy == "STRICT_PACK":
        if group.hosts:
            return ()
        selector = missing[0].nodes.selector
        for bundle in missing[1:]:
            selector = selector.also(bundle.nodes.selector.terms)
        total: Resources = sum((bundle.resources for bundle in missing), EMPTY)
        missing = [Bundle(total, replace(missing[0].nodes, selector=selector))]
    made = [
        new_node(bundle.resources, labels) if (labels := labels_for(bundle.nodes)) is not None else None for bundle in missing
    ]
    return tuple(change for change in made if change is not None) if None not in made else ()
