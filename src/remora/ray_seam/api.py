"""``remora.init`` and its siblings."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayTaskError

from remora.errors import InvalidInputError, InvalidLabelError, RemoraError
from remora.model.labels import RESERVED_PREFIX, Labels, parse_label_keys, parse_labels
from remora.model.taints import parse_taints
from remora.ray_seam import hooks
from remora.ray_seam.controller_actor import start_controller
from remora.ray_seam.layer import CONTROLLER, NAMESPACE
from remora.wire.options import Defaults

_log = logging.getLogger("remora")


def init(*args: Any, tolerations: Any = None, label_selector: Any = None, labels: Any = None, **ray_init: Any) -> Any:
    """Connect as ``ray.init`` does, or take an existing connection over, and attach.

    ``tolerations`` and ``label_selector`` hold for everything that this job submits, library code included, unless a
    call says otherwise. ``labels`` are Ray's own argument where ``ray.init`` starts a node.
    """
    # A request that waits for a token looks unfulfillable to Ray, which would say so every few seconds.
    os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0")
    if labels is not None:
        ray_init["labels"] = labels
    defaults = Defaults.parse(label_selector, tolerations)
    context = None
    if not ray.is_initialized() or args or ray_init:
        context = ray.init(*args, **ray_init)
    if context is not None and labels is None and _is_local(args, ray_init):
        _log.warning("label selectors are ignored on a single-node Ray that was started here without labels")
        defaults = Defaults(tolerations=defaults.tolerations, ignores_selectors=True)
    _attach(defaults)
    return context


def attach() -> None:
    """Attach a process that is connected already. Twice is once."""
    if hooks.current() is None:
        _attach(Defaults())


def detach() -> None:
    """This process is as if it had never attached."""
    hooks.uninstall()


def shutdown_controller() -> None:
    """Remove the controller and every token that is not in use from the cluster; detach this process."""
    detach()
    try:
        controller = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
    except ValueError:
        return
    _ask(controller.withdraw.remote())
    ray.kill(controller, no_restart=True)


def label_node(node_id: str, labels: Mapping[str, str | None]) -> None:
    """Set labels of a live node; None takes one away. What waits for such a label starts."""
    drop = parse_label_keys([key for key, value in labels.items() if value is None])
    set_ = parse_labels({key: value for key, value in labels.items() if value is not None})
    reserved = next((key for key in labels if key.startswith(RESERVED_PREFIX)), None)
    if reserved is not None:
        raise InvalidLabelError(f"the label {reserved!r} is set by Ray and can't be changed; for example use 'zone'")
    _command(node_id, "label", set_, drop)


def taint_node(node_id: str, taints: Mapping[str, str]) -> None:
    """When this returns, no task that does not tolerate the taints starts on the node any more; what runs there finishes."""
    _command(node_id, "taint", parse_taints(taints), ())


def untaint_node(node_id: str, keys: Iterable[str]) -> None:
    """Take taints away again, those that the node was started with too; new work may start there at once."""
    _command(node_id, "taint", (), parse_label_keys(keys, of="taint keys"))


def status() -> dict[str, Any]:
    """Nodes with labels, taints and use; what waits, why, and what would help."""
    answer: dict[str, Any] = _ask(start_controller().status.remote())
    return answer


def connect(address: str | None) -> None:
    """Connect a command to the cluster that runs; no cluster is the user's mistake, not ours."""
    try:
        if address is not None:
            # Ray itself tries for minutes.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=3).close()
        ray.init(address or "auto", logging_level="ERROR", log_to_driver=False, namespace=NAMESPACE)
    except (OSError, ValueError):
        where = f"at {address}" if address else "here"
        example = "start one, or give --address, for example 10.0.0.1:6379"
        raise InvalidInputError(f"no Ray cluster answers {where}: {example}") from None


def find_node(node_id: str | None, address: str | None) -> str:
    """A node's whole id, from its beginning or from its address."""
    found: str = _ask(start_controller().find_node.remote(node_id, address))
    return found


def _command(node_id: str, command: str, set_: Labels, drop: tuple[str, ...]) -> None:
    controller = start_controller()
    found = _ask(controller.find_node.remote(node_id, None))
    _ask(getattr(controller, command).remote(found, set_, list(drop)))


def _attach(defaults: Defaults) -> None:
    controller = start_controller()
    installation = hooks.install(defaults)
    plain = installation.layer.default().spec
    if plain is not None:
        _ask(controller.ensure.remote(plain.encode()))


def _ask(reference: Any) -> Any:
    """The controller's answer; its own errors as themselves, not as the failure of a task."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, RemoraError):
            raise error.cause from None
        raise


def _is_local(args: tuple[Any, ...], ray_init: Mapping[str, Any]) -> bool:
    address = args[0] if args else ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return address in (None, "local") and len(ray.nodes()) == 1
