"""Why something waits: every node counted once, by the first rule that refuses it; and the smallest changes.

``0/5 nodes fit: 2 have the untolerated taint gpu_node=true, 2 already host an actor with type in (cat), 1 lacks 1 CPU``
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any

from remora.kernel.placing.amend import amend
from remora.kernel.placing.placement import decide, feasible
from remora.kernel.rules import ALL, Change, Query, Screen
from remora.kernel.rules.affinity import nobody
from remora.kernel.rules.capacity import FREE, TOTAL
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.domains import domains_of, in_any_domain, in_domain
from remora.kernel.state.node_sets import NodeSet, members, most_wanted, without
from remora.model.labels import Labels, show_labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources, show_amounts

_MOST_SUGGESTIONS = 3
_CLOSEST_LOOK = 64
_MOST_NAMED = 1_000

COMPANY = ("affinity", "symmetry", "spread")
"""The rules about what else is placed."""

AFFINITY = "affinity"
RESOURCES = "resources"
BOTH = "affinity and resources"
NODES = "nodes"
FITS = "fits"


@dataclass(frozen=True)
class Refusal:
    """So many nodes are refused for this reason."""

    rule: str
    text: str
    count: int
    node_ids: tuple[str, ...]
    """Which nodes; at most a thousand of them are named."""
    each: str = ""
    """The same about one of them: ``lacks 1 CPU``."""


@dataclass(frozen=True)
class Suggestion:
    """Changes that, made together, place it."""

    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        """Nodes that are alike are counted: ``add 2 nodes with 1 CPU``."""
        texts = Counter(change.text for change in self.changes)
        return " and ".join(
            text.replace("add a node", f"add {count} nodes", 1) if count > 1 and text.startswith("add a node") else text
            for text, count in texts.items()
        )

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Explanation:
    """Why something waits. ``case`` says which of affinity, resources or both holds it back, else ``nodes``; and ``fits``
    where nothing does any more."""

    reason: str
    refusals: tuple[Refusal, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    case: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "case": self.case,
            "refusals": [
                {"rule": item.rule, "text": item.text, "each": item.each, "count": item.count, "nodes": list(item.node_ids)}
                for item in self.refusals
            ],
            "suggestions": [
                {"text": item.text, "changes": [change.to_dict() for change in item.changes]} for item in self.suggestions
            ],
        }


def explain(cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "") -> Explanation:
    """Return why a request on the physical cluster waits now: by the choice that ``decide`` waits for; where none could ever be
    held, by all of them."""
    queries = [Query(request, choice, labels, workload_id) for choice in request.choices]
    waits_for = next((index for index, query in enumerate(queries) if feasible(cluster, query)), None)
    query = queries[waits_for or 0]
    screens = _screens(cluster, query)
    refusals = count_refusals(cluster, screens, cluster.nodes.alive)
    total = len(cluster.nodes.by_id)
    if fitting(total, refusals):
        return about_to_start(total, "nodes", refusals)
    what = f"nodes fit the fallback {_choice(query.choice)}" if waits_for else "nodes fit"
    hosts_none = sum(refusal.count for refusal in refusals if refusal.rule == "affinity")
    absent = nobody(cluster, query, with_labels=hosts_none < total) if total else ""  # of all nodes it is said already
    others = queries[1:] if waits_for is None else []
    parts = [sentence(total, what, refusals), absent, *_fallbacks(cluster, others)]
    return Explanation(
        reason="; ".join(filter(None, parts)),
        refusals=refusals,
        suggestions=_suggest(cluster, query, screens) if not others else _suggest_any(cluster, queries),
        case=case_of(screens, cluster.nodes.alive),
    )


def _screens(cluster: Cluster, query: Query) -> list[Screen]:
    return [screen for rule in ALL for screen in rule.screens(cluster, query)]


def _fallbacks(cluster: Cluster, queries: list[Query]) -> list[str]:
    """Return why each of the fallbacks is refused too."""
    found = []
    for query in queries[:_MOST_SUGGESTIONS]:
        refusals = count_refusals(cluster, _screens(cluster, query), cluster.nodes.alive)
        found.append(f"nor the fallback {_choice(query.choice)}: {', '.join(refusal.text for refusal in refusals)}")
    more = len(queries) - len(found)
    return [*found, *([f"nor {more} more fallbacks"] if more else [])]


def _choice(choice: NodeClass) -> str:
    """Return a choice as people wrote it."""
    return str(choice.selector) if choice.selector.terms else "any node"


def _suggest_any(cluster: Cluster, queries: list[Query]) -> tuple[Suggestion, ...]:
    """Return what would help any of these choices, none of which could ever be held: the new node that needs least first, then
    the shortest, each of the request's own changes tried out."""
    nodes = [change for query in queries if (change := _new_node(query)) is not None]
    least = min(nodes, key=lambda change: len(change.subject[1]), default=None)
    found = [Suggestion((least,))] if least is not None else []
    others = {
        suggestion
        for query in queries
        for suggestion in _suggest(cluster, query, _screens(cluster, query))
        if all(change.action != "add_node" for change in suggestion.changes) and _would_help(cluster, queries[0], suggestion)
    }
    found += sorted(others, key=lambda each: (len(each.changes), each.text))
    return tuple(found[:_MOST_SUGGESTIONS])


