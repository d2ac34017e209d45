"""``remora run``: a program that uses Ray, attached and in a virtual cluster, as it stands."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from remora.errors import InvalidInputError, InvalidSelectorError, InvalidTaintError, InvalidVirtualClusterError
from remora.machine.addresses import ADDRESS, Target, find_target, named_target, running_rays
from remora.machine.state import AUTH_MODE, auth_at
from remora.machine.written import labels_of
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.run_env import RunOptions

COMMAND_FOLLOWS = {"allow_interspersed_args": False}
"""Whatever comes after the first word that is no option is the command's own."""

_EXAMPLE = '\'{"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 8}}\''

Cluster = Annotated[
    str | None,
    typer.Option("--virtual-cluster", metavar="JSON|FILE", help="The virtual cluster to run in.", show_default=False),
]
Priority = Annotated[
    int | None, typer.Option("--priority", metavar="N", help="Its place in the queue: more goes first.", show_default=False)
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the minimum.", min=0, show_default=False),
]
Tolerated = Annotated[
    str | None,
    typer.Option("--tolerations", metavar="JSON", help="Taints that its work tolerates.", show_default=False),
]
Selector = Annotated[
    str | None,
    typer.Option("--label-selector", metavar="JSON", help="Labels of the nodes that its work runs on.", show_default=False),
]
WorkLabels = Annotated[
    list[str] | None,
    typer.Option("--labels", metavar="K=V,... or JSON", help="Labels of its work, for affinity.", show_default=False),
]


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGS]", help="What to run.")],
    virtual_cluster: Cluster = None,
    priority: Priority = None,
    timeout: Timeout = None,
    tolerations: Tolerated = None,
    label_selector: Selector = None,
    labels: WorkLabels = None,
    address: Annotated[
        str | None, typer.Option("--address", help="The cluster, where the program names none.", show_default=False)
    ] = None,
) -> None:
    """Run a program that uses Ray, attached: its code need not know Remora.

    It waits in [bold]ray.init[/bold] until the minimum of its virtual cluster is reserved and says what it waits for; Ctrl-C
    and --timeout give its place in the queue back. A program that calls remora.init(...) itself has the last word.

    [bold]Examples[/bold]

    remora run -- python job.py --epochs 3

    remora run --virtual-cluster '{"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 8}}' -- python job.py

    remora run --virtual-cluster gang.json --priority 10 --timeout 600 -- python job.py
    """
    options = run_options(virtual_cluster, priority, timeout, tolerations, label_selector, labels)
    program = shutil.which(command[0])
    if program is None:
        raise InvalidInputError(f"the command {command[0]!r} is not there; for example remora run -- python job.py")
    target = _target(address)
    typer.echo(
        f"remora: {target.line}" if target is not None else "remora: no Ray runs here; the program starts its own", err=True
    )
    environ = {**os.environ, **_connection(target), **options.environ(os.environ)}
    sys.stdout.flush()
    # Not a child: signals, the terminal and the exit code are the program's own.
    os.execve(program, command, environ)


def run_options(
    virtual_cluster: str | None,
    priority: int | None,
    timeout: float | None,
    tolerations: str | None,
    label_selector: str | None,
    labels: list[str] | None,
) -> RunOptions:
    """What was typed, checked as far as it can be without a cluster."""
    options = RunOptions(
        virtual_cluster=None if virtual_cluster is None else _cluster(virtual_cluster),
        priority=priority,
        timeout=timeout,
        tolerations=json_object("--tolerations", tolerations, '{"gpu_node": "exists()"}', InvalidTaintError),
        label_selector=json_object("--label-selector", label_selector, '{"zone": "in(a,b)"}', InvalidSelectorError),
        labels=labels_of(labels) if labels else None,
    )
    options.check()
    return options


def _cluster(text: str) -> dict[str, Any]:
    """JSON, or the name of a file that holds it."""
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InvalidVirtualClusterError(
                f"--virtual-cluster {text!r} is neither JSON nor a file that can be read ({error}); for example {_EXAMPLE}"
            ) from None
    return VirtualCluster.parse(text).to_dict()


def json_object(
    option: str, text: str | None, example: str, error: type[InvalidInputError] = InvalidInputError
) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as flaw:
        raise error(f"{option} {text!r} is not JSON ({flaw}); for example {option} '{example}'") from None
    if not isinstance(value, dict):
        raise error(f"{option} {text!r} is not a JSON object; for example {option} '{example}'")
    return value


def _target(address: str | None) -> Target | None:
    """Return the Ray that a plain ``ray.init()`` of the program connects to; None where it would start one. A wrong address is
    said now: Ray would try for minutes."""
    named = named_target(address, os.environ)
    if named is None and not running_rays():
        return None
    return find_target(address, os.environ, changes=True)


def _connection(target: Target | None) -> dict[str, str]:
    """Return the variables by which Ray connects there, and proves to be a user there."""
    if target is None:
        return {}
    auth = auth_at(target.address, os.environ)
    return {ADDRESS: target.address} | ({AUTH_MODE: auth} if auth and AUTH_MODE not in os.environ else {})
