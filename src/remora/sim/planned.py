"""What would be started for a scenario or a virtual cluster that is not submitted yet: all of it at once, and nothing ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remora.errors import InvalidInputError
from remora.kernel.provisioning.plans import CLUSTER, Answer, Party, Plan
from remora.model.node_types import NodeTypes
from remora.model.virtual_clusters import VirtualCluster
from remora.sim.entries import Entry
from remora.sim.report import Table
from remora.sim.scenario import Scenario
from remora.sim.scenario_run import play_at_once

_MOST_NAMED = 3


@dataclass(frozen=True)
class Planned:
    """A plan, with what things are called, and what was refused: name and why."""

    plan: Plan
    types: NodeTypes
    names: dict[Party, str]
    refused: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.plan.to_dict(),
            "refused": [{"name": name, "reason": reason} for name, reason in self.refused],
            "problems": list(self.types.problems),
        }


def plan_scenario(
    scenario: Scenario, spec: VirtualCluster | None = None, work: Iterable[tuple[Mapping[str, Any], int]] = ()
) -> Planned:
    """What the node types of a scenario would have to start for everything in it, and for a virtual cluster and tasks (their
    options, and how many of them) beside it."""
    if scenario.types is None:
        raise InvalidInputError(
            f"{scenario.name} names no node types, so nothing could be started: add node_types to it, or give a file of them; "
            "for example --node-types types.yaml"
        )
    at_once = replace(
        scenario,
        until=0.0,
        arrivals=tuple(_now(entry) for entry in scenario.arrivals),
        placement_groups=tuple(_now(entry) for entry in scenario.placement_groups),
        virtual_clusters=tuple(_now(entry) for entry in scenario.virtual_clusters),
        events=(),
    )
    sim, run = play_at_once(at_once)
    if spec is not None:
        sim.create_virtual_cluster(spec)
    for options, count in work:
        for _ in range(count):
            sim.submit("task", **options)
    called = {cluster.cluster_id: cluster.name for cluster in run.clusters if cluster.cluster_id}
    found = sim.plan()
    names = {
        answer.party: called.get(answer.party.name, answer.party.name) if answer.party.kind == CLUSTER else answer.party.name
        for answer in found.answers
    }
    refused = [(cluster.name, cluster.refusal) for cluster in run.clusters if cluster.refusal]
    refused += [(work.name, work.refusal) for work in run.work if work.refusal]
    return Planned(found, scenario.types, names, tuple(refused))


def planned_tables(planned: Planned) -> list[Table]:
    """The plan for people: what to start and for whom, then what gets nothing and why; tables without rows are left out."""
    plan = planned.plan
    costs = {each.name: each.cost for each in planned.types}
    starts = [
        (
            start.node_type,
            f"{start.count:,}",
            _whom(planned, start.parties, start.count),
            _cost(costs[start.node_type], start.count),
        )
        for start in plan.starts
    ]
    lacking = [
        (_called(planned, answer), f"{answer.count - answer.served:,}", _why(answer))
        for answer in plan.answers
        if answer.served < answer.count
    ]
    lacking += [(name, "1", reason) for name, reason in planned.refused]
    notes = [(_called(planned, answer), answer.note) for answer in plan.answers if answer.note]
    found = [
        Table("Machines to start", ("Type", "How many", "For", "Cost"), tuple(starts)),
        Table("What gets no machine", ("What", "How many", "Why"), tuple(lacking)),
        Table("Notes", ("What", "Note"), tuple(notes)),
        Table("Types that cannot be read", ("Why",), tuple((problem,) for problem in planned.types.problems)),
    ]
    return [table for table in found if table.rows]


def planned_headline(planned: Planned) -> str:
    """The plan in one line."""
    add = planned.plan.add
    count = sum(add.values())
    if not count:
        return "nothing to start"
    listed = ", ".join(f"{number:,} {name}" for name, number in add.items())
    spent = [each.cost for each in planned.types if each.name in add]
    cost = sum((each.cost or 0.0) * add.get(each.name, 0) for each in planned.types)
    return f"{count:,} {'machine' if count == 1 else 'machines'} to start: {listed}" + (
        "" if None in spent else f"; cost {cost:,.2f} an hour"
    )


def _now(entry: Entry[Any]) -> Entry[Any]:
    return replace(entry, at=0.0, every=0.0, lasts=None)


def _whom(planned: Planned, parties: tuple[tuple[Party, int], ...], times: int) -> str:
    names = []
    for party, count in parties[:_MOST_NAMED]:
        more = f" ({count * times:,})" if count * times > 1 and party.kind != CLUSTER else ""
        names.append(f"{planned.names.get(party, party.name)}{more}")
    left = len(parties) - _MOST_NAMED
    return ", ".join(names) + (f" and {left} others" if left > 0 else "")


def _called(planned: Planned, answer: Answer) -> str:
    return planned.names.get(answer.party, answer.party.name)


def _why(answer: Answer) -> str:
    return "\n".join([answer.reason, *(f"try: {text}" for text in answer.suggestions)])


def _cost(cost: float | None, count: int) -> str:
    return "" if cost is None else f"{cost * count:,.2f}"
