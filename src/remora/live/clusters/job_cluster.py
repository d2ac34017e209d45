"""The virtual cluster of this job, and the options of ``remora run`` that it comes from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from remora.live.adapter import unpatched
from remora.live.clusters.entering import open_now
from remora.live.clusters.scopes import set_base
from remora.live.link import link
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.calls import CloseCluster, GetClusters
from remora.wire.run_env import RunOptions


@dataclass
class _Job:
    """``cluster_id``: the virtual cluster of this job, which the job ``owner`` has opened: this one, or that of a program
    that started us."""

    options: RunOptions | None = None
    by_hand: bool = False
    job_id: str = ""
    cluster_id: str | None = None
    owner: str = ""


_job = _Job()


def begin_with(options: RunOptions) -> None:
    """Remember what ``remora run`` was told: the environment changes meanwhile."""
    _job.options = options


def is_by_hand() -> bool:
    """Return whether ``remora.init`` is at work just now."""
    return _job.by_hand


def given(**own: Any) -> dict[str, Any]:
    """The arguments of ``remora.init``; those that were not given are those of ``remora run``."""
    options = run_options() or RunOptions()
    return {name: getattr(options, name) if value is None else value for name, value in own.items()}


@contextlib.contextmanager
def by_hand() -> Iterator[None]:
    """``remora.init`` is at work, and attaches by itself."""
    before, _job.by_hand = _job.by_hand, True
    try:
        yield
    finally:
        _job.by_hand = before


def enter(own: VirtualCluster | None, before: Sequence[str | None]) -> None:
    """Put the job into its virtual cluster: its own, or else that of ``remora run``. Asked again it is the same one, and a new
    one of its own replaces it. ``before`` is what the process was in, which a task stays in."""
    job_id = ray.get_runtime_context().get_job_id()
    if unpatched.is_worker() and own is None:
        if before:
            set_base(before[0])
        return
    if _job.job_id != job_id:
        _job.job_id, _job.owner, _job.cluster_id = job_id, job_id, None
    set_base(None)
    options = run_options()
    if own is None and _job.cluster_id is None and options is not None and not _join(options):
        own = options.cluster()
    if own is not None:
        _close()
        _job.owner, _job.cluster_id = job_id, open_now(own, None).cluster_id
    set_base(_job.cluster_id)
    if _job.options is not None:
        joined = (_job.cluster_id, _job.owner) if _job.cluster_id is not None else None
        set_variables(replace(_job.options, joined=joined).environ(os.environ))


def run_options() -> RunOptions | None:
    """Return the options of ``remora run``; None in a program that it did not start."""
    return _job.options or RunOptions.read(os.environ)


def _join(options: RunOptions) -> bool:
    """Whether the program that started this one has a virtual cluster still, and we are in it now."""
    if options.joined is None:
        return False
    cluster_id, owner = options.joined
    if not any((row["cluster_id"], row["job_id"]) == (cluster_id, owner) for row in link.ask(GetClusters())):
        return False
    _job.cluster_id, _job.owner = cluster_id, owner
    return True


def _close() -> None:
    """At once, not one way: what comes instead may need what this one has."""
    closing, _job.cluster_id = _job.cluster_id, None
    if closing is not None and _job.owner == _job.job_id:
        link.ask(CloseCluster(closing, True))


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Set variables of this process's environment; those that are None are taken out."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
