"""Submitting, as the client layer does it: tokens by class, or a slot by ``create_with_lease``; and ``with VirtualCluster``."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.world import rewriting
from tests.world.failure import Failure
from tests.world.gcs import ActorEntry
from tests.world.owning import Run
from tests.world.raylet import to_units
from tests.world.script import Actor, CreatesGroup, Options, Task

from remora.errors import InvalidVirtualClusterError, RemoraError, VirtualClusterTimeoutError
from remora.model.strategies import ACTOR, TASK
from remora.model.virtual_clusters import VirtualCluster
from remora.protocol.cluster_steps import close_cluster, open_cluster
from remora.protocol.group_steps import remove_group
from remora.protocol.lease_steps import create_with_lease
from remora.protocol.steps import Ask
from remora.wire.calls import CreateCluster, Hint, MakeGroup, WantShares
from remora.wire.group_plans import GroupPlan
from remora.wire.group_requests import encode_group
from remora.wire.rewrite import Defaults, rewrite_group

if TYPE_CHECKING:
    from tests.world.processes import Process, Thread, Worker
    from tests.world.world import World

Steps = Generator[Any, Any, Any]


@dataclass(eq=False)
class Scope:
    """A virtual cluster that somebody has entered."""

    name: str
    cluster_id: str
    spec: VirtualCluster
    parent: Scope | None
    job_id: str
    closed: bool = False
    used: bool = False
    ask: str = ""
    past: list[VirtualCluster] = field(default_factory=list)

    def allows(self, spec: VirtualCluster) -> None:
        """It is given another maximum: what it was allowed before may run for as long as it does."""
        self.past += [self.spec, spec]

    def most(self, name: str) -> float | None:
        """The most that may be in use of a resource, by any maximum that it ever had."""
        caps = [replace(self, spec=spec, past=[]).cap(name) for spec in (self.spec, *self.past)]
        known = [cap for cap in caps if cap is not None]
        return max(known) if len(known) == len(caps) else None

    def chain(self) -> list[Scope]:
        return [self, *(self.parent.chain() if self.parent is not None else ())]

    def cap(self, name: str) -> float | None:
        """The most that it and all below it may use of a resource; None when there is no limit."""
        limit = self.spec.limit(name)
        if limit is None:
            return None
        fixed = sum(node.resources.get(name, 0) for nodes in self.spec.fixed_size_nodes for node in nodes.nodes)
        return (fixed + limit) / 10_000


def real_of(options: Options, *, is_actor: bool) -> tuple[dict[str, float], dict[str, float]]:
    """What work holds, and where that differs what it needs to be placed: Ray's defaults."""
    gpus = {"GPU": options.gpus} if options.gpus else {}
    if options.cpus is None:
        return ({**gpus}, {"CPU": 1.0, **gpus}) if is_actor else ({"CPU": 1.0, **gpus}, {})
    return ({"CPU": options.cpus} if options.cpus else {}) | gpus, {}


def submit_task(process: Process, scope: Scope | None, spec: Task, thread: Thread) -> Steps:
    """Return the task, or None where the controller refused it."""
    world = process.world
    cluster = _enter(scope)
    held, _ = real_of(spec.options, is_actor=False)
    if spec.group:
        return _in_group(process, scope, spec, held)
    options = spec.options.written(world.actor_id)
    asked = rewriting.rewritten(options, held)
    if not rewriting.has_lease(asked, is_actor=False, options=options):
        made = rewriting.with_class(asked, held, {}, cluster, scope.spec if scope else None, is_actor=False)
        run = _run(process, scope, spec, held, made)
        yield from _mention(process, made)
        process.owning.submit(run)
        return run
    text = rewriting.lease_text(asked, is_actor=False, resources=held, placement={}, cluster=cluster)
    world.checks.asks(TASK, dict(asked.labels), spec.name)
    found: list[Run] = []

    def create(slot: str, node_id: str | None) -> None:
        made = rewriting.with_lease(asked, slot, text, held, {}, cluster, is_actor=False)
        run = _run(process, scope, spec, held, made, slot=slot, wish=node_id)
        run.rules = asked
        found.append(run)
        thread.targets = [run]
        world.checks.uses_slot(slot, lambda: not run.is_over and process.alive)
        process.owning.submit(run)

    process.submitter.creating[thread] = create
    try:
        yield from create_with_lease(world.new_ask(spec.name), text, process.job_id, process.worker_id)
    except RemoraError as error:
        _refused(world, spec.name, scope, error)
    return found[0] if found else None


