"""``remora simulate``: play a scenario and show who ran where, what waited and why."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from remora.cli.rendering import console_for, new_table
from remora.cli.rendering import show as show_titled
from remora.errors import InvalidInputError, InvalidNodeTypeError

if TYPE_CHECKING:
    from remora.sim.report import Table
    from remora.sim.scenario_run import Progress as Report


def _shipped() -> list[str]:
    from remora.sim.scenario import shipped

    return sorted(shipped())


Scenario = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, or the name of a shipped one.",
        show_default=False,
        autocompletion=_shipped,
    ),
]
Complete = Annotated[bool, typer.Option("--json", help="Print everything as JSON, complete.")]

_NUMBERS = ("From", "To", "At", "Total", "Mean use", "Peak use", "How many", "Started", "Most", "Hours", "Cost")
_LONG_SECONDS = 1.0
_LONG_EVENTS = 5_000


def simulate(
    scenario: Scenario = None,
    as_json: Complete = False,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw use over time into a file.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Use this seed instead of the file's.", show_default=False)
    ] = None,
    node_types: Annotated[
        Path | None,
        typer.Option(
            "--node-types",
            metavar="FILE.yaml",
            help="Start machines of these types, instead of the file's.",
            show_default=False,
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
) -> None:
    """Play a scenario on a virtual clock: who runs where, what waits and why.

    No Ray is started; the decisions are those that steer a live cluster.

    [bold]Examples[/bold]

    remora simulate --list

    remora simulate cats-and-dogs

    remora simulate my-cluster.yaml --plot use.png

    remora simulate my-cluster.yaml --node-types types.yaml

    remora simulate my-cluster.yaml --json | jq .summary
    """
    # Not at the top: the other verbs, and --help, need nothing of the simulator.
    from remora.sim.node_types_file import load_node_types
    from remora.sim.plot import check, plot
    from remora.sim.report import headline, tables, to_dict
    from remora.sim.scenario import load_scenario, with_seed, with_types
    from remora.sim.scenario_run import run_scenario

    if listing:
        _list(as_json)
        return
    if scenario is None:
        raise InvalidInputError("no scenario is named; for example: remora simulate cats-and-dogs, or remora simulate --list")
    loaded = load_scenario(scenario)
    if seed is not None:
        loaded = with_seed(loaded, seed)
    if node_types is not None:
        types = load_node_types(node_types)
        if types.problems:
            raise InvalidNodeTypeError(types.problems[0])
        loaded = with_types(loaded, types)
    if picture is not None:
        check(picture)
    with _progress(loaded.name) as report:
        run = run_scenario(loaded, report)
    if picture is not None:
        plot(run, picture)
    if as_json:
        typer.echo(json.dumps(to_dict(run), indent=2))
        return
    console = console_for()
    console.print(Text(run.scenario, style="bold"))
    if run.description:
        console.print(Text(run.description, style="dim"))
    for line in headline(run):
        console.print(Text(line))
    for table in tables(run):
        show_table(console, table)
    if picture is not None:
        console.print(Text(f"\npicture: {picture}"))


def _list(as_json: bool) -> None:
    from remora.sim.report import Table
    from remora.sim.scenario import parse_scenario, shipped

    found = [parse_scenario(text, name, name) for name, text in shipped().items()]
    if as_json:
        typer.echo(json.dumps([{"name": item.name, "description": item.description} for item in found], indent=2))
        return
    rows = tuple((item.name, item.description) for item in found)
    show_table(console_for(), Table("Shipped scenarios", ("Name", "What it shows"), rows))


def show_table(console: Console, table: Table) -> None:
    """Print a table, and how many of its rows were left out."""
    shown = new_table(*table.columns)
    for index, column in enumerate(shown.columns):
        # The last column takes the folds: names and times stay whole where they can.
        column.justify = "right" if column.header in _NUMBERS else "left"
        column.no_wrap, column.min_width = False, 6 if index == 0 else None
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    show_titled(console, table.title, shown)
    if table.more:
        console.print(Text(f"  ... and {table.more:,} more (all of them: --json)", style="dim"))


@contextmanager
def _progress(name: str) -> Iterator[Report | None]:
    """A bar on stderr, but only for people who would otherwise wonder: at a terminal, and when the run is long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(name, total=None, visible=False)
    began = time.monotonic()

    def report(done: int, total: int) -> None:
        if done < total and (total > _LONG_EVENTS or time.monotonic() - began > _LONG_SECONDS):
            bar.start()
            bar.update(task, completed=done, total=total, visible=True)

    try:
        yield report
    finally:
        bar.stop()
