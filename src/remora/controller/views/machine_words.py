"""What is done about machines, in words: for whom they were asked for, or why none was; and all of them in plain values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from remora.controller.controller import Controller
from remora.kernel.explaining.explain import Explanation
from remora.kernel.provisioning.plans import show_machines


def with_machines(controller: Controller, why: Explanation, key: Hashable) -> Explanation:
    """Return an explanation with what the newest plan does for what waits under this key."""
    words = words_for(controller, key)
    return replace(why, reason="; ".join(each for each in (why.reason, words) if each)) if words else why


def suggestions_for(controller: Controller, key: Hashable) -> list[str]:
    """Return what would let machines be started for it."""
    answer = controller.scaling.answer(key)
    return list(answer.suggestions) if answer is not None else []


def words_for(controller: Controller, key: Hashable) -> str:
    """Return ``1 node of type gpu was asked for 12 s ago``, or why none was; empty where there is nothing to say."""
    answer = controller.scaling.answer(key) if controller.scaling.is_on else None
    if answer is None:
        return ""
    said = []
    counts = dict(answer.awaits)
    for name, count in answer.starts.items():
        counts[name] = counts.get(name, 0) + count
    for name, count in counts.items():
        at = controller.scaling.machines.asked_at(name)
        when = f"asked for {max(round(controller.now() - at), 0)} s ago" if at is not None else "about to be asked for"
        said.append(f"{show_machines({name: count})} {'was' if count == 1 else 'were'} {when}")
    if counts and controller.scaling.machines.obstacle:
        said.append(controller.scaling.machines.obstacle)
    if answer.reason:
        left = answer.count - answer.served
        said.append(f"for {left:,} of {answer.count:,} no node is started: {answer.reason}" if answer.served else answer.reason)
    return "; ".join([*said, *([answer.note] if answer.note else [])])


def machines(controller: Controller) -> dict[str, Any] | None:
    """Return every type with how many there are, are asked for and may be; the machines that are kept, and why; and the newest
    plan. None where there is no autoscaler."""
    scaling = controller.scaling
    if not scaling.is_on:
        return None
    owner, table = scaling.machines, scaling.machines.table
    rows = []
    for each in table.types if table is not None else ():
        asked_at = owner.asked_at(each.name)
        rows.append(
            {
                **each.to_dict(),
                "have": owner.count(each.name),
                "asked": owner.wanted.get(each.name, 0),
                "asked_seconds": round(controller.now() - asked_at, 1) if asked_at is not None else None,
                "coming": owner.coming.get(each.name, 0),
                "for": scaling.whom(each.name),
                "resting": owner.resting.get(each.name, ""),
            }
        )
    kept = [{"node_id": node_id, "kind": each.kind, "why": each.why} for node_id, each in scaling.keeper.kept.items()]
    problems = [each for each in (owner.problem, owner.obstacle) if each]
    problems += owner.types.problems if owner.types is not None else ()
    most = table.types.most if table is not None else None
    others = owner.survey.others if owner.survey is not None else 0
    return {
        "source": owner.types.source if owner.types is not None else "",
        "types": rows,
        "max_workers": most,
        "kept": kept,
        "problems": problems,
        "requests_of_others": others,
        "plan": scaling.newest.to_dict(),
    }
