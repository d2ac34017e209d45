"""How Ray's ids contain each other, in hexadecimal digits: an object's begins with the id of the task that made it, a task's
ends with that of its actor, and an actor's with that of its job."""

from __future__ import annotations

from ray import ActorID, JobID, ObjectRef, PlacementGroupID, TaskID

JOB, ACTOR, GROUP, TASK, OBJECT = (2 * kind.size() for kind in (JobID, ActorID, PlacementGroupID, TaskID, ObjectRef))

_NO_ACTOR = "f" * (ACTOR - JOB)


def task_of(object_id: str) -> str:
    return object_id[:TASK]


def actor_of(task_id: str) -> str | None:
    """The actor that it is a call of; None for a task, and for what a driver does."""
    actor_id = task_id[TASK - ACTOR :]
    return None if actor_id.startswith(_NO_ACTOR) else actor_id


def is_of_job(task_id: str, job_id: str) -> bool:
    return task_id.endswith(job_id)


def is_driver(worker_id: str, job_id: str) -> bool:
    """Whether it is the id of a job's driver as a worker."""
    return worker_id == job_id + "f" * (len(worker_id) - len(job_id))


def is_id(text: str) -> bool:
    return bool(text) and all(letter in "0123456789abcdefABCDEF" for letter in text)
