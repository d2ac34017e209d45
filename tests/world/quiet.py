"""When all is quiet: everything that could start has started, and what waits is told why; at the end nothing is left.

What *could* start is judged here by sums over what the raylets have, and only where there is no doubt: whatever this finds
startable the kernel could place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.world import owed
from tests.world.failure import Failure
from tests.world.gcs import ALIVE, DEAD, ActorEntry
from tests.world.groups import CREATED, GroupEntry
from tests.world.owning import BLOCKED, GRANTED, IN_LINE, QUEUED, Run
from tests.world.raylet import UNIT, Raylet
from tests.world.submitting import Scope
from tests.world.sums import Amounts, free_of, has_room, is_gone, standing, unclaimed

from remora.model.labels import ACTOR_ID
from remora.model.strategies import ACTOR
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.calls import Call, Explain, LookAtCluster
from remora.wire.classes import ClassSpec
from remora.wire.group_plans import WAITING
from remora.wire.group_requests import decode_group
from remora.wire.keys import CLASSES, LATE_GROUPS, TASK_LEASES
from remora.wire.tokens import KEEP, is_part, is_real, is_token, share_of_token

if TYPE_CHECKING:
    from tests.world.acting import Acting
    from tests.world.world import World

_MOST_ASKED = 4
_LONG_SECONDS = 20.0
"""What came later than that may be about to start: some work never ends, and is followed by more."""

_FALSE = ("about to start", "it runs", "it is placed")
_LEFT_OVER = ("vc/", "lease/", "hold/", "object/", "late/")


def check_waiting(world: World, acting: Acting) -> None:
    """Nothing waits that could start, and of all that waits it is known why."""
    if world.host.brain is None:
        raise Failure("the controller does not come back", "it has been away all the time since all is quiet")
    queued = [name for name, action in acting.opening.items() if acting.drivers[action.job].alive]
    waiting: list[tuple[str, str]] = []
    for run in world.runs.values():
        if run.is_over or not run.owner.alive or run.group:
            continue
        if run.state in (QUEUED, GRANTED) and world.now - run.waits_since > _LONG_SECONDS:
            _check_run(world, run, queued)
            waiting.append((run.name, run.name))
        elif run.state == IN_LINE and world.now - run.in_line_since > _LONG_SECONDS:
            _check_line(world, run.name, run.scope, run.real, run.worker.raylet if run.worker else None, queued)
        elif run.state == BLOCKED and run.worker is not None:
            _check_blocked(world, run)
    for entry in world.gcs.actors.values():
        if entry.state in (ALIVE, DEAD) or entry.spec.group:
            continue
        if entry.worker is not None:
            _check_line(world, entry.actor_id, entry.scope, entry.real, entry.worker.raylet, queued)
        else:
            _check_actor(world, entry, queued)
            waiting.append((entry.actor_id, entry.actor_id))
    for group in world.gcs.groups.entries.values():
        if group.state != CREATED and group.pinned is None:
            _check_group(world, group, queued)
            if group.cluster is None or group.state != "PENDING":  # else it is just being tried, and whoever keeps it says why
                waiting.append((group.group_id, group.group_id))
    _check_kept(world, queued)
    _check_leases(world)
    owed.check_minima(world, queued)
    owed.check_clusters(world, acting)
    _check_queue(world, acting, queued)
    for name, work_id in waiting[:_MOST_ASKED]:
        _check_reason(world, acting, name, work_id)


# What could start


def _check_run(world: World, run: Run, queued: list[str]) -> None:
    spec = run.node_class or (ClassSpec(run.rules.choices) if run.rules is not None else None)
    rules: Any = run.rules if run.slot is not None else None
    _check_startable(world, run, run.name, spec, run.scope, run.real, rules, queued)
    if run.scope is not None and not queued:
        _check_part(world, run, run.scope)


def _check_part(world: World, run: Run, scope: Scope) -> None:
    """What selects a part of its virtual cluster starts there where nothing else of the cluster runs."""
    tokens = [name for name in run.shape if (owner := share_of_token(name)) is not None and is_part(owner[0])]
    nested = any(other is not scope and scope in other.chain() for other in world.scopes.values())
    grouped = any(group.cluster == scope.name for group in world.gcs.groups.entries.values())
    if not tokens or nested or grouped or is_gone(world, scope) or any(world.checks.used_in(scope).values()):
        return
    choices = run.node_class.choices if run.node_class is not None else ()
    parts = [node for nodes in scope.spec.fixed_size_nodes for node in nodes.nodes]
    for raylet in world.raylets.values():
        marks = world.checks.marks(raylet.node_id)
        selected = any(
            choice.tolerations.tolerates(marks.taints)
            and choice.selector.matches({**marks.labels, **dict(part.labels)})
            and all(part.resources.get(name, 0) >= units for name, units in run.shape.items() if is_real(name))
            for choice in choices
            for part in parts
        )
        stands = all(raylet.total.get(token, 0) >= run.shape[token] for token in tokens)
        has_room = all(raylet.available.get(name, 0) >= units for name, units in run.shape.items() if is_real(name))
        if selected and stands and has_room:
            raise Failure(
                "what could start waits for ever",
                f"{run.name} in {scope.name} ({scope.cluster_id}) selects a part of it on {raylet.node_id}, where nothing else "
                f"of it runs and {free_of(raylet)} is free",
            )


def _check_actor(world: World, entry: ActorEntry, queued: list[str]) -> None:
    if not entry.owner.alive and entry.node_class is not None and CLASSES.key(entry.node_class.class_id) not in world.gcs.kv:
        return  # whoever made it died before it could say what it is
    spec = entry.node_class or (ClassSpec(entry.rules.choices) if entry.rules is not None else None)
    need = {name: units / UNIT for name, units in (entry.placement or entry.resources).items() if is_real(name)}
    rules: Any = entry.rules if entry.node_class is None else None
    _check_startable(world, entry, entry.actor_id, spec, entry.scope, need, rules, queued)


def _check_startable(
    world: World,
    work: object,
    name: str,
    spec: ClassSpec | None,
    scope: Scope | None,
    need: Amounts,
    rules: Any,
    queued: list[str],
) -> None:
    if spec is None or queued or (scope is not None and is_gone(world, scope)):
        return  # while somebody is owed a minimum others may have to wait
    for raylet in world.raylets.values():
        marks = world.checks.marks(raylet.node_id)
        first = spec.choices[0]
        if not (
            first.node_id in (None, raylet.node_id)
            and first.selector.matches(marks.labels)
            and first.tolerations.tolerates(marks.taints)
        ):
            continue
        if not has_room(world, raylet, scope, need, work if rules is not None or scope is not None else None):
            continue
        if rules is not None and not _rules_hold(world, work, rules, raylet):
            continue
        raise Failure(
            "what could start waits for ever",
            f"{name}{f' in {scope.name} ({scope.cluster_id})' if scope else ''} wants {need} and fits {raylet.node_id}, "
            f"of which {free_of(raylet)} is free",
        )
    kind = world.autoscaler.would_help(spec, need) if world.autoscaler is not None and scope is None and rules is None else ""
    if kind:
        raise Failure("what a machine would help waits for ever", f"{name} wants {need}, and there may be one more {kind}")


def _rules_hold(world: World, work: object, rules: Any, raylet: Raylet) -> bool:
    if any(each.hard for each in rules.placement.spreads):
        return False  # whether it holds depends on all the others
    for affinity in rules.placement.affinities:
        if affinity.any_of or (getattr(work, "scope", None) is not None and any(term.topology for term in affinity.hard)):
            return False
        for term in affinity.hard:
            there, maybe = _like(world, work, affinity.owner, term, raylet)
            if term.positive and not there:
                return False
            if not term.positive and (there or maybe):
                return False
    return not any(
        affinity.symmetric and (other is raylet or any(term.topology for term in affinity.hard))
        for other in world.raylets.values()
        for placed in world.checks.placed_on(other.node_id)
        for affinity in placed.rules
    )


def _like(world: World, work: object, owner: str, term: Any, raylet: Raylet) -> tuple[bool, bool]:
    """Whether anything that an expression names is on a node or in its domain; and whether something like it is to come."""
    beside = world.checks.are_beside
    near = [each.node_id for each in world.raylets.values() if beside(each.node_id, raylet.node_id, term.topology)]
    there = any(
        (
            placed.actor_id in term.values
            if term.key == ACTOR_ID
            else placed.kind == owner and placed.labels.get(term.key) in term.values
        )
        for node_id in near
        for placed in world.checks.placed_on(node_id)
    )
    coming = [
        entry
        for entry in world.gcs.actors.values()
        if entry is not work and entry.state not in (ALIVE, DEAD) and owner == ACTOR
    ]
    runs = [run for run in world.runs.values() if run is not work and run.slot is not None and run.state in (QUEUED, GRANTED)]
    return there, bool(coming or runs)


def _check_line(world: World, name: str, scope: Scope | None, need: Amounts, raylet: Raylet | None, queued: list[str]) -> None:
    """What stands in line has its token already: it needs room below the maxima, and a CPU."""
    if raylet is None or queued:
        return
    for cluster in scope.chain() if scope is not None else ():
        used, out = world.checks.used_in(cluster), standing(world, cluster)
        for resource, amount in need.items():
            cap = cluster.cap(resource)
            # What stands of it, its own token included, may be reserved for others that are in it.
            if cap is not None and max(used.get(resource, 0.0) + amount, out.get(resource, 0.0)) > cap + 1e-6:
                return
    free = free_of(raylet)
    if all(free.get(resource, 0.0) >= amount - 1e-6 for resource, amount in need.items() if resource == "CPU"):
        raise Failure(
            "what could start waits for ever",
            f"{name}{f' in {scope.name}' if scope else ''} stands in line on {raylet.node_id}, where {free} is free",
        )


def _check_blocked(world: World, run: Run) -> None:
    """Who waits in ``ray.get`` waits for something."""
    threads = run.worker.threads if run.worker is not None else ()
    if any(thread.targets and all(target.is_over for target in thread.targets) for thread in threads):
        raise Failure(
            "who has what it waited for does not go on", f"{run.name} on {run.worker.worker_id if run.worker else ''}"
        )
    del world


def _check_group(world: World, group: GroupEntry, queued: list[str]) -> None:
    if queued or group.cluster is not None or group.state != "PENDING" or group.strategy == "STRICT_SPREAD":
        return
    need: Amounts = {}
    for bundle in group.bundles:
        for name, units in bundle:
            if is_real(name):
                need[name] = need.get(name, 0.0) + units / UNIT
    classes = {name for bundle in group.bundles for name, _ in bundle if is_token(name)}
    for raylet in world.raylets.values():
        free = unclaimed(raylet)
        offers = all(raylet.available.get(name, 0) > 0 for name in classes)  # what is held there is not free
        if len(classes) == 1 and offers and all(free.get(n, 0.0) >= need[n] - 1e-6 for n in need):
            raise Failure(
                "what could start waits for ever",
                f"{group.group_id} wants {need} and fits {raylet.node_id}, of which {free} is free",
            )


def _check_kept(world: World, queued: list[str]) -> None:
    """Placement groups that are kept beside the controller, because they fit nowhere, in a virtual cluster or in none."""
    if queued or world.gcs.groups.is_busy():
        return
    kept = [LATE_GROUPS.read(data) for key, data in world.gcs.kv.items() if key.startswith(LATE_GROUPS.prefix)]
    for plan in [entry.plan for entry in kept if entry.state == WAITING and world.gcs.jobs.get(entry.plan.job_id)]:
        request = decode_group(plan.group)
        scope, bundles, levels = world.group_scopes[plan.group_id], request.options[0], request.levels(0)
        if ("STRICT_SPREAD" in (plan.strategy, *(how for _, how in levels)) and len(bundles) > 1) or (
            scope is not None and is_gone(world, scope)
        ):
            continue
        need: Amounts = {}
        for bundle in bundles:
            for name, amount in bundle.resources.to_dict().items():
                need[name] = need.get(name, 0.0) + amount
        for raylet in world.raylets.values():
            marks = world.checks.marks(raylet.node_id)
            is_welcome = all(
                bundle.nodes.selector.matches(marks.labels) and bundle.nodes.tolerations.tolerates(marks.taints)
                for bundle in bundles
            )
            is_welcome = is_welcome and all(label in marks.labels for label, _ in levels)
            if is_welcome and has_room(world, raylet, scope, need, plan):
                raise Failure(
                    "what could start waits for ever",
                    f"{plan.group_id}{f' in {scope.name} ({scope.cluster_id})' if scope else ''} is kept, wants {need} and "
                    f"fits {raylet.node_id}, of which {free_of(raylet)} is free",
                )


def _check_leases(world: World) -> None:
    """Every lease of a task that is remembered is that of a task which somebody waits for."""
    used = {run.slot for run in world.runs.values() if run.slot is not None and not run.is_over and run.owner.alive}
    for key in world.gcs.kv:
        if key.startswith(TASK_LEASES.prefix) and TASK_LEASES.parts(key)[0] not in used:
            raise Failure("a lease is left over", f"{key} is nobody's: {TASK_LEASES.read(world.gcs.kv[key])}")


def _check_queue(world: World, acting: Acting, queued: list[str]) -> None:
    """One virtual cluster that is alone in the queue and whose minimum is free has it."""
    for name in queued:
        action = acting.opening[name]
        answer = ask(world, acting, LookAtCluster(world.cluster_ids.get(f"ask-{name}-1", "")))
        if answer is not None and answer.get("state") == "QUEUED" and not answer.get("reason"):
            raise Failure("what waits is not told why", f"virtual cluster {name}: {answer}")
        if len(queued) > 1 or action.parent or '"fixed' in action.spec:
            continue
        need = VirtualCluster.parse(action.spec).flexible_resource_min
        free: Amounts = {}
        for raylet in world.raylets.values():
            if not world.checks.marks(raylet.node_id).taints:
                for resource, amount in unclaimed(raylet).items():
                    free[resource] = free.get(resource, 0.0) + max(amount, 0.0)
        if all(free.get(resource, 0.0) >= units / UNIT for resource, units in need.items()):
            raise Failure("what could start waits for ever", f"virtual cluster {name} ({action.spec}), and {free} is free")


# Reasons


def ask(world: World, acting: Acting, call: Call) -> Any:
    """What the controller answers; None when it is an error."""
    found: list[Any] = []
    assert acting.admin is not None
    world.host.send(acting.admin, call, lambda value, error: found.append((value, error)))
    until = world.now + 10.0
    while not found and world.timeline.step(until):
        pass
    if not found:
        raise Failure("a call is not answered", f"{call}")
    value, error = found[0]
    if error is not None:
        world.note("asked {}: {}", call, error)
    return value


def _check_reason(world: World, acting: Acting, name: str, work_id: str) -> None:
    rows = ask(world, acting, Explain(work_id))
    if _has_ended(world, work_id):
        return
    if not rows:
        raise Failure("what waits is not told why", f"{name}: the controller knows nothing of it")
    for row in rows:
        reason = str(row.get("reason", ""))
        if not reason or any(text in reason for text in _FALSE) or row.get("fits"):
            raise Failure("what waits is not told why", f"{name} waits since long, and the reason is {reason!r} ({row})")


def _has_ended(world: World, work_id: str) -> bool:
    run, entry = world.runs.get(work_id), world.gcs.actors.get(work_id)
    group = world.gcs.groups.entries.get(work_id)
    if run is not None:
        return run.state not in (QUEUED, GRANTED)
    if entry is not None:
        return entry.state in (ALIVE, DEAD)
    return group is None or group.state == CREATED


# The end


def check_nothing_left(world: World) -> None:
    """Everybody has gone: the cluster is as it was before anybody came."""
    for raylet in world.raylets.values():
        # That which keeps a machine stays, free: to take it away would only start the clock of an idle machine again.
        tokens = {name: units / UNIT for name, units in raylet.total.items() if is_token(name) and name != KEEP}
        if tokens:
            raise Failure("a token is left over", f"{tokens} on {raylet.node_id}")
        if raylet.available != raylet.total:
            raise Failure("the world is wrong", f"{raylet.node_id} has {raylet.available} of {raylet.total}")
    groups = [*world.gcs.groups.entries, *world.signals]
    if groups:
        raise Failure("a hold is left over", f"{groups}")
    kept = world.autoscaler.left_over() if world.autoscaler is not None else ""
    if kept:
        raise Failure("a machine is left over", kept)
    keys = [key for key in world.gcs.kv if key.startswith(_LEFT_OVER)]
    keys += [key for key in world.gcs.kv if key.startswith("fence/") and key.removeprefix("fence/") not in world.raylets]
    if keys:
        raise Failure("a key is left over", f"{ {key: world.gcs.kv[key] for key in keys} }")
    brain = world.host.brain
    if brain is not None and not brain.settled:
        raise Failure(
            "the controller does not come to rest", f"nothing happens any more, but: {getattr(brain, 'unsettled', str)()}"
        )
