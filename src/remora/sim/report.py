"""A run as plain data: ``to_dict`` for programs (complete), ``tables`` for people (long lists are cut short).

The keys of ``to_dict``; times are seconds of the virtual clock, null means "still so at the end":

    scenario, description, seed, ended      what was run, and the time at which it ended
    summary                                 nodes, submitted, placed, finished, running, waiting, refused, restarts, events,
                                            peak_waiting {count, at}, wait {mean, p95, max}
    work[]                                  name, kind, namespace, virtual_cluster, resources[], state, submitted, reason,
                                            stays[] {nodes, start, end, outcome},
                                            waits[] {start, end, reasons[] {since, reason}, suggestions[]}
    virtual_clusters[]                      name, id, parent, priority, state, submitted, ready, ended, reason, suggestions[],
                                            steps[] {at, state, reason, nodes[] {id, node, parent, total, available}}
    nodes[]                                 id, total, up[] {from, to}, use {resource: {mean, peak, steps[] [at, amount]}}
    events[]                                at, what, refusal
    waiting[]                               [at, how many wait from then on]
    machines[]                              type, cost (of an hour), started, most, hours, spent, up[] [at, how many are there],
                                            starting[] [at, how many are on their way], events[] {at, what, count, whom}

A wait that has not ended counts up to the end of the run. ``wait`` is over everything that was submitted and not refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remora.kernel.state.cluster_tree import DESTROYED
from remora.model.resources import from_units, show_amount
from remora.sim.autoscaling import ASKED
from remora.sim.history import (
    FINISHED,
    REFUSED,
    RUNNING,
    WAITING,
    ClusterHistory,
    ClusterStep,
    History,
    MachineEvent,
    Machines,
    NodeHistory,
    Run,
    Share,
    Steps,
    Wait,
)

MOST_ROWS = 24
_COUNTS = re.compile(r"\d+(?=/)|(?<=/)\d+|(?<=[:,] )\d+|(?<=position )\d+")
_MOST_NAMES = 3


@dataclass(frozen=True)
class Table:
    """Rows for people; ``more`` were left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def to_dict(run: Run) -> dict[str, Any]:
    return {
        "scenario": run.scenario,
        "description": run.description,
        "seed": run.seed,
        "ended": run.ended,
        "summary": summary(run),
        "work": [_work(work) for work in run.work],
        "virtual_clusters": [_cluster(cluster) for cluster in run.clusters],
        "nodes": [_node(node, run.ended) for node in run.nodes.values()],
        "events": [{"at": item.at, "what": item.what, "refusal": item.refusal} for item in run.happenings],
        "waiting": [[at, count] for at, count in run.waiting],
        "machines": [_machines(run, machines) for machines in run.machines.values()],
    }


def summary(run: Run) -> dict[str, Any]:
    accepted = [work for work in run.work if work.state != REFUSED]
    waits = sorted(work.waited(run.ended) for work in accepted)
    peak = max(run.waiting, key=lambda step: step[1], default=(0.0, 0))
    states = [work.state for work in run.work]
    return {
        "nodes": len(run.nodes),
        "submitted": len(run.work),
        "placed": sum(1 for work in run.work if work.stays),
        "finished": states.count(FINISHED),
        "running": states.count(RUNNING),
        "waiting": states.count(WAITING),
        "refused": states.count(REFUSED),
        "restarts": sum(_restarts(work) for work in run.work),
        "events": run.events,
        "peak_waiting": {"count": peak[1], "at": peak[0]},
        "wait": {
            "mean": round(sum(waits) / len(waits), 6) if waits else 0.0,
            "p95": waits[math.ceil(len(waits) * 0.95) - 1] if waits else 0.0,
            "max": waits[-1] if waits else 0.0,
        },
    }


def tables(run: Run, most: int = MOST_ROWS) -> list[Table]:
    """What a person wants to read, in this order; tables without rows are left out."""
    nodes, leaders = list(run.nodes.values()), ("Node", "Resource", "Total", "Mean use", "Peak use")
    use = [row for node in nodes[:most] for row in _use_rows(node, run.ended)]
    found = [
        _cut("What happened to the cluster", ("At", "What"), _event_rows(run), most),
        _cut("Machines", ("Type", "Started", "Most", "Hours", "Cost"), _machine_rows(run), most),
        _cut("Machines over time", ("At", "Type", "What", "How many", "Who"), _machine_event_rows(run), most),
        _cut("Virtual clusters", ("At", "Cluster", "State", "Virtual nodes: free of total"), _cluster_rows(run), most),
        _cut("Who ran where", ("Work", "On", "From", "To", ""), _stay_rows(run), most),
        _cut("What waited, and why", ("Work", "Waited", "Why"), _wait_rows(run), most),
        _cut("What was refused", ("Work", "At", "Why"), _refusal_rows(run), most),
        Table("Use of the nodes", leaders, tuple(use), len(nodes) - len(nodes[:most])),
    ]
    return [table for table in found if table.rows]


