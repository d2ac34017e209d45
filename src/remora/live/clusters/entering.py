"""Virtual clusters as users make them: ``with VirtualCluster(...)``, and what their work takes of them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any, NamedTuple

import ray

from remora.errors import InvalidVirtualClusterError, UnreadableEntryError, VirtualClusterTimeoutError
from remora.live import installed
from remora.live.adapter.kv import Kv
from remora.live.clusters import scopes
from remora.live.clusters.cancelling import Made
from remora.live.clusters.scopes import Scope
from remora.live.perform import Body, perform, perform_async
from remora.model.requests import plain_term
from remora.model.virtual_clusters import VirtualCluster
from remora.protocol.cluster_steps import close_cluster, open_cluster
from remora.protocol.steps import Steps
from remora.wire.calls import CreateCluster, new_ask
from remora.wire.classes import ClassSpec
from remora.wire.keys import CLUSTERS
from remora.wire.taken_shares import resources_selected, selects, taken_part, taken_shares
from remora.wire.timing import SPEC_SECONDS

__all__ = ["Opened", "VirtualClusterTimeoutError", "close", "enter", "enter_async", "leave", "open_now", "shares"]


class Opened(NamedTuple):
    """A virtual cluster that is open: its id, the question that it was made for, the job that it belongs to, and in a ``with``
    who is in it."""

    cluster_id: str
    ask: str
    job_id: str
    scope: Scope | None = None


_open: dict[int, Opened | None] = {}  # by the spec that was entered; None while it is being opened
_lock = threading.Lock()
_specs: dict[str, tuple[float, VirtualCluster, dict[ClassSpec, frozenset[str]]]] = {}


def enter(spec: VirtualCluster) -> None:
    """``with VirtualCluster(...)``: inside, everything is submitted there."""
    with _opening(spec):
        asked, steps = _begin(spec, scopes.current())
        _entered(spec, asked, perform(steps, Body()))


async def enter_async(spec: VirtualCluster) -> None:
    """``async with VirtualCluster(...)``: while it waits the event loop goes on."""
    with _opening(spec):
        asked, steps = _begin(spec, scopes.current())
        _entered(spec, asked, await perform_async(steps, Body()))


def leave(spec: VirtualCluster) -> None:
    """The end of a ``with``: whatever happened to Ray or the controller meanwhile, the user's exception is what comes out."""
    with _lock:
        opened = _open.pop(id(spec), None)
    if opened is None or opened.scope is None:
        return
    scopes.leave(opened.scope)
    try:
        if opened.scope.made is not None:
            opened.scope.made.stop()
    finally:  # the user may interrupt it
        close(opened, unused=not opened.scope.used)


def open_now(spec: VirtualCluster, parent: str | None) -> Opened:
    """Open one that is nobody's ``with``: a job's own. Return it once its minimum is reserved."""
    asked, steps = _begin(spec, parent)
    return Opened(perform(steps, Body()), asked.ask, asked.job_id)


def close(opened: Opened, *, unused: bool) -> None:
    """Give one back. That of a job that is no longer this process's has ended with it."""
    if ray.is_initialized() and ray.get_runtime_context().get_job_id() == opened.job_id:
        perform(close_cluster(opened.ask, unused=unused), Body())


def _begin(spec: VirtualCluster, parent: str | None) -> tuple[CreateCluster, Steps[str]]:
    tolerations = [plain_term(term) for term in _tolerations().terms]
    job_id, worker_id = ray.get_runtime_context().get_job_id(), ray._private.worker.global_worker.worker_id.hex()
    text = json.dumps(spec.to_dict())
    asked = CreateCluster(new_ask(), text, parent, job_id, spec.priority, tolerations, spec.idle_seconds, worker_id)
    return asked, open_cluster(asked, repr(spec), spec.timeout)


@contextlib.contextmanager
def _opening(spec: VirtualCluster) -> Any:
    """One at a time opens it, and nobody while it is open."""
    _tolerations()  # before anything asks Ray, which would connect by itself
    with _lock:
        if id(spec) in _open:
            raise InvalidVirtualClusterError(
                f"{spec!r} is in use already: a VirtualCluster that was entered is one cluster until its `with` ends; make "
                "another VirtualCluster(...) with the same arguments"
            )
        _open[id(spec)] = None
    try:
        yield
    except BaseException:
        with _lock:
            _open.pop(id(spec), None)
        raise


def _entered(spec: VirtualCluster, asked: CreateCluster, cluster_id: str) -> None:
    scope = Scope(cluster_id, Made() if spec.cancel else None)
    with _lock:
        _open[id(spec)] = Opened(cluster_id, asked.ask, asked.job_id, scope)
    scopes.enter(scope)


def _tolerations() -> Any:
    installation = installed.current()
    if installation is None:
        raise InvalidVirtualClusterError("this process is not attached: call remora.init() before `with VirtualCluster(...)`")
    return installation.submitter.defaults.tolerations


# What its work takes


def shares(cluster_id: str, spec: ClassSpec | None, resources: dict[str, float]) -> dict[str, float]:
    """Return the share tokens that work takes: as much as it takes of each resource, and the same of the part it selects."""
    taken = taken_shares(cluster_id, resources)
    if spec is not None and selects(spec):
        taken.update(taken_part(spec, _selected(cluster_id, spec), resources))
    return taken


def _selected(cluster_id: str, spec: ClassSpec) -> frozenset[str]:
    known, selected = _known(cluster_id)
    if spec not in selected:
        selected[spec] = resources_selected(known, spec)
    return selected[spec]


def _known(cluster_id: str) -> tuple[VirtualCluster, dict[ClassSpec, frozenset[str]]]:
    """Its spec, and what was worked out about it; read again sooner than a name is used for another cluster."""
    found = _specs.get(cluster_id)
    now = time.monotonic()
    if found is None or now - found[0] > SPEC_SECONDS:
        found = _specs[cluster_id] = (now, _spec(cluster_id), {})
    return found[1], found[2]


def _spec(cluster_id: str) -> VirtualCluster:
    data = Kv().get(CLUSTERS.key(cluster_id))
    with contextlib.suppress(UnreadableEntryError, KeyError):
        return VirtualCluster.parse(CLUSTERS.read(data)["spec"]) if data else VirtualCluster()
    return VirtualCluster()
