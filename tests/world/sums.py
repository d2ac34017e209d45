"""Sums over what raylets have and virtual clusters may: is there room, beyond doubt?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.world.gcs import ALIVE, DEAD
from tests.world.owning import BLOCKED, GRANTED, IN_LINE, QUEUED, SENT_ON
from tests.world.raylet import UNIT, Raylet
from tests.world.submitting import Scope

from remora.wire.tokens import is_part, is_real, share_of_token, works_in

if TYPE_CHECKING:
    from tests.world.world import World

Amounts = dict[str, float]


def free_of(raylet: Raylet) -> Amounts:
    """What is free and nobody's."""
    free = {name: units / UNIT for name, units in raylet.available.items() if is_real(name)}
    for token, units in raylet.available.items():
        owner = share_of_token(token)
        if owner is not None and not is_part(owner[0]):
            free[owner[1]] = free.get(owner[1], 0.0) - units / UNIT
    return free


def unclaimed(raylet: Raylet) -> Amounts:
    """What is free, nobody's, and not kept for whoever stands in line there: that has its token, and has given its CPU back."""
    free = free_of(raylet)
    for worker in raylet.workers.values():
        run, actor = worker.run_now, worker.actor
        waits = run is not None and run.state == IN_LINE
        if waits or (actor is not None and actor.worker is worker and not actor.has_started):
            free["CPU"] = free.get("CPU", 0.0) - worker.lent_cpu / UNIT
    return free


def has_room(world: World, raylet: Raylet, scope: Scope | None, need: Amounts, decided: object) -> bool:
    """Whether there is room on a node, and below all maxima. What the kernel decides about (``decided``) has to leave to others
    what was decided for them before; what only a raylet looks at has not."""
    free = unclaimed(raylet)
    others = asked_by_others(world, decided) if decided is not None else {}
    if any(free.get(name, 0.0) < amount + others.get(name, 0.0) - 1e-6 for name, amount in need.items()):
        return False
    for cluster in scope.chain() if scope is not None else ():
        out = standing(world, cluster)
        used = world.checks.used_in(cluster)
        others = asked_by_others(world, decided, cluster) if decided is not None else {}
        for name, amount in need.items():
            cap = cluster.cap(name)
            most = max(out.get(name, 0.0), used.get(name, 0.0)) + others.get(name, 0.0)
            if cap is not None and most + amount > cap + 1e-6:
                return False
            if cluster.spec.fixed_size_nodes and cluster.spec.limit(name) is not None:
                return False  # how much of it is flexible is the kernel's business
    return True


def standing(world: World, cluster: Scope) -> Amounts:
    """What stands on nodes of a cluster and of those below it, used or not; without what nobody uses though it is taken: by
    those who wait for others, and by what keeps tokens from work."""
    inside = {scope.cluster_id for scope in world.scopes.values() if cluster in scope.chain()}
    out: Amounts = {}

    def count(shape: Iterable[tuple[str, int]], sign: float) -> None:
        for token, units in shape:
            owner = share_of_token(token)
            if owner is not None and not is_part(owner[0]) and works_in(owner[0]) in inside:
                out[owner[1]] = out.get(owner[1], 0.0) + sign * units / UNIT

    for raylet in world.raylets.values():
        count(raylet.total.items(), 1.0)
        for worker in raylet.workers.values():
            if worker.run_now is not None and worker.run_now.state in (BLOCKED, SENT_ON):
                count(worker.held, -1.0)
    for hold in world.gcs.groups.entries.values():
        if hold.pinned is not None:
            for bundle in hold.bundles:
                count(bundle, -1.0)
    return out


def is_gone(world: World, scope: Scope) -> bool:
    """Whether a virtual cluster is closed: what comes late gets what is left, and nobody promises more."""
    return any(each.closed or not world.gcs.jobs.get(each.job_id) for each in scope.chain())


def asked_by_others(world: World, work: object, within: Scope | None = None) -> Amounts:
    """What others with leases wait for, of all or in a virtual cluster: they may have been decided already."""
    total: Amounts = {}

    def counts(scope: Scope | None) -> bool:
        return within is None or (scope is not None and within in scope.chain())

    for entry in world.gcs.actors.values():
        if entry is not work and entry.state not in (ALIVE, DEAD) and entry.node_class is None and counts(entry.scope):
            for name, units in (entry.placement or entry.resources).items():
                if is_real(name):
                    total[name] = total.get(name, 0.0) + units / UNIT
    for run in world.runs.values():
        if run is not work and run.slot is not None and run.state in (QUEUED, GRANTED) and counts(run.scope):
            for name, amount in run.real.items():
                total[name] = total.get(name, 0.0) + amount
    return total
