"""Ghosts: what counts on a node although nobody placed it here. Actors that Ray placed and that bear labels or are named by
somebody, and objects with labels. What they take is in the report of their node already.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from remora.kernel.cycle import Scheduler
from remora.kernel.workloads import Host, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY
from remora.model.selectors import LabelSelector
from remora.model.strategies import ACTOR, OBJECT
from remora.model.taints import Tolerations
from remora.seam.port import RUNNING, Port, Work
from remora.wire.leases import own_labels

_OBJECT = "object/"


class Ghosts:
    def __init__(self, port: Port, scheduler: Scheduler) -> None:
        self._port = port
        self._scheduler = scheduler
        self._ghosts: dict[str, Workload] = {}
        self._jobs: dict[str, str] = {}  # of objects

    def __contains__(self, ghost_id: str) -> bool:
        return ghost_id in self._ghosts

    @property
    def actors(self) -> list[str]:
        return [ghost_id for ghost_id in self._ghosts if ghost_id not in self._jobs]

    def see_actor(self, work: Work, *, named: bool) -> None:
        """What it bears or who names it makes it count, while it runs."""
        labels = own_labels(work.labels)
        if work.state != RUNNING:
            self.lay(work.work_id)
        elif (labels or named) and work.node_ids:
            self._haunt(work.work_id, work.node_ids[0], labels, ACTOR, work.namespace)

    def put_object(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        """An object with labels lies on a node."""
        self._port.put(_OBJECT + object_id, json.dumps([labels, node_id, namespace, job_id]).encode())
        self._lay_out(object_id, labels, node_id, namespace, job_id)

    def drop_object(self, object_id: str) -> None:
        self._port.put(_OBJECT + object_id, None)
        self._jobs.pop(object_id, None)
        self.lay(object_id)

    def remember(self) -> None:
        """Objects that a controller before us was told of."""
        for key in self._port.keys(_OBJECT):
            labels, node_id, namespace, job_id = json.loads(self._port.get(key) or b"[]")
            pairs = tuple((name, value) for name, value in labels)
            self._lay_out(key.removeprefix(_OBJECT), pairs, node_id, namespace, job_id)

    def job_ended(self, job_id: str) -> None:
        self._drop_objects([object_id for object_id, job in self._jobs.items() if job == job_id])

    def node_left(self, node_id: str) -> None:
        node = self._scheduler.cluster.nodes.get(node_id)
        lost = [ghost_id for ghost_id, ghost in self._ghosts.items() if ghost.node == node.number]
        self._drop_objects([ghost_id for ghost_id in lost if ghost_id in self._jobs])
        for ghost_id in lost:
            self.lay(ghost_id)

    def lay(self, ghost_id: str) -> None:
        """It is gone, or is known to be here by a lease."""
        ghost = self._ghosts.pop(ghost_id, None)
        if ghost is not None and ghost.placed:
            self._scheduler.cluster.release(ghost)
            self._scheduler.settle()

    def _drop_objects(self, object_ids: Collection[str]) -> None:
        for object_id in object_ids:
            self.drop_object(object_id)

    def _lay_out(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        if self._haunt(object_id, node_id, labels, OBJECT, namespace):
            self._jobs[object_id] = job_id

    def _haunt(self, ghost_id: str, node_id: str, labels: Labels, kind: str, namespace: str) -> bool:
        node = self._scheduler.cluster.nodes.by_id.get(node_id)
        if node is None or ghost_id in self._ghosts:
            return False
        shown = tuple(pair for pair in labels if pair[0] != ACTOR_ID)
        nothing = Request(kind, EMPTY, EMPTY, (NodeClass(LabelSelector(), Tolerations()),), namespace=namespace)
        ghost = self._ghosts[ghost_id] = Workload(ghost_id, nothing, shown, self._scheduler.next_order())
        self._scheduler.cluster.place(ghost, Host(None, node.number, None))
        self._scheduler.settle()
        return True
