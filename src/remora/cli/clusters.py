"""``remora queue`` and ``remora clusters``: who waits for a minimum, and how the cluster is shared."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remora.cli.nodes import Address, amounts, connected

_Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def queue(as_json: _Json = False, address: Address = None) -> None:
    """Show the virtual clusters that wait for their minimum, in the order in which they are served, and why they wait.

    Those with the same parent stand in one queue.

    [bold]Examples[/bold]

    remora queue

    remora queue --json
    """
    api = connected(address)
    rows = [row for row in api.virtual_clusters() if row["position"]]
    since = _queued_at(api.events()) if rows else {}
    waiting = [_waiting(row, since) for row in sorted(rows, key=lambda row: (row["parent"] or "", row["position"]))]
    console = Console(highlight=False)
    if as_json:
        console.print_json(json.dumps(waiting))
        return
    if not waiting:
        console.print("nothing waits for its minimum")
        return
    table = Table("#", "Cluster", "Job", "Priority", "Asks for", "Since", "Why it waits", box=box.SIMPLE_HEAD)
    for row in waiting:
        name = row["cluster_id"] + (f"\nin {row['parent']}" if row["parent"] else "")
        at = (row["since"] or "")[11:19]
        table.add_row(str(row["position"]), name, _job(row), str(row["priority"]), amounts(row["min"]), at, Text(row["reason"]))
    console.print(table)


def clusters(
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the virtual nodes too.")] = False,
    as_json: _Json = False,
    address: Address = None,
) -> None:
    """Show the tree of virtual clusters: what each uses, has reserved, has now and may have at most.

    [bold]Examples[/bold]

    remora clusters

    remora clusters --nodes

    remora clusters --json
    """
    found = connected(address).virtual_clusters()
    console = Console(highlight=False)
    if as_json:
        console.print_json(json.dumps(found))
        return
    if not found:
        console.print("there are no virtual clusters")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("Cluster", "State", "Job or node", "Resource", "Used", "Reserved", "Has", "At most"):
        table.add_column(column, justify="right" if column in ("Used", "Reserved", "Has", "At most") else "left")
    for depth, row in _tree(found, None):
        _add(table, depth, row, nodes)
    console.print(table)


def _tree(rows: list[dict[str, Any]], parent: str | None, depth: int = 0) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for row in rows:
        if row["parent"] == parent:
            found += [(depth, row), *_tree(rows, row["cluster_id"], depth + 1)]
    return found


def _add(table: Table, depth: int, row: dict[str, Any], nodes: bool) -> None:
    cells = ["  " * depth + row["cluster_id"], row["state"], _job(row)]
    for name in sorted({*row["min"], *row["total"], *row["max"]}) or [""]:
        shown = [f"{row[kind].get(name, 0):g}" for kind in ("used", "min", "total")] if name else ["", "", ""]
        limit = f"{row['max'][name]:g}" if name in row["max"] else "-"
        table.add_row(*cells, name, *shown, limit)
        cells = ["", "", ""]
    for vnode in row["nodes"] if nodes else ():
        kind = "fixed" if vnode["fixed"] else "flexible"
        for name, total in vnode["total"].items():
            name_cell = "  " * (depth + 1) + vnode["vnode_id"]
            table.add_row(
                name_cell, kind, f"on {vnode['node_id'][:12]}", name, f"{vnode['used'].get(name, 0):g}", "", f"{total:g}"
            )


def _job(row: dict[str, Any]) -> str:
    """As 'remora job' calls it, if it was submitted."""
    return str(row["submission_id"] or row["job_id"])


def _waiting(row: dict[str, Any], since: dict[str, str]) -> dict[str, Any]:
    names = ("position", "cluster_id", "parent", "job_id", "submission_id", "priority", "min", "spec", "reason")
    return {**{name: row[name] for name in names}, "since": since.get(row["cluster_id"])}


def _queued_at(events: list[dict[str, Any]]) -> dict[str, str]:
    """Since when they wait, as far as the journal goes back. Names are used again, so the last entry counts."""
    return {each["subject"]: each["at"] for each in events if each["kind"] == "cluster" and each["text"].startswith("queued")}
