"""In front of a full node: work that would use more than its virtual cluster's share waits until there is room.

It waits in ``ray.get``, so that its CPU is free for others meanwhile.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError

from remora.ray_seam.blocking import held_share, said_already
from remora.ray_seam.layer import CONTROLLER, NAMESPACE
from remora.wire.fences import ROOT
from remora.wire.tokens import is_real


def stand_in_line(cluster_id: str | None) -> None:
    """Returns when the task that this process is about to run may start."""
    worker = ray._private.worker.global_worker
    amounts = _amounts(worker, cluster_id)
    if not amounts:
        return
    node_id = ray.get_runtime_context().get_node_id()
    try:
        controller: Any = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
        with said_already():
            while not ray.get(controller.enter.remote(worker.worker_id.hex(), cluster_id or ROOT, node_id, amounts)):
                pass
    except (ValueError, RayActorError):
        return  # there is no controller any more, and nothing to wait for


def _amounts(worker: Any, cluster_id: str | None) -> dict[str, float]:
    if cluster_id is not None:
        found = held_share(worker, cpus_only=False)
        return found[1] if found is not None else {}
    held = worker.core_worker.resource_ids()
    return {name: sum(amount for _, amount in parts) for name, parts in held.items() if is_real(name)}
