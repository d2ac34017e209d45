"""``remora start``: a ``ray start`` that knows taints, rare resources and the default labels."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True}


def start(
    context: typer.Context,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="K=V,... or JSON", help="Labels of the node.", show_default=False),
    ] = None,
    labels_file: Annotated[
        Path | None,
        typer.Option("--labels-file", metavar="FILE.yaml", help="More labels; --labels wins over it.", show_default=False),
    ] = None,
    taints: Annotated[
        list[str] | None,
        typer.Option("--taints", metavar="JSON or K=V,...", help="Taints of the node.", show_default=False),
    ] = None,
    rare_resources: Annotated[
        list[str] | None,
        typer.Option(
            "--rare-resource-isolation",
            "--rare_resource_isolation",
            metavar="NAME,...",
            help="Keep nodes that have these resources for work that asks for them; with --head.",
            show_default=False,
        ),
    ] = None,
    node_types: Annotated[
        Path | None,
        typer.Option(
            "--node-types",
            metavar="FILE.yaml",
            help="The machines that can be started, where the autoscaler does not say; with --head.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a node of a Ray cluster, with labels and taints.

    Everything else goes to [bold]ray start[/bold] as it stands: --head, --address, --num-cpus, --block and so on.

    The labels ray.io/accelerator-type, ray.io/market-type, ray.io/node-group and ray.io/availability-zone are filled in from
    Kubernetes' labels and from what the cloud says (REMORA_METADATA=off: it is not asked).

    [bold]Examples[/bold]

    remora start --head --rare-resource-isolation gpu

    remora start --head --node-types types.yaml

    remora start --address=10.0.0.1:6379 --num-gpus=1 --taints '{"gpu_node":"true"}' --labels zone=a
    """
    # Not at the top: the other verbs, and --help, need nothing of this.
    from remora.machine.metadata import ask_clouds
    from remora.machine.starting import start_command, start_labels, types_file
    from remora.sim.node_types_file import FILE_VARIABLE

    found = start_labels(
        context.args,
        os.environ,
        partial(ask_clouds, environ=os.environ),
        labels=labels or (),
        labels_file=labels_file,
        taints=taints or (),
        rare_resources=rare_resources or (),
    )
    if node_types is not None:
        os.environ[FILE_VARIABLE] = types_file(context.args, node_types)
        os.environ.setdefault("RAY_enable_autoscaler_v2", "1")  # the one that machines are asked for in the words of
    command = start_command(context.args, found)
    sys.stdout.flush()
    # Not a child: signals, --block and the exit code are then ray start's own.
    os.execv(command[0], command)
