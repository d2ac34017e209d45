"""What runs in workers: the guard in front of a task or constructor, and what the user's function does.

The order of the guard's steps mirrors ``live.worker.guard`` and ``live.worker.admitting.resubmitted``; what it asks and how it
judges is ``remora.protocol``'s.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tests.world.owning import BLOCKED, IN_LINE, SENT_ON, STARTED, Run
from tests.world.processes import Thread, UserError, Worker
from tests.world.raylet import UNIT
from tests.world.submitting import submit_children, submit_once_more

from remora.protocol.admission_steps import Verdict, begin_resubmission, end_resubmission, judge, wait_for_admission
from remora.protocol.lending_steps import wait_and_lend
from remora.protocol.steps import FindOrphans, Now, Pause, ReadFence, WaitForObjects
from remora.wire.calls import Who
from remora.wire.fences import ROOT
from remora.wire.tokens import is_part, is_real, part_in, reserves_resources, share_of_token, works_in

if TYPE_CHECKING:
    from tests.world.gcs import ActorEntry

Body = Generator[Any, Any, None]

FOR_EVER = 1e9


def task(worker: Worker, run: Run, thread: Thread) -> Body:
    """The guard, then the function."""
    world = worker.world
    orphans = yield FindOrphans()
    fence = yield ReadFence()
    verdict = judge(run.class_id, run.cluster, fence, orphans)
    may_start = verdict is not Verdict.RESUBMIT
    if verdict is Verdict.QUEUE:
        run.state, run.in_line_since = IN_LINE, world.now
        who, in_group = _who(worker, run.cluster), _is_in_group(worker, run.cluster)
        may_start = yield from wait_for_admission(who, orphans, class_id=run.class_id, in_group=in_group)
    if not may_start:
        yield from _hand_on(worker, run, thread)
        return
    run.state = STARTED
    world.checks.started(run)
    yield Pause(run.spec.seconds / 2)
    if run.spec.children:
        submitted: list[Run] = yield from submit_children(worker, run, thread)
        if run.spec.gets and submitted:
            yield from _get(worker, run, thread, submitted)
            world.checks.resumed(run)
    yield Pause(run.spec.seconds / 2 if run.spec.after is None else run.spec.after)


def constructor(worker: Worker, entry: ActorEntry) -> Body:
    """In front of an actor: where its virtual cluster is full it waits; the fence of its class is not for it."""
    orphans = yield FindOrphans()
    fence = yield ReadFence()
    if judge(None, entry.cluster, fence, orphans) is Verdict.QUEUE:
        who, in_group = _who(worker, entry.cluster), _is_in_group(worker, entry.cluster)
        yield from wait_for_admission(who, orphans, class_id=None, in_group=in_group)
    worker.world.checks.actor_started(entry)
    yield Pause(entry.spec.constructor)


def _get(worker: Worker, run: Run, thread: Thread, submitted: list[Run]) -> Body:
    """``ray.get`` in a task: with a share of CPUs it is lent meanwhile."""
    thread.targets = submitted
    held = held_share(worker, cpus_only=True)
    now: float = yield Now()
    until = None if run.spec.timeout is None else now + run.spec.timeout
    run.state = BLOCKED
    try:
        if held is not None:
            who = Who(worker.worker_id, held[0], worker.node_id, held[1], part=part_in(name for name, _ in worker.held))
            yield from wait_and_lend(who, until)
        else:
            yield WaitForObjects(FOR_EVER if until is None else until - now)
    except UserError:
        pass  # the user does not mind
    run.state = STARTED


def _hand_on(worker: Worker, run: Run, thread: Thread) -> Body:
    """The same call runs somewhere else, and its result is ours."""
    who = _who(worker, run.cluster)
    tells = run.cluster is not None and bool(who.amounts)
    run.state = SENT_ON
    if tells:
        yield from begin_resubmission(who)
    thread.targets = [submit_once_more(worker, run)]
    try:
        yield WaitForObjects(FOR_EVER)
    except UserError as error:
        run.error = str(error)
    if tells:
        yield from end_resubmission(who)


def held_share(worker: Worker, *, cpus_only: bool) -> tuple[str, dict[str, float]] | None:
    """The virtual cluster whose share this process holds, and how much."""
    found: dict[str, float] = {}
    cluster_id = ""
    for name, units in worker.held:
        owner = share_of_token(name)
        if owner is not None and not is_part(owner[0]) and (owner[1] == "CPU" or not cpus_only):
            cluster_id = works_in(owner[0])
            found[owner[1]] = units / UNIT
    return (cluster_id, found) if found else None


def _who(worker: Worker, cluster: str | None) -> Who:
    if cluster is not None:
        held = held_share(worker, cpus_only=False)
        amounts = held[1] if held is not None else {}
    else:
        amounts = {name: units / UNIT for name, units in worker.held if is_real(name)}
    part = part_in(name for name, _ in worker.held)
    return Who(worker.worker_id, cluster or ROOT, worker.node_id, amounts, part=part)


def _is_in_group(worker: Worker, cluster: str | None) -> bool:
    return cluster is not None and any(reserves_resources(name) for name, _ in worker.held)
