"""What Ray's messages say, in our own words. With ``node_messages`` the one module that looks into them.

``names.MESSAGES`` lists every field that is read or set here. So that a test can tell which, every message in a function has
its type written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ray import ActorID
from ray.core.generated.common_pb2 import Bundle, ErrorType, PlacementGroupSpec, PlacementStrategy, TaskStatus, TaskType
from ray.core.generated.gcs_pb2 import (
    ActorTableData,
    JobTableData,
    PlacementGroupStats,
    PlacementGroupTableData,
    TaskEvents,
    WorkerDeltaData,
    WorkerTableData,
)
from ray.core.generated.gcs_service_pb2 import (
    CreatePlacementGroupReply,
    CreatePlacementGroupRequest,
    FilterPredicate,
    GetTaskEventsReply,
    GetTaskEventsRequest,
    KillActorViaGcsRequest,
    RemovePlacementGroupRequest,
)
from ray.core.generated.pubsub_pb2 import ChannelType, PubMessage

from remora.port.contract import ACTOR, CANCELLED, ENDED, GROUP, JOB, RUNNING, TASK, WAITING, WORKER, Work

LIVING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING")
"""Ray's words for the states of an actor that has not ended."""

_SUBMISSION = "job_submission_id"

_ENDED_TASKS = (TaskStatus.FINISHED, TaskStatus.FAILED)
_STARTED_TASKS = (TaskStatus.SUBMITTED_TO_WORKER, TaskStatus.RUNNING, *_ENDED_TASKS)

_HOPELESS = (PlacementGroupStats.INFEASIBLE, PlacementGroupStats.REMOVED)
_TRIED = (PlacementGroupStats.NO_RESOURCES, PlacementGroupStats.FAILED_TO_COMMIT_RESOURCES)


# ------------------------------------------------------------------------------------------------------------- actors


def actor(data: bytes) -> Work:
    return _actor(ActorTableData.FromString(data), "")


def _actor(data: ActorTableData, actor_id: str) -> Work:
    """What the feed tells has no id, labels or resources: only what changes."""
    state = ActorTableData.ActorState.Name(data.state)
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
        restarts=data.num_restarts,
    )


class ActorOf(NamedTuple):
    """An actor, by its id, that of its worker, its names and its labels."""

    actor_id: str
    worker_id: str
    names: tuple[str, str]
    labels: dict[str, str]


def actor_of(data: bytes) -> ActorOf:
    found: ActorTableData = ActorTableData.FromString(data)
    names = found.name, found.class_name
    return ActorOf(found.actor_id.hex(), found.address.worker_id.hex(), names, dict(found.labels))


def is_alive(data: bytes) -> bool:
    """Whether an actor is, or will be again."""
    found: ActorTableData = ActorTableData.FromString(data)
    return bool(found.state != ActorTableData.DEAD)


def is_detached(data: bytes) -> bool:
    """Whether an actor outlives its job."""
    found: ActorTableData = ActorTableData.FromString(data)
    return bool(found.is_detached)


def kill_actor(actor_id: str) -> bytes:
    """The question that ends the process of an actor as a failure would."""
    asked = KillActorViaGcsRequest(actor_id=bytes.fromhex(actor_id), force_kill=True, no_restart=False)
    data: bytes = asked.SerializeToString()
    return data


# --------------------------------------------------------------------------------------------------- placement groups


def group(data: bytes) -> Work:
    found: PlacementGroupTableData = PlacementGroupTableData.FromString(data)
    state = PlacementGroupTableData.PlacementGroupState.Name(found.state)
    kinds = {"CREATED": RUNNING, "REMOVED": ENDED}
    return Work(
        kind=GROUP,
        work_id=found.placement_group_id.hex(),
        name=found.name,
        job_id=found.creator_job_id.hex(),
        state=kinds.get(state, WAITING),
        detail=state,
        shapes=tuple(dict(bundle.unit_resources) for bundle in found.bundles),
        node_ids=_ids(bundle.node_id for bundle in found.bundles),
        strategy=PlacementStrategy.Name(found.strategy),
        namespace=found.ray_namespace,
    )


