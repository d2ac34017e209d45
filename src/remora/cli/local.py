"""``remora up`` and ``remora down``: a Ray of several nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from remora.cli.connecting import AsJson
from remora.cli.serve import is_installed
from remora.machine.state import AUTH_MODE


def up(
    nodes: Annotated[
        Path | None,
        typer.Option("--nodes", metavar="FILE.yaml", help="The nodes; by default four small ones.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a Ray of several nodes on this machine and wait until all are alive.

    The file lists nodes as scenario files do; the first is the head:

    nodes: [{name: head, resources: {CPU: 1}}, {name: gpu, count: 2, resources: {CPU: 1, GPU: 1}, taints: {gpu_node: "true"}}]

    [bold]Examples[/bold]

    remora up

    remora up --nodes my-nodes.yaml
    """
    # Not at the top: the other verbs, and --help, need nothing of this.
    from remora.machine import local_ray
    from remora.machine.nodes_file import load_nodes

    wanted = load_nodes(nodes)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    cluster, ids = local_ray.up(wanted, os.environ, _alive, _tell, _page if is_installed() else None)
    if as_json:
        rows = [
            {
                "name": node.name,
                "node_id": ids[node.name],
                "pid": started.session.leader.pid,
                "log": started.log,
                "resources": dict(node.resources),
                "labels": dict(node.labels),
            }
            for node, started in zip(wanted, cluster.nodes, strict=True)
        ]
        typer.echo(
            json.dumps(
                {
                    "address": cluster.address,
                    "auth_mode": cluster.auth,
                    "dashboard": local_ray.has_dashboard(),
                    "page": cluster.dashboard.name if cluster.dashboard is not None else None,
                    "nodes": rows,
                },
                indent=2,
            )
        )
        return
    page = ""
    if cluster.dashboard is not None:
        token = ", with Ray's token" if cluster.auth == "token" else ""
        page = f"\nIts page is at {cluster.dashboard.name}{token}"
    auth = f" {AUTH_MODE}={cluster.auth}" if cluster.auth else ""
    # Each line that looks like a command is one, and nothing else: it is pasted as it stands.
    typer.echo(
        f"Ray runs at {cluster.address} with {len(ids)} nodes. For programs of your own:\n"
        f"  export RAY_ADDRESS={cluster.address}{auth}\n"
        "The commands of remora find it by themselves:\n"
        "  remora run -- python job.py\n"
        + ("  remora job submit -- python job.py\n" if local_ray.has_dashboard() else "")
        + f"  remora down{page}"
    )


def down(as_json: AsJson = False) -> None:
    """Stop what 'remora up' started, and nothing else."""
    from remora.machine import local_ray

    cluster = local_ray.down(os.environ, _tell)
    stopped = [] if cluster is None else [node.name for node in cluster.nodes]
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo(f"stopped {len(stopped)} nodes" if stopped else "nothing runs that 'remora up' started")


def _page(bound: int, address: str) -> list[str]:
    return [sys.executable, "-m", "remora", "dashboard", "--fd", str(bound), "--address", address]


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _end(number: int, frame: FrameType | None) -> None:
    # As an exception, so that what was started is stopped.
    raise SystemExit(128 + number)


def _alive(address: str) -> Mapping[str, str]:
    from remora.machine import local_ray

    os.environ.update(local_ray.auth_mode(os.environ))
    from remora.live.adapter.local_nodes import living_nodes

    return living_nodes(address)
