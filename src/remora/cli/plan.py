"""``remora plan``: which machines would be started, for whom, and why some things would get none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from remora.cli.nodes import Address, connected, show_machines
from remora.cli.simulate import Complete, Scenario, console_for, show_table
from remora.errors import InvalidInputError
from remora.model.virtual_clusters import VirtualCluster
from remora.sim.node_types_file import load_node_types
from remora.sim.planned import plan_scenario, planned_headline, planned_tables
from remora.sim.report import Table
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
    address: Address = None,
) -> None:
    """Say which machines would be started, for whom, and why some things would get none.

    For a scenario that is not submitted yet: all that it names, at once, on the nodes that it names. No Ray is started. Without
    one: for all that waits now on the cluster that runs, as its controller has asked for it.

    [bold]Examples[/bold]

    remora plan

    remora plan my-cluster.yaml --node-types types.yaml

    remora plan --node-types cluster.yaml --virtual-cluster '{"flexible_resource_min": {"CPU": 64}}'

    remora plan my-cluster.yaml --json | jq .add
    """
    if scenario is None and virtual_cluster is None:
        if node_types is not None:
            raise InvalidInputError(
                "nothing is named to plan for; for example: remora plan my-cluster.yaml --node-types types.yaml, or "
                'remora plan --node-types types.yaml --virtual-cluster \'{"flexible_resource_min": {"CPU": 64}}\''
            )
        _plan_live(address, as_json)
        return
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


def _plan_live(address: str | None, as_json: bool) -> None:
    """What was asked for and is kept on the cluster that runs, and for whom; and what gets no machine, and why."""
    machines = connected(address).status().get("machines")
    if machines is None:
        raise InvalidInputError(
            "this cluster has no autoscaler, so no machine would be started; without one name a scenario, for example: "
            "remora plan my-cluster.yaml --node-types types.yaml"
        )
    if as_json:
        typer.echo(json.dumps(machines, indent=2))
        return
    console = console_for()
    show_machines(console, machines)
    lacking = [each for each in machines["plan"]["answers"] if each["served"] < each["count"]]
    rows = tuple((each["name"], f"{each['count'] - each['served']:,}", _why(each)) for each in lacking)
    if rows:
        show_table(console, Table("What gets no machine", ("What", "How many", "Why"), rows))


def _why(answer: dict[str, Any]) -> str:
    return "\n".join([answer["reason"], *(f"try: {text}" for text in answer["suggestions"])])