def headline(run: Run) -> list[str]:
    """The whole run in a few lines."""
    facts = summary(run)
    wait, peak = facts["wait"], facts["peak_waiting"]
    states = [f"{facts[key]:,} {word}" for key, word in _STATES if facts[key]]
    lines = [
        f"{_count(facts['nodes'], 'node')}, {facts['submitted']:,} submitted, {seconds(run.ended)}",
        f"{', '.join(states) or 'nothing was submitted'} at the end",
    ]
    if peak["count"]:
        lines.append(
            f"wait: mean {seconds(wait['mean'])}, p95 {seconds(wait['p95'])}, max {seconds(wait['max'])}; "
            f"at most {peak['count']:,} waited at once, at {seconds(peak['at'])}"
        )
    if run.machines:
        hours = sum(machines.seconds(run.ended) for machines in run.machines.values()) / 3600
        spent = [machines.spent(run.ended) for machines in run.machines.values()]
        costs = "" if None in spent else f", cost {sum(each or 0.0 for each in spent):,.2f}"
        started = sum(event.count for event in run.machine_events if event.what == ASKED)
        lines.append(f"{_count(started, 'machine')} started, {hours:,.2f} machine hours{costs}")
    return lines


def seconds(amount: float) -> str:
    return f"{amount:,.2f}".rstrip("0").rstrip(".") + " s"


_STATES = (("finished", "finished"), ("running", "running"), ("waiting", "waiting"), ("refused", "refused"))


def _cut(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], most: int) -> Table:
    listed = list(rows)
    return Table(title, columns, tuple(listed[:most]), max(len(listed) - most, 0))


def _event_rows(run: Run) -> Iterable[tuple[str, ...]]:
    for item in run.happenings:
        yield seconds(item.at), item.what + (f" (refused: {item.refusal})" if item.refusal else "")


def _machine_rows(run: Run) -> Iterable[tuple[str, ...]]:
    for machines in run.machines.values():
        facts = _machines(run, machines)
        spent = "" if facts["spent"] is None else f"{facts['spent']:,.2f}"
        yield machines.node_type, f"{facts['started']:,}", f"{facts['most']:,}", f"{facts['hours']:,.2f}", spent


def _machine_event_rows(run: Run) -> Iterable[tuple[str, ...]]:
    """Of one moment, machines of a type that came or went stand together."""
    alike: dict[tuple[float, str, str], list[MachineEvent]] = {}
    for event in run.machine_events:
        alike.setdefault((event.at, event.what, event.node_type), []).append(event)
    for (at, what, node_type), events in alike.items():
        yield seconds(at), node_type, what, f"{sum(event.count for event in events):,}", _listed(event.whom for event in events)


def _stay_rows(run: Run) -> Iterable[tuple[str, ...]]:
    stays = [(stay.start, index, work, stay) for index, work in enumerate(run.work) for stay in work.stays]
    for _, _, work, stay in sorted(stays, key=lambda item: item[:2]):
        name = work.name if work.cluster is None else f"{work.name} in {work.cluster}"
        end = "" if stay.end is None else seconds(stay.end)
        yield name, _listed(dict.fromkeys(stay.nodes)), seconds(stay.start), end, stay.outcome or "still there"


def _wait_rows(run: Run) -> Iterable[tuple[str, ...]]:
    """Those that waited alike stand together; those that still wait come first."""
    alike: dict[tuple[Any, ...], list[tuple[str, Wait]]] = {}
    for work in run.work:
        for wait in work.waits:
            # But for how many nodes they count: those change with every node that comes or goes.
            shapes = tuple(dict.fromkeys(_COUNTS.sub("#", reason) for _, reason in wait.reasons))
            alike.setdefault((wait.end is not None, shapes, work.resources), []).append((work.name, wait))
    begun = {key: min(wait.start for _, wait in waits) for key, waits in alike.items()}
    for key, waits in sorted(alike.items(), key=lambda item: (item[0][0], begun[item[0]])):
        over, first = key[0], begun[key]
        last = max(wait.end or 0.0 for _, wait in waits)
        when = f"{seconds(first)} to {seconds(last)}" if over else f"since {seconds(first)}, still waiting"
        sample = waits[-1][1]
        why = _few([reason for _, reason in sample.reasons])
        if not over:
            why += [f"try: {text}" for text in sample.suggestions]
        yield _listed(name for name, _ in waits), when, "\n".join(why) or "not looked at"


def _refusal_rows(run: Run) -> Iterable[tuple[str, ...]]:
    items: tuple[ClusterHistory | History, ...] = (*run.clusters, *run.work)
    for item in items:
        if item.refusal:
            yield item.name, seconds(item.submitted), item.refusal