def _would_help(cluster: Cluster, query: Query, suggestion: Suggestion) -> bool:
    """Return whether the request would be placed; a maybe where somebody else would have to make room first."""
    if any(change.action == "free" for change in suggestion.changes):
        return True
    request, labels = amend(query.request, query.labels, suggestion.changes)
    return decide(cluster, request, labels, query.workload_id) is not None


def count_refusals(cluster: Cluster, screens: list[Screen], nodes: NodeSet) -> tuple[Refusal, ...]:
    """Count every node once, under the first screen that refuses it."""
    refusals = []
    left = nodes
    for screen in screens:
        passing = screen.passing(left)
        refused = without(left, passing)
        if refused:
            count = refused.bit_count()
            ids = tuple(cluster.nodes.at(number).node_id for number in islice(members(refused), _MOST_NAMED))
            domains = domains_with(cluster, screen, refused)
            each = screen.rule.refusal(screen.subject, 1, domains[:1]).removeprefix("1 ")
            text = screen.rule.refusal(screen.subject, count, domains)
            refusals.append(Refusal(screen.rule.name, text, count, ids, each))
        left = passing
    return tuple(refusals)


def domains_with(cluster: Cluster, screen: Screen, nodes: NodeSet) -> tuple[str, ...]:
    """Return the domains in which nodes are that a screen refuses; nothing where it is about each by itself."""
    topology = screen.topology
    if not topology:
        return ()
    return tuple(
        sorted(each for each in domains_of(cluster.nodes, topology) if in_domain(cluster.nodes, topology, each) & nodes)
    )


def sentence(total: int, what: str, refusals: tuple[Refusal, ...]) -> str:
    """Return ``0/5 nodes fit: ...``; ``what`` is the plural and the verb: ``nodes fit``."""
    if not total:
        return f"there are no {what.partition(' fit')[0]} yet"
    return f"{fitting(total, refusals)}/{total} {what}: {', '.join(refusal.text for refusal in refusals)}"


def fitting(total: int, refusals: tuple[Refusal, ...]) -> int:
    return total - sum(refusal.count for refusal in refusals)


def about_to_start(total: int, what: str, refusals: tuple[Refusal, ...]) -> Explanation:
    """Return the explanation of something that has found its place since it was seen waiting."""
    return Explanation(f"{fitting(total, refusals)}/{total} {what} fit: it is about to start", refusals, case=FITS)


def case_of(screens: list[Screen], nodes: NodeSet) -> str:
    """Return which case of Ray's affinity proposal it is; ``nodes`` when labels or taints leave no node at all."""
    left = nodes
    for screen in screens:
        if screen.rule.name not in (*COMPANY, "capacity"):
            left = screen.passing(left)
    if not left:
        return NODES
    near = enough = left
    for screen in screens:
        if screen.rule.name in COMPANY:
            near = screen.passing(near)
        elif screen.rule.name == "capacity":
            enough = screen.passing(enough)
    if near and not enough:
        return RESOURCES
    if enough and not near:
        return AFFINITY
    return BOTH


def _suggest(cluster: Cluster, query: Query, screens: list[Screen]) -> tuple[Suggestion, ...]:
    """Return what would have to change on the nodes that the fewest constraints refuse, by kind, the most common kind first."""
    found: list[Suggestion] = []
    helped: dict[Suggestion, int] = {}
    alive = cluster.nodes.alive
    new_node = _new_node(query)
    if not feasible(cluster, query) and new_node is not None:
        found.append(Suggestion((new_node,)))
    elsewhere = _new_node_in_domain(cluster, query, screens)
    if elsewhere is not None:
        found.append(Suggestion((elsewhere,)))
    nearest = most_wanted(alive, [screen.passing(alive) for screen in screens])
    while nearest and len(found) < _MOST_SUGGESTIONS:
        alike, failing = _alike(screens, nearest)
        nearest = without(nearest, alike)
        number = _cheapest(cluster, failing, alike)
        changes = tuple(change for screen in failing for change in screen.rule.remedy(cluster, query, screen.subject, number))
        suggestion = Suggestion(_without_repeats(changes))
        possible = all(screen.rule.remedy(cluster, query, screen.subject, number) for screen in failing)
        if changes and possible:
            helped[suggestion] = helped.get(suggestion, 0) + alike.bit_count()
            if suggestion not in found:
                found.append(suggestion)
    found.sort(key=lambda each: -helped.get(each, inf))
    if not found and new_node is not None:
        found.append(Suggestion((new_node,)))
    return tuple(found)


