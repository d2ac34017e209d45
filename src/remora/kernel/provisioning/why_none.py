"""Why no machine is started for something: no type could hold it, or those that could are at a limit or cannot be had."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remora.kernel.explaining.explain import count_refusals
from remora.kernel.packing.bins import NO_LIMIT
from remora.kernel.placing.enlarging import Part, wanted_of
from remora.kernel.placing.stock import Stock
from remora.kernel.provisioning.plans import show_machines
from remora.kernel.rules import CAPACITY, STATIC, Query, Screen
from remora.kernel.rules.capacity import TOTAL
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.node_sets import NodeSet, members, without
from remora.kernel.state.type_table import Openings, TypeTable
from remora.model.node_types import NodeTypes
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY, Resources
from remora.model.strategies import TASK

NO_NODE_HELPS = "no new node would help"


def why_no_type(table: TypeTable, choice: NodeClass, demand: Resources) -> str:
    """Return why a machine of no type would hold it."""
    if choice.node_id is not None:
        return f"it is pinned to the node {choice.node_id}: {NO_NODE_HELPS}"
    if not table.on_offer:
        return "no type of node may be started"
    unknown = [name for name in demand if not any(name in each.resources for each in table.types)]
    if unknown:
        return f"no type has the resource {' or '.join(unknown)}"
    query = Query(Request(TASK, EMPTY, demand, (choice,)), choice)
    screens: list[Screen] = [screen for rule in STATIC for screen in rule.screens(table.templates, query)]
    screens += [screen for screen in CAPACITY.screens(table.templates, query) if screen.subject[0] == TOTAL]
    refusals = count_refusals(table.templates, screens, table.on_offer)
    for screen in screens:
        if screen.rule.name == "labels" and not screen.passing(table.on_offer):
            return f"no type has the label {' or '.join(term.show() for term in screen.subject)}"
    parts = [f"{_listed(refusal.node_ids)} {_each(refusal.each, len(refusal.node_ids))}" for refusal in refusals]
    return f"no type can hold it: {', '.join(parts)}"


def why_none_left(openings: Openings, types: NodeSet) -> tuple[str, tuple[str, ...]]:
    """Return why none of these types that could hold it is started, and what to raise."""
    table = openings.table
    named = [table.at(number) for number in members(types)]
    resting = [each for each in named if each.name in table.resting]
    open_ = [each for each in named if each.name not in table.resting]
    parts = [f"type {each.name} cannot be had now ({table.resting[each.name]}): it is tried again later" for each in resting]
    suggestions: list[str] = []
    for each in open_:
        if openings.of(each) == 0:
            parts.append(f"type {each.name} is at its maximum of {each.most}")
            suggestions.append(f"raise the maximum of type {each.name} above {each.most}")
    if openings.all == 0 and any(openings.of(each) != 0 for each in open_):
        most = openings.table.types.most
        parts.append(f"the cluster is at its maximum of {most} {'node' if most == 1 else 'nodes'}")
        suggestions.append(f"raise the maximum of the cluster above {most}")
    return " and ".join(parts), tuple(suggestions)


def why_not_whole(
    cluster: Cluster, openings: Openings, parts: list[Part], what: str, spare: NodeSet
) -> tuple[str, tuple[str, ...]]:
    """Return why a whole that lies in no virtual cluster gets no machines: what it lacks, and what it would have needed.
    ``spare`` are machines of the copy that are started only if somebody needs them, so they are told with the others."""
    table, openings = openings.table, openings.copy()
    for number in members(spare):
        openings.take(cluster.nodes.at(number).node_type, -1)
    for part in parts:
        demand = part.need
        for choice in part.classes:
            (want,) = wanted_of(cluster, table, [Part(demand, (choice,))], table.on_offer)
            fitting = want.types & table.templates.totals.at_least(demand)
            if not fitting and not want.nodes & cluster.totals.at_least(demand):
                return why_no_type(table, choice, demand), ()
    unlimited = Openings(_without_limits(table), openings.counts)
    wanted = [replace(want, nodes=without(want.nodes, spare)) for want in wanted_of(cluster, table, parts, table.on_offer)]
    stock = Stock(cluster, unlimited, wanted)
    packing = stock.pack()
    needed = packing.added(stock.bins)
    types = 0
    for want in wanted:
        types |= want.types & table.templates.totals.at_least(want.need)
    limit, suggestions = why_none_left(_used_up(openings, needed), types & _bits(table, needed) or types)
    if sum(packing.left) or not needed:
        return (
            f"{what} finds no room, however many nodes are added: {limit or 'no type can hold it'}: none is started",
            suggestions,
        )
    return f"{what} needs {show_machines(needed)}, more than may be started ({limit}): none is started", suggestions


def _used_up(openings: Openings, needed: dict[str, int]) -> Openings:
    """Return what is left when as many of what is needed are started as may be."""
    left = openings.copy()
    for name, count in needed.items():
        each = left.table.types.get(name)
        assert each is not None, name
        room = min(count, *(limit for limit in (left.of(each), left.all) if limit is not None), NO_LIMIT)
        left.take(name, room)
    return left


def _without_limits(table: TypeTable) -> TypeTable:
    types = NodeTypes(tuple(replace(each, most=None) if each.most else each for each in table.types))
    return TypeTable(types, table.resting)


def _bits(table: TypeTable, names: Iterable[str]) -> NodeSet:
    bits = 0
    for name in names:
        bits |= 1 << table.templates.nodes.get(name).number
    return bits


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def _each(words: str, count: int) -> str:
    """Return the words about one node for several: ``has the taint`` and ``have the taint``."""
    if count == 1:
        return words
    first, _, rest = words.partition(" ")
    many = {"has": "have", "is": "are", "does": "do", "lacks": "lack"}.get(first, first)
    return f"{many} {rest}"
