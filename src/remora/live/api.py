"""``remora.init`` and its siblings."""

from __future__ import annotations

import getpass
import inspect
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from msgspec.structs import replace as replace_struct
from ray import ObjectRef
from ray._raylet import BaseID
from ray.actor import ActorHandle
from ray.util.placement_group import PlacementGroup

from remora.errors import InvalidInputError, UnknownNameError
from remora.live import installed, names
from remora.live.adapter import unpatched
from remora.live.adapter.local_nodes import follow_auth
from remora.live.adapter.tables import submissions
from remora.live.adapter.tokens_of_users import is_right_token as is_right_token
from remora.live.adapter.tokens_of_users import is_token_needed as is_token_needed
from remora.live.attach import install
from remora.live.clusters import job_cluster
from remora.live.clusters.scopes import base
from remora.live.host.controller_actor import start_controller
from remora.live.link import NAMESPACE, link
from remora.live.submit import waiting_groups
from remora.live.submit.labelled_objects import objects
from remora.machine.addresses import check_address, no_cluster, reach
from remora.model.close_names import close_name, did_you_mean
from remora.model.labels import parse_workload_labels
from remora.model.selectors import LabelSelector
from remora.model.taints import rare_resources
from remora.model.virtual_clusters import VirtualCluster
from remora.protocol import changes
from remora.wire.answers import Event, Status, VirtualClusterStatus
from remora.wire.asks import Ask, encode_ask
from remora.wire.calls import (
    By,
    Call,
    EnsureClass,
    Explain,
    FindNode,
    GetClusters,
    GetEvents,
    GetStatus,
    PlanFor,
    PutObject,
    Withdraw,
    new_ask,
)
from remora.wire.rewrite import Defaults

_log = logging.getLogger("remora")

_REPORTED_SECONDS = 4.0
_REACH_SECONDS = 3.0
_NEW_SECONDS = 1.0
_GIVEN_BACK_SECONDS = 5.0


def init(
    *args: Any,
    tolerations: Any = None,
    label_selector: Any = None,
    labels: Any = None,
    virtual_cluster: Any = None,
    spread: Any = None,
    **ray_init: Any,
) -> Any:
    """Connect as ``ray.init`` does, or take an existing connection over, and attach.

    ``tolerations``, ``label_selector`` and ``labels`` hold for everything that this job submits, library code included,
    unless a call says otherwise. Where this call starts a Ray of its own, ``labels`` are those of its node, as in ``ray.init``.
    ``spread`` is a ``spread(...)``, or the label of nodes to spread over: it holds for actors that say nothing themselves about
    where they go, among those of the same class. ``virtual_cluster`` is a ``VirtualCluster``, a mapping or JSON:
    the whole job runs in it, once its minimum is reserved.
    """
    _check_names(ray_init)
    spec = VirtualCluster.parse(virtual_cluster) if virtual_cluster is not None else None
    defaults = Defaults.parse(
        **job_cluster.given(label_selector=label_selector, tolerations=tolerations, labels=labels), spread=spread
    )
    context, started = None, False
    _refuse_client(args, ray_init)
    if not ray.is_initialized() or args or ray_init:
        address = args[0] if args else ray_init.get("address")
        _reach_soon(address or os.environ.get("RAY_ADDRESS"))
        follow_auth(address)
        with job_cluster.by_hand():
            context, started = _connect(args, ray_init, labels)
    if started:
        defaults = replace(defaults, labels=())
    if started and labels is None:
        _log.warning("label selectors are ignored on a single-node Ray that was started here without labels")
        defaults = replace(defaults, label_selector=LabelSelector(), ignores_selectors=True)
    inside = tuple(base)
    _attach(defaults)
    job_cluster.enter(spec, inside)
    return context