class Outcome(Enum):
    """What came of a placement group so far."""

    CREATED = "created"
    WAITING = "waiting"  # GCS has tried, in vain, and may succeed later
    HOPELESS = "hopeless"
    UNTRIED = "untried"


def outcome(data: bytes) -> Outcome:
    found: PlacementGroupTableData = PlacementGroupTableData.FromString(data)
    if found.state == PlacementGroupTableData.CREATED:
        return Outcome.CREATED
    if found.stats.scheduling_state in _HOPELESS:
        return Outcome.HOPELESS
    return Outcome.WAITING if found.stats.scheduling_state in _TRIED else Outcome.UNTRIED


class GroupSpec(NamedTuple):
    """A placement group that is to be created; ids in hexadecimal digits, empty where there is none."""

    group_id: str
    name: str
    strategy: str
    job_id: str
    actor_id: str
    actor_detached: bool
    detached: bool
    soft_target: str
    topology: dict[str, str]
    bundles: list[dict[str, float]]


def create_group(asked: GroupSpec) -> bytes:
    """The question that creates it, as Ray's core worker would send it."""
    group_id, no_actor = bytes.fromhex(asked.group_id), ActorID.nil().binary()
    spec = PlacementGroupSpec(
        placement_group_id=group_id,
        name=asked.name,
        strategy=PlacementStrategy.Value(asked.strategy),
        creator_job_id=bytes.fromhex(asked.job_id),
        creator_job_dead=asked.actor_detached,
        creator_actor_id=bytes.fromhex(asked.actor_id) if asked.actor_id else no_actor,
        creator_actor_dead=not asked.actor_id,
        is_detached=asked.detached,
        soft_target_node_id=bytes.fromhex(asked.soft_target),
    )
    for key, value in asked.topology.items():  # older releases have none, and nobody asks them for it
        spec.topology_strategy[key] = PlacementStrategy.Value(value)
    for index, bundle in enumerate(asked.bundles):
        place = Bundle.BundleIdentifier(placement_group_id=group_id, bundle_index=index)
        spec.bundles.add(bundle_id=place, unit_resources={name: amount for name, amount in bundle.items() if amount})
    data: bytes = CreatePlacementGroupRequest(placement_group_spec=spec).SerializeToString()
    return data


def refusal(reply: bytes) -> str:
    """Why a group was not created; empty if it was."""
    found: CreatePlacementGroupReply = CreatePlacementGroupReply.FromString(reply)
    return str(found.status.message) if found.status.code else ""


def remove_group(group_id: str) -> bytes:
    data: bytes = RemovePlacementGroupRequest(placement_group_id=bytes.fromhex(group_id)).SerializeToString()
    return data


# -------------------------------------------------------------------------------------------------------------- tasks


def tasks_of_job(job_id: str, most: int) -> bytes:
    """The question for the tasks of a job, without what its driver does."""
    filters = GetTaskEventsRequest.Filters(exclude_driver=True)
    filters.job_filters.add(predicate=FilterPredicate.EQUAL, job_id=bytes.fromhex(job_id))
    return _asked(filters, most)


def task_of_id(task_id: str, most: int) -> bytes:
    filters = GetTaskEventsRequest.Filters()
    filters.task_filters.add(predicate=FilterPredicate.EQUAL, task_id=bytes.fromhex(task_id))
    return _asked(filters, most)


def tasks_named(name: str, most: int) -> bytes:
    filters = GetTaskEventsRequest.Filters(exclude_driver=True)
    filters.task_name_filters.add(predicate=FilterPredicate.EQUAL, task_name=name)
    return _asked(filters, most)


def _asked(filters: GetTaskEventsRequest.Filters, most: int) -> bytes:
    data: bytes = GetTaskEventsRequest(limit=most, filters=filters).SerializeToString()
    return data


class TaskOf(NamedTuple):
    """An attempt of a task: its id, the worker that runs it and the placement group that it is in, and what it asks for."""

    task_id: str
    worker_id: str
    group_id: str
    resources: dict[str, float]
    work: Work


