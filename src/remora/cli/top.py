"""``remora top``: nodes, shares of virtual clusters and what waits, looked at again every second."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remora.cli.connecting import Address, look_at, show_json
from remora.cli.rendering import amounts, console_for, new_table, short
from remora.machine.addresses import Target

_BAR = 10

Found = dict[str, list[dict[str, Any]]]


def top(
    once: Annotated[bool, typer.Option("--once", help="Look once, print it and end, as without a terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once and print everything as JSON.")] = False,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.", min=0.2)] = 1.0,
    address: Address = None,
) -> None:
    """Watch the cluster: how full the nodes are, the shares of virtual clusters, and what waits. q or Ctrl-C ends it.

    [bold]Examples[/bold]

    remora top

    remora top --once

    remora top --json | jq '.waiting[].reason'
    """
    api, target = look_at(address)
    console = console_for()
    if as_json:
        show_json(_look(api), target)
    elif once or not (console.is_terminal and sys.stdin.isatty()):
        console.print(view(_look(api), target))
    else:
        _watch(api, target, console, every)


def view(found: Found, target: Target) -> Group:
    """Return what was found, as tables that fit 80 columns."""
    parts: list[Table | Text] = [Text(target.line, style="dim"), *_titled("Nodes", _nodes(found["nodes"]))]
    if found["virtual_clusters"]:
        parts += _titled("Virtual clusters", _shares(found["virtual_clusters"]))
    queued = [(1, f"virtual cluster {row['cluster_id']}", row) for row in found["virtual_clusters"] if row["position"]]
    work = [(row["count"], f"{row['kind']}: {_asks(row)}", row) for row in found["waiting"]]
    parts += _titled("What waits", _waiting([*queued, *work])) if queued or work else [Text("\nNothing waits.")]
    return Group(*parts)


def _look(api: Any) -> Found:
    return {**api.status(), "virtual_clusters": api.virtual_clusters()}


def _watch(api: Any, target: Target, console: Console, every: float) -> None:
    end = Text(" q ends it", style="dim")
    with keys(sys.stdin.fileno()) as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            live.update(Group(view(_look(api), target), end), refresh=True)
            while pressed(every) != "q":
                live.update(Group(view(_look(api), target), end), refresh=True)
        except KeyboardInterrupt:
            return


@contextmanager
def keys(terminal: int) -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key, and answers with it or with nothing."""
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(terminal)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _nodes(rows: list[dict[str, Any]]) -> Table:
    table = new_table("Node", "Resource", "", "Used", "Total", "Taints")
    for row in rows:
        cells = [(row["name"] or short(row["node_id"])) + (" *" if row["head"] else ""), ", ".join(row["taints"])]
        for name, total in row["total"].items() or [("", 0.0)]:
            used = row["used"].get(name, 0.0)
            table.add_row(cells[0], name, _bar(used, total), f"{used:g}", f"{total:g}", cells[1])
            cells = ["", ""]
    return table


def _shares(rows: list[dict[str, Any]]) -> Table:
    table = new_table("Cluster", "Resource", "", "Used", "Has", "At most", "State")
    for row in rows:
        cells = [row["cluster_id"] + (f" in {row['parent']}" if row["parent"] else ""), row["state"]]
        for name in sorted({*row["min"], *row["total"], *row["max"]}) or [""]:
            used, has = row["used"].get(name, 0.0), row["total"].get(name, 0.0)
            limit = f"{row['max'][name]:g}" if name in row["max"] else "-"
            table.add_row(cells[0], name, _bar(used, has), f"{used:g}", f"{has:g}", limit, cells[1])
            cells = ["", ""]
    return table


def _waiting(rows: list[tuple[int, str, dict[str, Any]]]) -> Table:
    table = new_table("Count", "What", "Why it waits")
    for count, what, row in rows:
        table.add_row(str(count), what, Text(row["reason"]))
    return table


def _asks(row: dict[str, Any]) -> str:
    asked = " | ".join(amounts(each) for each in row["resources"])
    return f"{asked}, {row['wants']}" if row["wants"] else asked


def _titled(title: str, table: Table) -> list[Table | Text]:
    return [Text(f"\n{title}", style="bold"), table]


def _bar(part: float, whole: float) -> Text:
    full = round(_BAR * min(part / whole, 1.0)) if whole else 0
    style = "red" if whole and part >= whole else "green"
    return Text.assemble(("█" * full, style), ("░" * (_BAR - full), "dim"))