def _refuse_client(args: tuple[Any, ...], ray_init: Mapping[str, Any]) -> None:
    address = args[0] if args else ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    is_new = bool(args or ray_init) or not ray.is_initialized()
    is_clients = ray.is_initialized() and not ray._private.worker.global_worker.connected
    if is_clients or (is_new and isinstance(address, str) and address.startswith("ray://")):
        raise InvalidInputError(
            f"a program of Ray Client ({address or 'ray://...'}) can't be attached: run it on a machine of the cluster with "
            "the address of its GCS, for example remora.init(address='10.0.0.1:6379'), or submit it with 'remora job submit'"
        )


def _reach_soon(address: Any) -> None:
    """Say within seconds that nobody answers at an address: Ray itself tries for minutes."""
    host, _, port = str(address or "").rpartition(":")
    if not host or "://" in host or not port.isdigit():
        return None  # "auto", "local", or a way to a cluster that somebody else knows
    until = time.monotonic() + _REACH_SECONDS
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
        except (OSError, OverflowError) as error:  # noqa: PERF203 - it is a loop because of this
            if time.monotonic() > until:
                raise ConnectionError(
                    f"no Ray cluster answers at {address} ({error}): is it the address of its GCS, for example 10.0.0.1:6379? "
                    "`ray status --address` asks the same"
                ) from None
            time.sleep(0.2)


def _connect(args: tuple[Any, ...], ray_init: dict[str, Any], labels: Any) -> tuple[Any, bool]:
    """Ray's own context, and whether this call started the cluster."""
    if labels is not None:
        try:
            return ray.init(*args, labels=labels, **ray_init), True
        except ValueError as error:
            if "labels must not be provided" not in str(error):
                raise
    context = ray.init(*args, **ray_init)
    return context, ray._private.worker._global_node.is_head() and _is_local(args, ray_init)


def _check_names(given: Mapping[str, Any]) -> None:
    """Raise for an argument that nobody knows and that looks like one that there is; Ray refuses the others itself."""
    known = [*inspect.signature(init).parameters, *inspect.signature(ray.init).parameters]
    for name in given:
        if name not in known and not name.startswith("_") and close_name(name, known) is not None:
            raise InvalidInputError(f"remora.init has no argument {name!r}{did_you_mean(name, known)}")


def attach() -> None:
    """Attach a process that is connected already. Twice is once."""
    if installed.current() is None:
        _refuse_client((), {})
        _attach(Defaults())


def detach() -> None:
    """This process is as if it had never attached."""
    install.uninstall()


def shutdown_controller() -> None:
    """Remove the controller and every token from the cluster; detach this process.

    What is still running keeps the token that it holds until it ends; if something does, a warning says on which nodes.
    """
    detach()
    controller = link.find(anew=True)
    if controller is None:
        return
    until = time.monotonic() + _GIVEN_BACK_SECONDS
    left = link.ask(Withdraw())
    while left and time.monotonic() < until:  # workers give their leases back a moment after their last task
        time.sleep(0.1)
        left = link.ask(Withdraw())
    ray.kill(controller, no_restart=True)
    if left:
        _log.warning("tokens stay on %s until what holds them ends", ", ".join(node_id[:12] for node_id in left))


def label_node(node_id: str, labels: Mapping[str, str | None], *, reason: str = "") -> None:
    """Set labels of a live node; None takes one away. What waits for such a label starts. ``taint.remora.io/KEY`` is the taint
    ``KEY``, as where a node is started with it. ``reason`` goes into the journal."""
    call = changes.label_node(node_id, labels, new_ask(), _by(reason))
    ask(replace_struct(call, node_id=find_node(node_id)))


def taint_node(node_id: str, taints: Mapping[str, str], *, reason: str = "") -> None:
    """When this returns, no task that does not tolerate the taints starts on the node any more; what runs there finishes."""
    call = changes.taint_node(node_id, taints, new_ask(), _by(reason))
    ask(replace_struct(call, node_id=find_node(node_id)))


def untaint_node(node_id: str, keys: Iterable[str] | Mapping[str, str], *, reason: str = "") -> None:
    """Take taints away again, those that the node was started with too; new work may start there at once. A mapping takes
    them away only if they have these values."""
    call = changes.untaint_node(node_id, keys, new_ask(), _by(reason))
    ask(replace_struct(call, node_id=find_node(node_id)))