def _cluster_rows(run: Run) -> Iterable[tuple[str, ...]]:
    steps = [(step.at, cluster, step) for cluster in run.clusters for step in cluster.steps]
    # Of one moment, what ends comes first: it is what makes room for the others.
    for at, cluster, step in sorted(steps, key=lambda item: (item[0], item[2].state != DESTROYED)):
        shares = step.reason or "\n".join(_show_share(share) for share in step.shares[:8])
        if len(step.shares) > 8 and not step.reason:
            shares += f"\n... and {len(step.shares) - 8} more"
        yield seconds(at), f"{cluster.name} ({cluster.cluster_id})", step.state, shares


def _use_rows(node: NodeHistory, ended: float) -> Iterable[tuple[str, ...]]:
    for name, units in node.total.pairs:
        steps = node.used.get(name, Steps())
        mean = steps.area(ended) / _uptime(node, ended)
        peak = max(steps.values, default=0)
        yield node.node_id, name, show_amount(units), _share(mean, units), _share(peak, units)


def _share(amount: float, total: int) -> str:
    """To two decimals, and as a share of the whole."""
    return f"{show_amount(round(amount / 100) * 100)} ({amount / total:.0%})"


def _show_share(share: Share) -> str:
    amounts = ", ".join(f"{share.available[name]:g} of {total:g} {name}" for name, total in share.total.items())
    return f"{share.vnode_id} on {share.parent}: {amounts}"


def _few(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:2], f"... {len(texts) - 3} more reasons, then", texts[-1]]


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MOST_NAMES
    return ", ".join(listed) if more <= 0 else f"{', '.join(listed[:_MOST_NAMES])} and {more:,} more"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _restarts(work: History) -> int:
    return sum(1 for stay in work.stays if stay.outcome in ("failed", "lost its node"))


def _uptime(node: NodeHistory, ended: float) -> float:
    return sum((ended if end is None else end) - start for start, end in node.up) or 1.0


def _work(work: History) -> dict[str, Any]:
    return {
        "name": work.name,
        "kind": work.kind,
        "namespace": work.namespace,
        "virtual_cluster": work.cluster,
        "resources": [resources.to_dict() for resources in work.resources],
        "state": work.state,
        "submitted": work.submitted,
        "reason": work.reason if work.state in (WAITING, REFUSED) else "",
        "stays": [
            {"nodes": list(stay.nodes), "start": stay.start, "end": stay.end, "outcome": stay.outcome} for stay in work.stays
        ],
        "waits": [
            {
                "start": wait.start,
                "end": wait.end,
                "reasons": [{"since": since, "reason": reason} for since, reason in wait.reasons],
                "suggestions": list(wait.suggestions),
            }
            for wait in work.waits
        ],
    }


def _cluster(cluster: ClusterHistory) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "id": cluster.cluster_id,
        "parent": cluster.parent,
        "priority": cluster.priority,
        "state": cluster.state,
        "submitted": cluster.submitted,
        "ready": cluster.ready,
        "ended": cluster.ended,
        "reason": cluster.refusal or (cluster.steps[-1].reason if cluster.steps else ""),
        "suggestions": list(cluster.suggestions),
        "steps": [_step(step) for step in cluster.steps],
    }


def _step(step: ClusterStep) -> dict[str, Any]:
    return {
        "at": step.at,
        "state": step.state,
        "reason": step.reason,
        "nodes": [
            {
                "id": share.vnode_id,
                "node": share.node,
                "parent": share.parent,
                "total": share.total,
                "available": share.available,
            }
            for share in step.shares
        ],
    }


def _machines(run: Run, machines: Machines) -> dict[str, Any]:
    events = [event for event in run.machine_events if event.node_type == machines.node_type]
    spent = machines.spent(run.ended)
    return {
        "type": machines.node_type,
        "cost": machines.cost,
        "started": sum(event.count for event in events if event.what == ASKED),
        "most": max(machines.up.values, default=0),
        "hours": round(machines.seconds(run.ended) / 3600, 6),
        "spent": None if spent is None else round(spent, 6),
        "up": [[at, count] for at, count in machines.up],
        "starting": [[at, count] for at, count in machines.starting],
        "events": [{"at": event.at, "what": event.what, "count": event.count, "whom": event.whom} for event in events],
    }


def _node(node: NodeHistory, ended: float) -> dict[str, Any]:
    uptime = _uptime(node, ended)
    return {
        "id": node.node_id,
        "total": node.total.to_dict(),
        "up": [{"from": start, "to": end} for start, end in node.up],
        "use": {
            name: {
                "mean": round(from_units(1) * steps.area(ended) / uptime, 6),
                "peak": from_units(max(steps.values, default=0)),
                "steps": [[at, from_units(units)] for at, units in steps],
            }
            for name, steps in sorted(node.used.items())
        },
    }
