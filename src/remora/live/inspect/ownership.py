"""What in Ray's tables belongs to a virtual cluster: told by tokens, by an actor's label, and by the ids of Ray, which contain
the id of whatever made a thing.

Ids of virtual clusters are used again, so the job has to be the same too.
"""

from __future__ import annotations

from typing import Any

import ray
from ray._private.internal_api import node_stats

from remora.live.adapter import node_messages, ray_ids, unpatched
from remora.live.adapter.tables import Lookup
from remora.live.inspect.tree_cache import Tree
from remora.wire.tokens import CLUSTER_LABEL, cluster_of_work, is_hold


class Belonging:
    """The ids of what belongs to virtual clusters of one job. With ``drivers`` also what the driver itself made, and what is
    too old to be told."""

    def __init__(self, cluster_ids: set[str], job_id: str, *, drivers: bool, lookup: Lookup) -> None:
        self.job_id = job_id
        self._drivers = drivers
        self._tasks: set[str] = set()
        self._others: set[str] = set()
        self._actors: set[str] = set()
        self._workers: set[str] = set()
        groups = [group for group in lookup.groups_of(job_id) if not is_hold(group.name)]
        self._groups = {group.work_id for group in groups if cluster_of_work(_names(group.shapes)) in cluster_ids}
        for actor in lookup.actors_of(job_id):
            if actor.labels.get(CLUSTER_LABEL) in cluster_ids:
                self._actors.add(actor.actor_id)
                self._workers.add(actor.worker_id)
        for task in lookup.tasks_of(job_id):
            mine = cluster_of_work(task.resources) in cluster_ids or task.group_id in self._groups
            (self._tasks if mine else self._others).add(task.task_id)
            if mine and task.worker_id:
                self._workers.add(task.worker_id)

    def has_task(self, task_id: str) -> bool:
        actor_id = ray_ids.actor_of(task_id)
        if actor_id is not None:
            return actor_id in self._actors
        if task_id in self._tasks:
            return True
        return self._drivers and task_id not in self._others and ray_ids.is_of_job(task_id, self.job_id)

    def has_actor(self, actor_id: str) -> bool:
        return actor_id in self._actors

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def has_object(self, object_id: str) -> bool:
        return self.has_task(ray_ids.task_of(object_id))

    def has_worker(self, worker_id: str) -> bool:
        return worker_id in self._workers or (self._drivers and ray_ids.is_driver(worker_id, self.job_id))


def belonging_to(cluster_id: str, tree: Tree) -> Belonging:
    """To a virtual cluster and those inside of it. What a driver does is its job's, not that of a cluster inside."""
    row = tree.get(cluster_id)
    lookup = Lookup(ray.get_runtime_context().gcs_address)
    return Belonging(tree.family(cluster_id), row["job_id"], drivers=row["parent"] is None, lookup=lookup)


def object_sizes() -> dict[str, int]:
    """Every object that any worker refers to, and its size in bytes."""
    sizes: dict[str, int] = {}
    for node in unpatched.nodes():
        if node["Alive"]:
            stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=True)
            for object_id, size in node_messages.object_sizes(stats):
                sizes[object_id] = max(sizes.get(object_id, 0), size)
    return sizes


def _names(shapes: Any) -> list[str]:
    return [name for shape in shapes for name in shape]