def change_marks(node_id: str, what: str, set_: Mapping[str, str], drop: Mapping[str, str | None], *, reason: str = "") -> None:
    """Set and take away ``labels`` or ``taints`` of a node in one: all of it, or nothing. What has a value is taken away only
    if it has that value."""
    ask(changes.mark_node(node_id, what, set_, drop, new_ask(), _by(reason)))


def preview_node(
    node_id: str, *, labels: Mapping[str, str | None] | None = None, taints: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """What would start if a node had other labels and taints, and what stays as it is; None takes one away. Changes nothing."""
    call = changes.preview_node(node_id, labels or {}, taints or {})
    found: dict[str, Any] = ask(replace_struct(call, node_id=find_node(node_id)))
    return found


def resize_cluster(cluster_id: str, most: Mapping[str, float | None], *, reason: str = "") -> dict[str, Any]:
    """Give a virtual cluster other maxima of these resources; None takes one away. Of what it has above a lower one it gives
    back what is idle at once, and the rest as its work ends: until then nothing new starts in it. Return how it is."""
    found: dict[str, Any] = ask(changes.resize_cluster(cluster_id, most, new_ask(), _by(reason)))
    return found


def set_priority(cluster_id: str, priority: int, *, reason: str = "") -> dict[str, Any]:
    """Give a virtual cluster that waits for its minimum another priority: more goes first. Return how it is."""
    found: dict[str, Any] = ask(changes.set_priority(cluster_id, priority, new_ask(), _by(reason)))
    return found


def end_cluster(cluster_id: str, *, queued: bool = False, reason: str = "") -> None:
    """Close somebody's virtual cluster: its minimum is given back, what runs in it finishes. With ``queued`` only one that
    still waits for its minimum; whoever waits for it hears why."""
    ask(changes.end_cluster(cluster_id, new_ask(), _by(reason), queued=queued))


def ask(call: Call) -> Any:
    """Ask the controller something, whatever it is: the calls are in ``remora.wire.calls``."""
    return link.ask(call)


def put(value: Any, *, labels: Mapping[str, str] | None = None) -> Any:
    """As ``ray.put``; ``object_affinity`` finds the node where an object with such labels lies, as long as anybody
    refers to it."""
    parsed = parse_workload_labels(labels)
    reference = ray.put(value)
    if parsed:
        start_controller()
        context, object_id = ray.get_runtime_context(), reference.hex()
        link.ask(PutObject(object_id, parsed, context.get_node_id(), context.namespace, context.get_job_id()))
        objects.add(object_id, context.get_job_id())
    return reference


def status() -> Status:
    """Return the nodes with labels, taints and use; and what waits, why, and what would help."""
    answer: Status = link.ask(GetStatus())
    return answer


def plan_for(spec: VirtualCluster | None, work: Iterable[tuple[Ask, int]] = ()) -> dict[str, Any]:
    """Which machines would be started for what is not submitted yet, beside all that waits."""
    asks = [(encode_ask(ask), count) for ask, count in work]
    text, priority = (json.dumps(spec.to_dict()), spec.priority) if spec is not None else ("", 0)
    found: dict[str, Any] = link.ask(PlanFor(text, priority, asks))
    return found


def virtual_clusters() -> list[VirtualClusterStatus]:
    """Return every virtual cluster, parents first, with what it has, uses and may have; those that wait too."""
    found: list[VirtualClusterStatus] = link.ask(GetClusters())
    names = submissions()
    for row in found:
        row["submission_id"] = names.get(row["job_id"])
    return found


@dataclass(frozen=True)
class Why:
    """One task, actor or placement group: its ``state``, where it is, or the ``reason`` why it is nowhere yet and the
    ``suggestions`` of what would help. ``refusals`` counts the nodes by what refuses it."""

    kind: str
    id: str
    name: str
    state: str
    nodes: tuple[str, ...]
    reason: str
    suggestions: tuple[str, ...]
    refusals: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        return self.reason


def explain(what: Any) -> Why:
    """Why something waits, or where it is: an ObjectRef, an actor handle, a placement group, or an id or name of one."""
    found = explain_all(_id_of(what))
    if not found:
        raise UnknownNameError(f"no task, actor, placement group or job has the id or name {_id_of(what)!r}")
    row = found[0]
    return Why(
        kind=row["kind"],
        id=row["id"],
        name=row["name"],
        state=row["state"],
        nodes=tuple(row["nodes"]),
        reason=row["reason"],
        suggestions=tuple(row["suggestions"]),
        refusals=tuple(row["refusals"]),
    )


def explain_all(id_or_name: str) -> list[dict[str, Any]]:
    """As ``explain``, for everything that has the name, or that a job has not finished."""
    if not isinstance(id_or_name, str) or not id_or_name.strip():
        raise InvalidInputError(f"{id_or_name!r} is neither an id nor a name; for example the id of an actor, or its name")
    waits = waiting_groups.find(id_or_name) if ray.is_initialized() else None
    if waits is not None:
        return [waiting_groups.explained(waits)]
    began = time.monotonic()
    while True:
        found: list[dict[str, Any]] = link.ask(Explain(id_or_name))
        # Tasks are reported about a second after they were submitted, and every new actor waits a moment for its arguments.
        new = any(row["detail"] == "DEPENDENCIES_UNREADY" for row in found)
        if time.monotonic() - began > (_NEW_SECONDS if new else 0.0 if found else _REPORTED_SECONDS):
            return found
        time.sleep(0.05 if new else 0.25)


def events(since: int = 0) -> list[Event]:
    """Return what happened lately, after the entry with this number, oldest first."""
    found: list[Event] = link.ask(GetEvents(since))
    return found


def _id_of(what: Any) -> str:
    if isinstance(what, str):
        return what
    if isinstance(what, ObjectRef):
        return str(what.hex())
    if isinstance(what, PlacementGroup):
        return str(what.id.hex())
    if isinstance(what, ActorHandle):
        return str(what._actor_id.hex())
    if isinstance(what, BaseID):
        return str(what.hex())
    raise InvalidInputError(
        f"{what!r} can't be explained: give an ObjectRef, an actor handle, a placement group, or an id or name of one"
    )


def connect(address: str | None) -> None:
    """Connect a command to the cluster that runs; no cluster is the user's mistake, not ours."""
    if address is not None:
        check_address(address)
        reach(address)
    follow_auth(address)
    try:
        with job_cluster.by_hand():  # a command is no part of a program, though it may be typed in one's shell
            ray.init(address or "auto", logging_level="ERROR", log_to_driver=False, namespace=NAMESPACE)
    except (OSError, ValueError):
        raise no_cluster(address) from None


def find_controller() -> None:
    """Start the controller of this cluster if there is none."""
    start_controller()


def find_node(node_id: str | None, address: str | None = None, word: str | None = None) -> str:
    """A node's whole id, from its beginning or from its address; or from a word that is any of them, or its name."""
    start_controller()
    found: str = link.ask(FindNode(node_id, address, word))
    return found


def _by(reason: str) -> By:
    """This user, program and machine."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        who = str(os.getuid())
    return changes.said_by(who, Path(sys.argv[0]).name if sys.argv else "", socket.gethostname(), reason)


def _attach(defaults: Defaults) -> None:
    names.probe()  # before anything is started in the cluster
    start_controller()
    head: Mapping[str, str] = next(
        (node["Labels"] for node in unpatched.nodes() if "node:__internal_head__" in node["Resources"]), {}
    )
    installation = install.install(replace(defaults, rare=rare_resources(head)))
    plain = installation.submitter.plain.spec
    if plain is not None:
        link.ask(EnsureClass(plain.encode()))


def _is_local(args: tuple[Any, ...], ray_init: Mapping[str, Any]) -> bool:
    address = args[0] if args else ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return address in (None, "local") and len(unpatched.nodes()) == 1