def _alike(screens: list[Screen], nodes: NodeSet) -> tuple[NodeSet, list[Screen]]:
    """Return the nodes that fail exactly what the first of them fails, and what that is."""
    alike = nodes
    failing = []
    probe = nodes & -nodes
    for screen in screens:
        passing = screen.passing(alike)
        if passing & probe:
            alike = passing
        else:
            alike = without(alike, passing)
            failing.append(screen)
    return alike, failing


def _cheapest(cluster: Cluster, failing: list[Screen], nodes: NodeSet) -> int:
    """Return, among nodes that fail alike, the one that lacks least."""
    short = [screen.subject for screen in failing if screen.rule.name == "capacity"]
    best, least = -1, 0
    for looked, number in enumerate(members(nodes)):
        if looked == _CLOSEST_LOOK and best >= 0:
            break
        missing = sum(units - cluster.available.get(number, name) for kind, name, units in short if kind in (TOTAL, FREE))
        if best < 0 or missing < least:
            best, least = number, missing
    return best


def _without_repeats(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Return the changes without repeats: two taints of one key are tolerated once."""
    return tuple({(change.action, str(change.subject)): change for change in changes}.values())


def _new_node(query: Query) -> Change | None:
    """Return the change that adds a node that would do; None when what is asked for cannot be found on an empty node."""
    request = query.request
    if request.follows or query.choice.node_id is not None or request.cluster is not None:
        return None
    labels = labels_for(query.choice)
    return None if labels is None else new_node(request.demand, labels)


def _new_node_in_domain(cluster: Cluster, query: Query, screens: list[Screen]) -> Change | None:
    """Return the change that adds a node in a domain that the rules about domains leave open, or in a further one; None where
    there is no such rule or a node alone does not help."""
    request = query.request
    topologies = [*dict.fromkeys(screen.topology for screen in screens if screen.topology)]
    if not topologies or query.choice.node_id is not None or request.cluster is not None:
        return None
    beside = any(term.positive and not term.topology for item in request.affinities for term in item.hard)
    labels = labels_for(query.choice)
    if beside or labels is None or any(item.any_of for item in request.affinities):
        return None
    open_ = cluster.nodes.alive
    for screen in screens:
        if screen.topology:
            open_ = screen.passing(open_)
    for topology in topologies:
        open_ &= in_any_domain(cluster.nodes, topology)
    if not open_ and any(term.positive for item in request.affinities for term in item.hard):
        return None  # nothing that it could join is anywhere
    there = cluster.nodes.at(next(members(open_))).labels if open_ else {}
    where = {topology: there.get(topology) for topology in topologies}
    others = {key: value for key, value in labels.items() if key not in where}
    in_ = " and ".join(f"{topology} {domain}" if domain else f"another {topology}" for topology, domain in where.items())
    named = {**others, **{topology: domain for topology, domain in where.items() if domain}}
    return new_node(request.demand, named, in_, others)


def new_node(resources: Resources, labels: dict[str, str], where: str = "", shown: dict[str, str] | None = None) -> Change:
    """Return the change that adds a node with these labels; ``where`` says in words what ``shown`` leaves out of them."""
    what = f"add a node in {where}" if where else "add a node"
    what += f" with {show_amounts(resources)}" if resources else ""
    also = labels if shown is None else shown
    if also:
        what += f" and the label{'s' if len(also) > 1 else ''} {show_labels(also)}"
    return Change("add_node", (resources, tuple(sorted(labels.items()))), what)


def labels_for(choice: NodeClass) -> dict[str, str] | None:
    """Return labels that a class admits; None when its terms contradict each other."""
    labels: dict[str, str] = {}
    wanted = [*choice.selector.terms, *(next((t for t in terms if not t.positive), terms[0]) for terms in choice.any_of)]
    for term in wanted:
        if not term.positive or term.key in labels:
            continue
        options = [*term.values, "true"] if not term.takes_values else list(term.values)
        fits = [value for value in options if all(t.matches({term.key: value}) for t in wanted if t.key == term.key)]
        if not fits:
            return None
        labels[term.key] = fits[0]
    whole = all(term.matches(labels) for term in wanted)
    return labels if whole else None
