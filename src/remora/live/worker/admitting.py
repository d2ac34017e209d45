"""Work that its virtual cluster has no room for waits for admission, or is submitted once more (``protocol.admission``).

It waits in ``ray.get``, so that its CPU is free for others meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray

from remora.live.own_waits import quiet
from remora.live.perform import perform
from remora.live.worker.blocking import held_share, marking, who
from remora.protocol.admission_steps import begin_resubmission, end_resubmission, wait_for_admission
from remora.wire.fences import ROOT
from remora.wire.tokens import is_real, reserves_resources

_marked = contextlib.ExitStack()
"""Keeps the marker of this worker, which was told to go elsewhere, until that is over."""


def wait_for_admission_here(
    cluster_id: str | None, dead: list[str], class_id: str | None, fence: dict[type, Callable[[Any], Any]]
) -> bool:
    """Return whether what this process is about to run may start here; if not it has to be submitted once more. ``fence`` are
    the steps that read the node's."""
    worker = ray._private.worker.global_worker
    me = who(worker, cluster_id or ROOT, _amounts(worker, cluster_id))
    in_group = cluster_id is not None and any(map(reserves_resources, worker.core_worker.resource_ids()))
    body = marking(fence)
    _marked.close()
    with contextlib.ExitStack() as closing:
        closing.enter_context(body.closing)
        may_start = perform(wait_for_admission(me, dead, class_id=class_id, in_group=in_group), body, close=False)
        if not may_start:
            _marked.push(closing.pop_all())
    return may_start


@contextlib.contextmanager
def resubmitted(cluster_id: str | None) -> Iterator[None]:
    """While the same call runs somewhere else."""
    worker = ray._private.worker.global_worker
    amounts = _amounts(worker, cluster_id)
    with _marked.pop_all(), quiet():
        if cluster_id is None or not amounts:
            yield
            return
        me, body = who(worker, cluster_id, amounts), marking({})
        with body.closing:
            perform(begin_resubmission(me), body, close=False)
            try:
                yield
            finally:
                perform(end_resubmission(me), body, close=False)


def _amounts(worker: Any, cluster_id: str | None) -> dict[str, float]:
    if cluster_id is not None:
        found = held_share(worker, cpus_only=False)
        return found[1] if found is not None else {}
    held = worker.core_worker.resource_ids()
    return {name: sum(amount for _, amount in parts) for name, parts in held.items() if is_real(name)}
