"""Find a task, an actor, a placement group or the work of a job in GCS, by id or by name."""

from __future__ import annotations

import functools
import time
from typing import Any

import ray
from ray import ActorID, JobID, PlacementGroupID, WorkerID

from remora.live.adapter import messages, ray_ids
from remora.live.adapter.gcs_calls import KILL_ACTOR, TASK_EVENTS, GcsCalls
from remora.live.adapter.messages import ActorOf, Outcome, TaskOf
from remora.port.contract import ENDED, TASK, Work
from remora.wire.tokens import is_hold

_MOST_TASKS = 10_000
_LOOK_SECONDS = 0.002


class Lookup:
    """Reads GCS's tables when somebody asks; nothing is kept."""

    def __init__(self, gcs_address: str) -> None:
        self._address = gcs_address

    @functools.cached_property
    def calls(self) -> GcsCalls:
        return GcsCalls(self._address)

    def find(self, text: str) -> list[Work]:
        if ray_ids.is_id(text):
            by_size = {
                ray_ids.JOB: self._job,
                ray_ids.ACTOR: self._actor,
                ray_ids.GROUP: self._group,
                ray_ids.TASK: self._task,
                ray_ids.OBJECT: self._object,
            }
            found = by_size[len(text)](text.lower()) if len(text) in by_size else []
            if found:
                return found
        return self.groups_named(text) if is_hold(text) else self._named(text)

    def living(self) -> list[Work]:
        """Every actor and every job."""
        # GCS remembers very many that are dead: each living state is asked for by itself.
        table = [data for state in messages.LIVING for data in _accessor().get_actor_table(None, state)]
        return [*_running_jobs(), *map(messages.actor, table)]

    def has_ended(self, worker_id: str) -> bool:
        """A raylet tells GCS that a worker has ended before it gives away what the worker held."""
        data = _accessor().get_worker_info(WorkerID(bytes.fromhex(worker_id)))
        return bool(data) and messages.has_ended(data)

    def is_created(self, group_id: PlacementGroupID, timeout: float, *, patient: bool = False) -> bool:
        """Whether a placement group got what it asks for; as soon as GCS has tried, or where one is ``patient`` and it may
        succeed in the end, as soon as it has."""
        until = time.monotonic() + timeout
        pending = (Outcome.UNTRIED, Outcome.WAITING) if patient else (Outcome.UNTRIED,)
        while time.monotonic() < until:
            data = _accessor().get_placement_group_info(group_id)
            found = messages.outcome(data) if data else Outcome.HOPELESS
            if found not in pending:
                return found is Outcome.CREATED
            time.sleep(_LOOK_SECONDS)
        return False

    def groups_named(self, name: str) -> list[Work]:
        """The placement groups of this name that have not ended: the one of our namespace if there is one, which takes a single
        call; else those of all, because whoever made it may have lived in another."""
        data = _accessor().get_placement_group_by_name(name, ray.get_runtime_context().namespace)
        groups = [messages.group(data)] if data else self._groups()
        return [group for group in groups if group.name == name and group.state != ENDED]

    def group_ids(self, id_or_name: str) -> list[str]:
        """The placement group of this id, or those of this name."""
        if len(id_or_name) == ray_ids.GROUP and ray_ids.is_id(id_or_name):
            return [id_or_name]
        return [group.work_id for group in self.groups_named(id_or_name)]

    def restart(self, actor_id: str) -> None:
        self.calls(KILL_ACTOR, messages.kill_actor(actor_id))

    def actors_of(self, job_id: str) -> list[ActorOf]:
        """The actors of a job, dead ones too."""
        return [messages.actor_of(data) for data in _accessor().get_actor_table(JobID.from_hex(job_id), None)]

    def tasks_of(self, job_id: str) -> list[TaskOf]:
        """The tasks of a job, an entry an attempt."""
        return self._tasks(messages.tasks_of_job(job_id, _MOST_TASKS))

    def groups_of(self, job_id: str) -> list[Work]:
        return [group for group in self._groups() if group.job_id == job_id]

    def _job(self, job_id: str) -> list[Work]:
        actors = map(messages.actor, _accessor().get_actor_table(JobID.from_hex(job_id), None))
        groups = self.groups_of(job_id)
        tasks = [task.work for task in self.tasks_of(job_id) if task.work.kind == TASK]
        running = [job for job in _running_jobs() if job.job_id == job_id]
        return [*running, *(work for work in (*actors, *groups, *tasks) if work.state != ENDED)]

    def _actor(self, actor_id: str) -> list[Work]:
        data = _accessor().get_actor_info(ActorID.from_hex(actor_id))
        return [messages.actor(data)] if data else []

    def _group(self, group_id: str) -> list[Work]:
        data = _accessor().get_placement_group_info(PlacementGroupID(bytes.fromhex(group_id)))
        return [messages.group(data)] if data else []

    def _task(self, task_id: str) -> list[Work]:
        actor_id = ray_ids.actor_of(task_id)
        if actor_id is not None:
            return self._actor(actor_id)  # a call of an actor waits for its actor
        return [task.work for task in self._tasks(messages.task_of_id(task_id, _MOST_TASKS))][-1:]  # the newest attempt

    def _object(self, object_id: str) -> list[Work]:
        return self._task(ray_ids.task_of(object_id))

    def _named(self, name: str) -> list[Work]:
        found = [
            messages.actor(data) for data in _accessor().get_actor_table(None, None) if name in messages.actor_of(data).names
        ]
        found += [group for group in self._groups() if group.name == name]
        found += [task.work for task in self._tasks(messages.tasks_named(name, _MOST_TASKS)) if task.work.kind == TASK]
        return [work for work in found if work.state != ENDED] or found[-1:]

    def _groups(self) -> list[Work]:
        return [messages.group(data) for data in _accessor().get_placement_group_table()]

    def _tasks(self, asked: bytes) -> list[TaskOf]:
        return messages.tasks(self.calls(TASK_EVENTS, asked))


def submissions() -> dict[str, str]:
    """Under which name jobs were submitted to the job server, by job id; those that were not are left out."""
    return {job_id: name for job_id, name in map(messages.submission, _accessor().get_job_table()) if name}


def _running_jobs() -> list[Work]:
    """Jobs whose drivers run: they may have nothing else, and their virtual clusters live as long."""
    return [job for job in map(messages.running_job, _accessor().get_job_table()) if job is not None]


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()