def create_actor(process: Process, scope: Scope | None, spec: Actor, thread: Thread) -> Steps:
    """Return the actor, or None where the controller refused it."""
    world = process.world
    cluster = _enter(scope)
    held, needs = real_of(spec.options, is_actor=True)
    options = spec.options.written(world.actor_id)
    asked = rewriting.rewritten(options, needs or held)
    actor_id = world.new_actor_id(spec.name)
    found: list[ActorEntry] = []

    def create(made: rewriting.Submission, wish: str | None, *, spread: bool = False) -> None:
        entry = ActorEntry(
            actor_id,
            spec,
            process.job_id,
            process,
            to_units(made.resources),
            to_units(made.placement),
            made.labels,
            cluster=cluster,
            wish=wish,
            spread=spread,
        )
        entry.scope, entry.real, entry.rules, entry.node_class = scope, held, asked, made.spec
        entry.asked_at = began
        found.append(entry)
        world.register_actor(entry)

    began = world.now
    if spec.group:
        if spec.group not in world.group_ids:
            return None
        create(rewriting.Submission(world.in_group(spec.group, held or {"CPU": 0.0}), {}, {}, None), None)
        return found[0]
    if not rewriting.has_lease(asked, is_actor=True, options=options):
        made = rewriting.with_class(asked, held, needs, cluster, scope.spec if scope else None, is_actor=True)
        yield from _mention(process, made)
        create(made, None, spread=not held)
        return found[0]
    text = rewriting.lease_text(asked, is_actor=True, resources=held, placement=needs, cluster=cluster)
    world.checks.asks(ACTOR, dict(asked.labels), actor_id)

    def create_leased(slot: str, node_id: str | None) -> str:
        made = rewriting.with_lease(asked, slot, text, held, needs, cluster, is_actor=True)
        create(made, node_id)
        entry = found[0]
        world.checks.uses_slot(slot, lambda: entry.state != "DEAD")
        return entry.actor_id

    process.submitter.creating[thread] = create_leased
    try:
        yield from create_with_lease(world.new_ask(spec.name), text, process.job_id, process.worker_id)
    except RemoraError as error:
        _refused(world, spec.name, scope, error)
    return found[0] if found else None


def submit_children(worker: Worker, run: Run, thread: Thread) -> Steps:
    """Return the tasks among them."""
    scope = run.scope
    inner: Scope | None = None
    if run.spec.inside:
        inner = yield from enter(worker, f"{run.spec.name}-inside", scope, run.spec.inside, timeout=3.0)
        scope = inner or scope
    submitted: list[Run] = []
    for child in run.spec.children:
        if isinstance(child, Task):
            made = yield from submit_task(worker, scope, child, thread)
            if made is not None:
                submitted.append(made)
        else:
            yield from create_actor(worker, scope, child, thread)
    if inner is not None:
        yield from leave(inner)
    return submitted


def submit_once_more(worker: Worker, run: Run) -> Run:
    """What the guard hands on."""
    assert run.class_id is not None
    made = rewriting.once_more(run.real, run.class_id, run.cluster)
    spec = replace(run.spec, name=f"{run.spec.name}'")
    again = _run(worker, run.scope, spec, run.real, made)
    again.class_id, again.node_class, again.rules = run.class_id, run.node_class, run.rules
    worker.owning.submit(again)
    return again


