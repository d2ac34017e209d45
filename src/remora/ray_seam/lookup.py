"""Find a task, an actor, a placement group or the work of a job in GCS, by id or by name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray import ActorID, JobID, PlacementGroupID, WorkerID
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from remora.seam.port import ACTOR, ENDED, GROUP, JOB, RUNNING, TASK, WAITING, Work

_JOB, _ACTOR, _GROUP, _TASK, _OBJECT = 8, 32, 36, 48, 56
_SUBMISSION = "job_submission_id"
_NO_ACTOR = "f" * 24
_MOST_TASKS = 10_000
_TIMEOUT_SECONDS = 10
_LOOK_SECONDS = 0.002

_LIVING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING")
_ENDED_TASKS = (common_pb2.FINISHED, common_pb2.FAILED)
_STARTED_TASKS = (common_pb2.SUBMITTED_TO_WORKER, common_pb2.RUNNING, *_ENDED_TASKS)

_HOPELESS = (gcs_pb2.PlacementGroupStats.INFEASIBLE, gcs_pb2.PlacementGroupStats.REMOVED)
_REFUSED = (
    *_HOPELESS,
    gcs_pb2.PlacementGroupStats.NO_RESOURCES,
    gcs_pb2.PlacementGroupStats.FAILED_TO_COMMIT_RESOURCES,
)


class Lookup:
    """Reads GCS's tables when somebody asks; nothing is kept."""

    def __init__(self, gcs_address: str) -> None:
        self._address = gcs_address
        self._tasks: Any = None

    def find(self, text: str) -> list[Work]:
        if _is_hex(text):
            by_size = {_JOB: self._job, _ACTOR: self._actor, _GROUP: self._group, _TASK: self._task, _OBJECT: self._object}
            found = by_size[len(text)](text.lower()) if len(text) in by_size else []
            if found:
                return found
        return self._named(text)

    def living(self) -> list[Work]:
        """Every actor and every job."""
        # GCS remembers very many that are dead: each living state is asked for by itself.
        table = [data for state in _LIVING for data in _accessor().get_actor_table(None, state)]
        return [*_running_jobs(), *(actor_from(gcs_pb2.ActorTableData.FromString(data)) for data in table)]

    def has_ended(self, worker_id: str) -> bool:
        """A raylet tells GCS that a worker has ended before it gives away what the worker held."""
        data = _accessor().get_worker_info(WorkerID(bytes.fromhex(worker_id)))
        return bool(data) and not gcs_pb2.WorkerTableData.FromString(data).is_alive

    def is_created(self, group_id: PlacementGroupID, timeout: float, *, patient: bool = False) -> bool:
        """Whether a placement group got what it asks for; as soon as GCS has tried, or where one is ``patient`` and it may
        succeed in the end, as soon as it has."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            data = _accessor().get_placement_group_info(group_id)
            if not data:
                return False
            group = gcs_pb2.PlacementGroupTableData.FromString(data)
            if group.state == gcs_pb2.PlacementGroupTableData.CREATED:
                return True
            if group.stats.scheduling_state in (_HOPELESS if patient else _REFUSED):
                return False
            time.sleep(_LOOK_SECONDS)
        return False

    def restart(self, actor_id: str) -> None:
        from ray._private.gcs_utils import create_gcs_channel
        from ray.core.generated import gcs_service_pb2_grpc

        stub = gcs_service_pb2_grpc.ActorInfoGcsServiceStub(create_gcs_channel(self._address))
        request = gcs_service_pb2.KillActorViaGcsRequest(actor_id=bytes.fromhex(actor_id), force_kill=True, no_restart=False)
        stub.KillActorViaGcs(request, timeout=_TIMEOUT_SECONDS)

    def actors_of(self, job_id: str) -> list[Any]:
        """GCS's own entries of the actors of a job, dead ones too."""
        table = _accessor().get_actor_table(JobID.from_hex(job_id), None)
        return [gcs_pb2.ActorTableData.FromString(data) for data in table]

    def tasks_of(self, job_id: str) -> list[Any]:
        """GCS's own entries of the tasks of a job, an entry an attempt."""
        filters = gcs_service_pb2.GetTaskEventsRequest.Filters(exclude_driver=True)
        filters.job_filters.add(predicate=gcs_service_pb2.EQUAL, job_id=bytes.fromhex(job_id))
        return self._events(filters)

    def groups_of(self, job_id: str) -> list[Work]:
        return [group for group in self._groups() if group.job_id == job_id]

    def _job(self, job_id: str) -> list[Work]:
        actors = map(actor_from, self.actors_of(job_id))
        groups = self.groups_of(job_id)
        tasks = [task for task in map(_task, self.tasks_of(job_id)) if task.kind == TASK]
        running = [job for job in _running_jobs() if job.job_id == job_id]
        return [*running, *(work for work in (*actors, *groups, *tasks) if work.state != ENDED)]

    def _actor(self, actor_id: str) -> list[Work]:
        data = _accessor().get_actor_info(ActorID.from_hex(actor_id))
        return [actor_from(gcs_pb2.ActorTableData.FromString(data))] if data else []

    def _group(self, group_id: str) -> list[Work]:
        data = _accessor().get_placement_group_info(PlacementGroupID(bytes.fromhex(group_id)))
        return [_group(gcs_pb2.PlacementGroupTableData.FromString(data))] if data else []

    def _task(self, task_id: str) -> list[Work]:
        if not task_id[16:].startswith(_NO_ACTOR):
            return self._actor(task_id[16:])  # a call of an actor waits for its actor
        filters = gcs_service_pb2.GetTaskEventsRequest.Filters()
        filters.task_filters.add(predicate=gcs_service_pb2.EQUAL, task_id=bytes.fromhex(task_id))
        return self._task_events(filters)[-1:]  # the newest attempt

    def _object(self, object_id: str) -> list[Work]:
        return self._task(object_id[:_TASK])

    def _named(self, name: str) -> list[Work]:
        actors = (gcs_pb2.ActorTableData.FromString(data) for data in _accessor().get_actor_table(None, None))
        found = [actor_from(data) for data in actors if name in (data.name, data.class_name)]
        found += [group for group in self._groups() if group.name == name]
        filters = gcs_service_pb2.GetTaskEventsRequest.Filters(exclude_driver=True)
        filters.task_name_filters.add(predicate=gcs_service_pb2.EQUAL, task_name=name)
        found += [task for task in self._task_events(filters) if task.kind == TASK]
        return [work for work in found if work.state != ENDED] or found[-1:]

    def _groups(self) -> list[Work]:
        return [_group(gcs_pb2.PlacementGroupTableData.FromString(data)) for data in _accessor().get_placement_group_table()]

    def _task_events(self, filters: Any) -> list[Work]:
        return [_task(event) for event in self._events(filters)]

    def _events(self, filters: Any) -> list[Any]:
        """Every attempt is an entry of its own, oldest first."""
        if self._tasks is None:
            from ray._private.gcs_utils import create_gcs_channel
            from ray.core.generated import gcs_service_pb2_grpc

            self._tasks = gcs_service_pb2_grpc.TaskInfoGcsServiceStub(create_gcs_channel(self._address))
        request = gcs_service_pb2.GetTaskEventsRequest(limit=_MOST_TASKS, filters=filters)
        events = self._tasks.GetTaskEvents(request, timeout=_TIMEOUT_SECONDS).events_by_task
        ordered = sorted(events, key=lambda event: (event.task_id, event.attempt_number))
        return [event for event in ordered if event.HasField("task_info")]


