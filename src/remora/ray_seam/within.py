"""Which virtual cluster the running task belongs to: all that a worker has to know before it submits anything itself."""

from __future__ import annotations

CLUSTER = "__remora_cluster__"
"""A hidden argument: the virtual cluster that a task runs in."""

base: list[str | None] = []
"""What this process is in when it has entered nothing: the driver's job, or the task that runs. Empty when nobody has said."""


def set_base(cluster_id: str | None) -> None:
    base[:] = [cluster_id]
