"""Bystanders: what counts on a node although nobody placed it here. Actors that Ray placed and that bear labels or are named by
somebody, and objects with labels. What they take is in the report of their node already.
"""

from __future__ import annotations

from collections.abc import Collection

from remora.controller.context import Context
from remora.controller.store import Store
from remora.kernel.cycle import Scheduler
from remora.kernel.state.workloads import Host, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import EMPTY
from remora.model.selectors import LabelSelector
from remora.model.strategies import ACTOR, OBJECT
from remora.model.taints import Tolerations
from remora.wire.keys import OBJECTS, LabelledObject


class Bystanders:
    def __init__(self, context: Context, scheduler: Scheduler, store: Store) -> None:
        self._context = context
        self._scheduler = scheduler
        self._store = store
        self._present: dict[str, Workload] = {}
        self._jobs: dict[str, str] = {}  # of objects

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._present

    @property
    def actors(self) -> list[str]:
        return [work_id for work_id in self._present if work_id not in self._jobs]

    def add_actor(self, actor_id: str, node_id: str, labels: Labels, namespace: str) -> None:
        """An actor runs that bears labels, or that somebody names."""
        self._add(actor_id, node_id, labels, ACTOR, namespace)

    def put_object(self, object_id: str, labels: Labels, node_id: str, namespace: str, job_id: str) -> None:
        """An object with labels lies on a node."""
        if self._add(object_id, node_id, labels, OBJECT, namespace):
            self._jobs[object_id] = job_id
            entry = LabelledObject(tuple(labels), node_id, namespace, job_id)
            self._store.set(OBJECTS.key(object_id), OBJECTS.write(entry))

    def drop(self, work_id: str) -> None:
        """It is gone, or is known to be here by a lease."""
        if self._jobs.pop(work_id, None) is not None:
            self._store.set(OBJECTS.key(work_id), None)
        present = self._present.pop(work_id, None)
        if present is not None and present.placed:
            self._scheduler.cluster.release(present)
            self._scheduler.settle()

    def restore(self, object_id: str, entry: LabelledObject) -> None:
        """An object that a controller before us was told of; one on a lost node is forgotten."""
        if self._add(object_id, entry.node_id, tuple(entry.labels), OBJECT, entry.namespace):
            self._jobs[object_id] = entry.job_id
        else:
            self._store.set(OBJECTS.key(object_id), None)

    def jobs(self) -> set[str]:
        """Return the jobs that have put objects."""
        return set(self._jobs.values())

    def job_ended(self, job_id: str) -> None:
        self._drop_all([object_id for object_id, job in self._jobs.items() if job == job_id])

    def node_left(self, number: int) -> None:
        """Before the node is removed."""
        self._drop_all([work_id for work_id, present in self._present.items() if present.node == number])

    def _drop_all(self, work_ids: Collection[str]) -> None:
        for work_id in list(work_ids):
            self.drop(work_id)

    def _add(self, work_id: str, node_id: str, labels: Labels, kind: str, namespace: str) -> bool:
        node = self._scheduler.cluster.nodes.by_id.get(node_id)
        if node is None:
            return False
        known = self._present.get(work_id)
        if known is not None:
            if known.node == node.number:
                return True
            self.drop(work_id)
        shown = tuple(pair for pair in labels if pair[0] != ACTOR_ID)
        nothing = Request(kind, EMPTY, EMPTY, (NodeClass(LabelSelector(), Tolerations()),), namespace=namespace)
        present = self._present[work_id] = Workload(work_id, nothing, shown, self._scheduler.next_order())
        self._scheduler.cluster.place(present, Host(None, node.number, None))
        self._scheduler.settle()
        return True
