"""``remora plan``: which machines would be started, for whom, and why some things would get none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from remora.cli.connecting import Address, look_at, say_which, show_json
from remora.cli.nodes import show_machines
from remora.cli.rendering import console_for
from remora.cli.simulate import Complete, Scenario, show_table
from remora.errors import InvalidInputError
from remora.model.labels import Labels, parse_workload_labels
from remora.model.requests import parse_request
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.asks import Ask

Tasks = tuple[dict[str, Any], int]

_TASK = '{"resources": {"GPU": 1}, "tolerations": {"gpu_node": "exists()"}, "count": 8}'
_TASK_KEYS = ("resources", "labels", "label_selector", "fallback_strategy", "tolerations", "count")
_MOST_TASKS = 100_000


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
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="JSON", help="Also plan for tasks: their options, and count.", show_default=False),
    ] = None,
    as_json: Complete = False,
    address: Address = None,
) -> None:
    """Say which machines would be started, for whom, and why some things would get none.

    For all that waits now on the cluster that runs, as its controller has asked for it; with [bold]--virtual-cluster[/bold] or
    [bold]--task[/bold] for that beside it, though it is not submitted yet. With a scenario or [bold]--node-types[/bold] no
    Ray is asked: for all that the scenario names, at once, on the nodes that it names.

    [bold]Examples[/bold]

    remora plan

    remora plan --virtual-cluster '{"flexible_resource_min": {"CPU": 64}}'

    remora plan --task '{"resources": {"GPU": 1}, "tolerations": {"gpu_node": "exists()"}, "count": 8}'

    remora plan my-cluster.yaml --node-types types.yaml

    remora plan my-cluster.yaml --json | jq .add
    """
    spec = VirtualCluster.parse(virtual_cluster) if virtual_cluster is not None else None
    work = [_read_task(text) for text in task or ()]
    if scenario is None and node_types is None:
        if spec is None and not work:
            _plan_live(address, as_json)
        else:
            _plan_beside(address, spec, work, as_json)
        return
    if scenario is None and spec is None and not work:
        raise InvalidInputError(
            "nothing is named to plan for; for example: remora plan my-cluster.yaml --node-types types.yaml, or "
            'remora plan --node-types types.yaml --virtual-cluster \'{"flexible_resource_min": {"CPU": 64}}\''
        )
    # Not at the top: the other verbs, and --help, need nothing of the simulator.
    from remora.sim.node_types_file import load_node_types
    from remora.sim.planned import plan_scenario, planned_headline, planned_tables
    from remora.sim.scenario import load_scenario, parse_scenario, with_types

    loaded = load_scenario(scenario) if scenario is not None else parse_scenario("{}", name="this")
    if node_types is not None:
        loaded = with_types(loaded, load_node_types(node_types))
    planned = plan_scenario(loaded, spec, work)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=2))
        return
    console = console_for()
    console.print(Text(planned_headline(planned), style="bold"))
    for table in planned_tables(planned):
        show_table(console, table)


def _plan_beside(address: str | None, spec: VirtualCluster | None, work: list[Tasks], as_json: bool) -> None:
    """What the cluster that runs would start for something that is not submitted yet."""
    asks = [
        (
            Ask(parse_request("task", **{key: value for key, value in options.items() if key != "labels"}), _labels(options)),
            count,
        )
        for options, count in work
    ]
    api, target = look_at(address)
    found = api.plan_for(spec, asks)
    if as_json:
        show_json(found, target)
        return
    from remora.sim.report import Table

    console = console_for()
    say_which(console, target)
    rows = tuple((each["name"], "\n".join([each["words"], *_tries(each)])) for each in found["asked"])
    show_table(console, Table("What would be started", ("For", "What"), rows))


def _read_task(text: str) -> Tasks:
    """Return the options of equal tasks, and how many there are."""
    try:
        options = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"--task {text!r} is not JSON ({error}); for example --task '{_TASK}'") from None
    if not isinstance(options, dict):
        raise InvalidInputError(f"--task {text!r} is not a JSON object; for example --task '{_TASK}'")
    unknown = next((key for key in options if key not in _TASK_KEYS), None)
    if unknown is not None:
        raise InvalidInputError(
            f"--task: a task has no {unknown!r} here: it has {', '.join(_TASK_KEYS)}; for example '{_TASK}'"
        )
    count = options.pop("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_TASKS:
        raise InvalidInputError(
            f"--task: count is {count!r}: it is a whole number from 1 to {_MOST_TASKS:,}; for example '{_TASK}'"
        )
    options.setdefault("resources", {"CPU": 1})
    parse_request("task", **{key: value for key, value in options.items() if key != "labels"})
    _labels(options)
    return options, count


def _labels(options: Mapping[str, Any]) -> Labels:
    return parse_workload_labels(options.get("labels"))


def _plan_live(address: str | None, as_json: bool) -> None:
    """What was asked for and is kept on the cluster that runs, and for whom; and what gets no machine, and why."""
    api, target = look_at(address)
    machines = api.status().get("machines")
    if machines is None:
        raise InvalidInputError(
            f"the {target.line} has no autoscaler, so no machine would be started; without one name a scenario, for example: "
            "remora plan my-cluster.yaml --node-types types.yaml"
        )
    if as_json:
        show_json(machines, target)
        return
    console = console_for()
    say_which(console, target)
    show_machines(console, machines)
    lacking = [each for each in machines["plan"]["answers"] if each["served"] < each["count"]]
    rows = tuple((each["name"], f"{each['count'] - each['served']:,}", _why(each)) for each in lacking)
    if rows:
        from remora.sim.report import Table

        show_table(console, Table("What gets no machine", ("What", "How many", "Why"), rows))


def _why(answer: dict[str, Any]) -> str:
    return "\n".join([answer["reason"], *_tries(answer)])


def _tries(answer: dict[str, Any]) -> list[str]:
    return [f"try: {text}" for text in answer["suggestions"]]