def tasks(reply: bytes) -> list[TaskOf]:
    """Every attempt is an entry of its own, oldest first."""
    found: GetTaskEventsReply = GetTaskEventsReply.FromString(reply)
    ordered = sorted(found.events_by_task, key=_attempt)
    return [_task(event) for event in ordered if event.HasField("task_info")]


def _attempt(event: TaskEvents) -> tuple[bytes, int]:
    return event.task_id, event.attempt_number


def _task(event: TaskEvents) -> TaskOf:
    info, updates = event.task_info, event.state_updates
    reached = updates.state_ts_ns
    newest = max(reached, key=lambda status: (reached[status], status), default=TaskStatus.NIL)
    ended = next((status for status in _ENDED_TASKS if status in reached), None)
    started = any(status in reached for status in _STARTED_TASKS)
    error = updates.error_info.error_message if ended == TaskStatus.FAILED else ""
    cancelled = ended == TaskStatus.FAILED and updates.error_info.error_type == ErrorType.TASK_CANCELLED
    detail = CANCELLED if cancelled else TaskStatus.Name(newest if ended is None else ended)
    work = Work(
        kind=TASK if info.type == TaskType.NORMAL_TASK else "call",
        work_id=event.task_id.hex(),
        name=info.name or info.func_or_class_name,
        job_id=event.job_id.hex(),
        state=ENDED if ended is not None else RUNNING if started else WAITING,
        detail=f"{detail}: {error.strip().splitlines()[-1]}" if error.strip() and not cancelled else detail,
        shapes=(dict(info.required_resources),),
        node_ids=_ids([updates.node_id]),
    )
    group_id, worker_id = info.placement_group_id.hex(), updates.worker_id.hex()
    return TaskOf(event.task_id.hex(), worker_id, group_id, dict(info.required_resources), work)


# ----------------------------------------------------------------------------------------------------- jobs, processes


def running_job(data: bytes) -> Work | None:
    """A job whose driver runs."""
    found: JobTableData = JobTableData.FromString(data)
    job_id = found.job_id.hex()
    return None if found.is_dead else Work(JOB, job_id, "", job_id, RUNNING, "RUNNING", ())


def is_dead(job: JobTableData) -> bool:
    return bool(job.is_dead)


def submission(data: bytes) -> tuple[str, str]:
    """The id of a job, and the name under which it was submitted to the job server; empty where it was not."""
    found: JobTableData = JobTableData.FromString(data)
    return found.job_id.hex(), found.config.metadata.get(_SUBMISSION, "")


def has_ended(data: bytes) -> bool:
    """Whether a worker has, of which GCS knows."""
    found: WorkerTableData = WorkerTableData.FromString(data)
    return bool(data) and not found.is_alive


CHANNELS = (
    ChannelType.GCS_NODE_INFO_CHANNEL,
    ChannelType.GCS_ACTOR_CHANNEL,
    ChannelType.GCS_JOB_CHANNEL,
    ChannelType.GCS_WORKER_DELTA_CHANNEL,
)
"""What GCS publishes of nodes, actors, jobs and worker processes."""


def told(message: PubMessage) -> Work | None:
    """The actor, job or worker that a feed tells of; None where it is something else, or nothing of it matters."""
    kind = message.WhichOneof("inner_message")
    if kind == "actor_message":
        return _actor(message.actor_message, message.key_id.hex())
    if kind == "worker_delta_message":
        return _ended_worker(message.worker_delta_message)
    if kind == "job_message":
        return _ended_job(message.job_message, message.key_id.hex())
    return None


def _ended_worker(message: WorkerDeltaData) -> Work:
    """It is sent only when one has ended."""
    return Work(WORKER, message.worker_id.hex(), "", "", ENDED, "DEAD", (), (message.node_id.hex(),))


def _ended_job(message: JobTableData, key: str) -> Work | None:
    return Work(JOB, key, "", key, ENDED, "DEAD", ()) if message.is_dead else None


def _ids(found: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.hex() for each in found if each))