def enter(
    process: Process,
    name: str,
    parent: Scope | None,
    spec: str,
    *,
    timeout: float | None = None,
    priority: int = 0,
    idle_seconds: float = 5.0,
) -> Steps:
    """``with VirtualCluster(...)``: return the scope, or None where it was refused or took too long."""
    world = process.world
    parent_id = parent.cluster_id if parent is not None else None
    ask = world.new_ask(name)
    create = CreateCluster(ask, spec, parent_id, process.job_id, priority, [], idle_seconds, process.worker_id)
    try:
        cluster_id = yield from open_cluster(create, name, timeout)
    except (InvalidVirtualClusterError, VirtualClusterTimeoutError) as error:
        world.note("{} is not opened: {}: {}", name, type(error).__name__, error)
        return None
    except RemoraError as error:
        _refused(world, name, parent, error)
        return None
    scope = Scope(name, cluster_id, VirtualCluster.parse(spec), parent, process.job_id)
    world.opened(scope)
    scope.ask = ask
    return scope


def leave(scope: Scope) -> Steps:
    scope.closed = True
    yield from close_cluster(scope.ask, unused=not scope.used)


def _refused(world: World, name: str, scope: Scope | None, error: RemoraError) -> None:
    """Nothing is refused that a user could not have known to be wrong."""
    world.note("{} is refused: {}: {}", name, type(error).__name__, error)
    if scope is None or not any(each.closed or not world.gcs.jobs.get(each.job_id) for each in scope.chain()):
        raise Failure("somebody is refused for no reason", f"{name}: {type(error).__name__}: {error}")


def create_group(process: Process, scope: Scope | None, spec: CreatesGroup) -> Steps:
    """``placement_group()``: there, or kept beside the controller until it fits."""
    world = process.world
    _enter(scope)
    selectors = [dict(spec.selector)] * len(spec.bundles) if spec.selector else None
    options = {
        "bundle_label_selector": selectors,
        "tolerations": dict(spec.tolerations) or None,
        "fallback_strategy": [{"bundles": [{"CPU": cpus} for cpus in spec.fallback]}] if spec.fallback else None,
        "topology_strategy": dict(spec.topology) or None,
    }
    bundles = [{"CPU": cpus} for cpus in spec.bundles]
    request = rewrite_group(bundles, spec.strategy, options, Defaults())
    group = encode_group(replace(request, cluster=scope.cluster_id if scope is not None else None))
    group_id = f"00-{spec.name}"
    world.group_ids[spec.name], world.group_scopes[group_id] = group_id, scope
    try:
        yield Ask(MakeGroup(GroupPlan(group_id, group, process.job_id, "tests", spec.name, spec.strategy)))
    except RemoraError as error:
        world.end_waiting_in(group_id)
        _refused(world, spec.name, scope, error)


def end_group(process: Process, name: str) -> Steps:
    """``remove_placement_group()``."""
    group_id = process.world.group_ids[name]
    process.world.end_waiting_in(group_id)
    yield from remove_group(group_id)


def _enter(scope: Scope | None) -> str | None:
    if scope is None:
        return None
    scope.used = True
    return scope.cluster_id


def _run(
    process: Process,
    scope: Scope | None,
    spec: Task,
    held: dict[str, float],
    made: rewriting.Submission,
    *,
    slot: str | None = None,
    wish: str | None = None,
) -> Run:
    class_id = made.spec.class_id if made.spec is not None else None
    cluster = scope.cluster_id if scope is not None else None
    run = Run(
        spec.name,
        spec,
        process,
        held,
        to_units(made.resources),
        cluster=cluster,
        class_id=class_id,
        node_class=made.spec,
        slot=slot,
        wish=wish,
        group=spec.group,
    )
    run.scope = scope
    process.world.register_run(run)
    return run


def _in_group(process: Process, scope: Scope | None, spec: Task, held: dict[str, float]) -> Run | None:
    world: World = process.world
    if spec.group not in world.group_ids:
        return None
    made = rewriting.Submission(world.in_group(spec.group, held), {}, {}, None)
    run = _run(process, scope, spec, held, made)
    process.owning.submit(run)
    return run


def _mention(process: Process, made: rewriting.Submission) -> Steps:
    """Mirrors ``Submitter.tokens`` of ``remora.live``."""
    if made.spec is not None:
        process.submitter.mention(made.spec)
        if made.hint is not None and process.submitter.is_new(made.spec, made.hint):
            with contextlib.suppress(RemoraError):
                yield Ask(WantShares([Hint(made.spec.encode(), made.hint, 1)]))
        elif made.hint is not None:
            process.submitter.hint(made.spec, made.hint)
