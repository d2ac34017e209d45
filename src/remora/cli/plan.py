"""``remora plan``: which machines would be started, for whom, and why some things would get none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from remora.cli.simulate import Complete, Scenario, console_for, show_table
from remora.errors import InvalidInputError
from remora.model.virtual_clusters import VirtualCluster
from remora.sim.node_types_file import load_node_types
from remora.sim.planned import plan_scenario, planned_headline, planned_tables
from remora.sim.scenario import load_scenario, parse_scenario, with_types


def plan(
    scenario: Scenario = None,
    node_types: Annotated[
        Path | None,
        typer.Option(
            "--node-types", metavar="FILE.yaml", help="The machines that can be started, or a ray up file.", show_default=False
        ),
    ] = None,
    virtual_cluster: Annotated[
        str | None,
        typer.Option("--virtual-cluster", metavar="JSON", help="Also plan for this virtual cluster.", show_default=False),
    ] = None,
    as_json: Complete = False,
) -> None:
    """Say which machines would be started, for whom, and why some things would get none.

    For a scenario that is not submitted yet: all that it names, at once, on the nodes that it names. No Ray is started.

    [bold]Examples[/bold]

    remora plan my-cluster.yaml --node-types types.yaml

    remora plan --node-types cluster.yaml --virtual-cluster '{"flexible_resource_min": {"CPU": 64}}'

    remora plan my-cluster.yaml --json | jq .add
    """
    if scenario is None and virtual_cluster is None:
        raise InvalidInputError(
            "nothing is named to plan for; for example: remora plan my-cluster.yaml --node-types types.yaml, or "
            'remora plan --node-types types.yaml --virtual-cluster \'{"flexible_resource_min": {"CPU": 64}}\''
        )
    loaded = load_scenario(scenario) if scenario is not None else parse_scenario("{}", name="this")
    if node_types is not None:
        loaded = with_types(loaded, load_node_types(node_types))
    spec = VirtualCluster.parse(virtual_cluster) if virtual_cluster is not None else None
    planned = plan_scenario(loaded, spec)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=2))
        return
    console = console_for()
    console.print(Text(planned_headline(planned), style="bold"))
    for table in planned_tables(planned):
        show_table(console, table)
