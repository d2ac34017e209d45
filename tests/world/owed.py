"""What is owed when all is quiet: a minimum to its virtual cluster, whoever has borrowed it; and no cluster to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.world.failure import Failure
from tests.world.gcs import ALIVE
from tests.world.groups import CREATED, RESCHEDULING
from tests.world.owning import IN_LINE, QUEUED, STARTED, Run
from tests.world.raylet import UNIT

from remora.wire.keys import CLUSTERS

if TYPE_CHECKING:
    from tests.world.acting import Acting
    from tests.world.submitting import Scope
    from tests.world.world import World

_SOON_SECONDS = 20.0
"""What takes longer than that may never end, and nobody can take from it what it has."""


def check_minima(world: World, queued: list[str]) -> None:
    """What fits into the minimum of its virtual cluster has started, though others always have something to do."""
    if queued or any(world.checks.marks(node_id).taints for node_id in world.raylets) or _is_taken_for_long(world):
        return
    capacity = sum(raylet.total.get("CPU", 0) for raylet in world.raylets.values())
    if capacity < sum(_minimum(scope) for scope in world.scopes.values() if scope.parent is None) * UNIT:
        return
    for run in world.runs.values():
        scope = run.scope
        waits = run.state in (QUEUED, IN_LINE) and world.now - run.waits_since > _SOON_SECONDS
        if not waits or not run.owner.alive or run.group or scope is None or run.real != {"CPU": 1.0}:
            continue
        asks_little = run.node_class is not None and not run.node_class.choices[0].selector.terms
        if not asks_little or scope.parent is not None or scope.closed or not _is_alone(world, scope):
            continue
        users = world.checks.users_of(scope, "CPU")
        if all(amount == 1.0 for _, amount in users) and len(users) < _minimum(scope):
            raise Failure(
                "a minimum waits for ever",
                f"{run.name} in {scope.name} ({scope.cluster_id}) fits into its minimum of {_minimum(scope):g} CPU, of which "
                f"{len(users)} are used",
            )


def check_clusters(world: World, acting: Acting) -> None:
    """Every virtual cluster that is remembered and open is somebody's."""
    asks = {scope.ask for scope in world.scopes.values() if not scope.closed}
    for key, data in world.gcs.kv.items():
        if not key.startswith(CLUSTERS.prefix):
            continue
        body = CLUSTERS.read(data)
        name = str(body["ask"]).removeprefix("ask-").rpartition("-")[0]
        if body["group"] is None and not body["closing"] and body["ask"] not in asks and name not in acting.opening:
            raise Failure("a virtual cluster is left over", f"{key} is nobody's: {body}")


def _is_alone(world: World, scope: Scope) -> bool:
    """Whether nothing is inside of a virtual cluster but tasks."""
    inside = any(other is not scope and scope in other.chain() for other in world.scopes.values())
    grouped = scope in world.group_scopes.values()
    return not inside and not grouped and not any(entry.scope is scope for entry in world.gcs.actors.values())


def _minimum(scope: Scope) -> float:
    if scope.closed:
        return 0.0
    fixed = sum(node.resources.get("CPU", 0) for nodes in scope.spec.fixed_size_nodes for node in nodes.nodes)
    least: int = scope.spec.flexible_resource_min.get("CPU", 0)
    return (fixed + least) / UNIT


def _is_taken_for_long(world: World) -> bool:
    """Whether anybody has a CPU whom no fence can make give it back soon."""
    actors = any(entry.state == ALIVE and entry.real.get("CPU") for entry in world.gcs.actors.values())
    has_some = (CREATED, RESCHEDULING)
    groups = any(group.state in has_some and group.pinned is None for group in world.gcs.groups.entries.values())
    return actors or groups or any(_runs_for_long(world, run) for run in world.runs.values())


def _runs_for_long(world: World, run: Run) -> bool:
    return run.state == STARTED and run.worker is not None and world.now - run.waits_since > _SOON_SECONDS