def submissions() -> dict[str, str]:
    """Under which name jobs were submitted to the job server, by job id; those that were not are left out."""
    named = ((job.job_id.hex(), job.config.metadata.get(_SUBMISSION, "")) for job in _jobs())
    return {job_id: name for job_id, name in named if name}


def _running_jobs() -> list[Work]:
    """Jobs whose drivers run: they may have nothing else, and their virtual clusters live as long."""
    ids = [job.job_id.hex() for job in _jobs() if not job.is_dead]
    return [Work(JOB, job_id, "", job_id, RUNNING, "RUNNING", ()) for job_id in ids]


def _jobs() -> list[Any]:
    return [gcs_pb2.JobTableData.FromString(data) for data in _accessor().get_job_table()]


def actor_from(data: Any, actor_id: str = "") -> Work:
    """What the feed tells has no id, labels or resources: only what changes."""
    state = gcs_pb2.ActorTableData.ActorState.Name(data.state)
    kinds = {"ALIVE": RUNNING, "DEAD": ENDED}
    detail = state
    if state == "DEAD" and (cause := data.death_cause.WhichOneof("context")):
        detail = f"DEAD: {getattr(getattr(data.death_cause, cause), 'error_message', '') or cause}"
    return Work(
        kind=ACTOR,
        work_id=actor_id or data.actor_id.hex(),
        name=data.name or data.class_name,
        job_id=data.job_id.hex(),
        state=kinds.get(state, WAITING),
        detail=detail,
        shapes=(dict(data.required_resources),),
        node_ids=_ids([data.node_id or data.address.node_id]) if state == "ALIVE" else (),
        namespace=data.ray_namespace,
        labels=dict(data.labels),
    )


def _group(data: Any) -> Work:
    state = gcs_pb2.PlacementGroupTableData.PlacementGroupState.Name(data.state)
    kinds = {"CREATED": RUNNING, "REMOVED": ENDED}
    return Work(
        kind=GROUP,
        work_id=data.placement_group_id.hex(),
        name=data.name,
        job_id=data.creator_job_id.hex(),
        state=kinds.get(state, WAITING),
        detail=state,
        shapes=tuple(dict(bundle.unit_resources) for bundle in data.bundles),
        node_ids=_ids(bundle.node_id for bundle in data.bundles),
        strategy=common_pb2.PlacementStrategy.Name(data.strategy),
        namespace=data.ray_namespace,
    )


def _task(event: Any) -> Work:
    info, reached = event.task_info, event.state_updates.state_ts_ns
    newest = max(reached, key=lambda status: (reached[status], status), default=common_pb2.NIL)
    ended = next((status for status in _ENDED_TASKS if status in reached), None)
    started = any(status in reached for status in _STARTED_TASKS)
    error = event.state_updates.error_info.error_message if ended == common_pb2.FAILED else ""
    detail = common_pb2.TaskStatus.Name(newest if ended is None else ended)
    return Work(
        kind=TASK if info.type == common_pb2.NORMAL_TASK else "call",
        work_id=event.task_id.hex(),
        name=info.name or info.func_or_class_name,
        job_id=event.job_id.hex(),
        state=ENDED if ended is not None else RUNNING if started else WAITING,
        detail=f"{detail}: {error.strip().splitlines()[-1]}" if error.strip() else detail,
        shapes=(dict(info.required_resources),),
        node_ids=_ids([event.state_updates.node_id]),
    )


def _ids(found: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.hex() for each in found if each))


def _is_hex(text: str) -> bool:
    return bool(text) and all(letter in "0123456789abcdefABCDEF" for letter in text)


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()


Shape = Mapping[str, float]
