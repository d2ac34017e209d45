"""In a program that ``remora run`` started: it is attached when it connects, though its code knows nothing of Remora.

``ray.init``, called by hand or by itself, asks a hook for changes of the runtime environment. Ours changes nothing, and leaves
a function among those that Ray calls once it is connected: before the program can submit anything. Workers are not concerned:
they have none of these variables and get the layer with the functions.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray._private import worker

from remora.errors import InvalidInputError, RemoraError
from remora.model.virtual_clusters import VirtualCluster
from remora.ray_seam.clusters import VirtualClusterTimeoutError, open_cluster
from remora.ray_seam.layer import CONTROLLER, NAMESPACE
from remora.ray_seam.within import set_base
from remora.wire.running import RunOptions

_OFF = ("0", "false")
_INTERRUPTED = 128 + signal.SIGINT


@dataclass
class _Run:
    """``cluster_id``: the virtual cluster of this job, which the job ``owner`` has opened: this one, or that of a program
    that started us."""

    options: RunOptions | None = None
    by_hand: bool = False
    job_id: str = ""
    cluster_id: str | None = None
    owner: str = ""


_run = _Run()


def on_init(runtime_env: Any) -> Any:
    """What ``ray.init`` calls before it connects. Whatever else it would have called is called from here."""
    from ray._common.utils import load_class
    from ray._private.runtime_env import uv_runtime_env_hook

    options = _run.options = _options() or RunOptions()
    if _attach not in worker._post_init_hooks:
        worker._post_init_hooks.append(_attach)
    if not ray.is_initialized():
        _set(options.outside())  # not for the workers of a Ray that is started here
    if (options.uv or "1").lower() not in _OFF and uv_runtime_env_hook._get_uv_run_cmdline():
        return uv_runtime_env_hook.hook(runtime_env)
    return load_class(options.hook)(runtime_env) if options.hook else runtime_env


def given(**own: Any) -> dict[str, Any]:
    """The arguments of ``remora.init``; those that were not given are those of ``remora run``."""
    options = _options() or RunOptions()
    return {name: getattr(options, name) if value is None else value for name, value in own.items()}


@contextlib.contextmanager
def by_hand() -> Iterator[None]:
    """``remora.init`` is at work, and attaches by itself."""
    before, _run.by_hand = _run.by_hand, True
    try:
        yield
    finally:
        _run.by_hand = before


def enter(own: VirtualCluster | None, before: Sequence[str | None]) -> None:
    """Put the job into its virtual cluster: its own, or else that of ``remora run``. Asked again it is the same one, and a new
    one of its own replaces it. ``before`` is what the process was in, which a task stays in."""
    job_id = ray.get_runtime_context().get_job_id()
    if worker.global_worker.mode == ray.WORKER_MODE and own is None:
        if before:
            set_base(before[0])
        return
    if _run.job_id != job_id:
        _run.job_id, _run.owner, _run.cluster_id = job_id, job_id, None
    set_base(None)
    options = _options()
    if own is None and _run.cluster_id is None and options is not None and not _join(options):
        own = options.cluster()
    if own is not None:
        _close()
        _run.owner, _run.cluster_id = job_id, open_cluster(own, None)
    set_base(_run.cluster_id)
    if _run.options is not None:
        joined = (_run.cluster_id, _run.owner) if _run.cluster_id is not None else None
        _set(replace(_run.options, joined=joined).environ(os.environ))


def _attach() -> None:
    """What ``ray.init`` calls when it is connected."""
    if _run.by_hand:
        return
    from remora.ray_seam import api

    try:
        api.init()
    except BaseException as error:
        ray.shutdown()  # or the program could go on outside of its virtual cluster
        if isinstance(error, (RemoraError, VirtualClusterTimeoutError)):
            sys.stderr.write(f"remora: {' '.join(str(error).split())}\n")
            raise SystemExit(2 if isinstance(error, InvalidInputError) else 1) from None
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.write("remora: interrupted before the program was attached; it waits in no queue any more\n")
            raise SystemExit(_INTERRUPTED) from None
        raise


def _options() -> RunOptions | None:
    return _run.options or RunOptions.read(os.environ)


def _join(options: RunOptions) -> bool:
    """Whether the program that started this one has a virtual cluster still, and we are in it now."""
    if options.joined is None:
        return False
    from remora.ray_seam import api

    cluster_id, owner = options.joined
    if not any((row["cluster_id"], row["job_id"]) == (cluster_id, owner) for row in api.virtual_clusters()):
        return False
    _run.cluster_id, _run.owner = cluster_id, owner
    return True


def _close() -> None:
    """At once, not one way: what comes instead may need what this one has."""
    closing, _run.cluster_id = _run.cluster_id, None
    if closing is not None and _run.owner == _run.job_id:
        ray.get(ray.get_actor(CONTROLLER, namespace=NAMESPACE).close_cluster.remote(closing, True))


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
