"""``remora queue`` and ``remora clusters``: who waits for a minimum, and how the cluster is shared."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from remora.cli.connecting import Address, AsJson, Reason, change, look_at, say_which, show_json
from remora.cli.rendering import amounts, console_for, new_table, short
from remora.errors import InvalidInputError


def queue(
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="ID=N", help="Another priority; more goes first.", show_default=False)
    ] = None,
    withdraw: Annotated[
        str | None, typer.Option("--withdraw", metavar="ID", help="Take one out of the queue.", show_default=False)
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    address: Address = None,
) -> None:
    """Show the virtual clusters that wait for their minimum, in the order in which they are served, and why they wait.

    Those with the same parent stand in one queue. Whoever waits for one that is withdrawn hears by whom and why.

    [bold]Examples[/bold]

    remora queue

    remora queue --priority vc3=10

    remora queue --withdraw vc3 --reason 'the cluster is needed for the demo'

    remora queue --json
    """
    changed = _numbered(priority) if priority is not None else None
    api, target = look_at(address) if changed is None and withdraw is None else change(address)
    if changed is not None:
        api.set_priority(*changed, reason=reason)
    if withdraw is not None:
        api.end_cluster(withdraw, queued=True, reason=reason)
    rows = [row for row in api.virtual_clusters() if row["position"]]
    since = _queued_at(api.events()) if rows else {}
    waiting = [_waiting(row, since) for row in sorted(rows, key=lambda row: (row["parent"] or "", row["position"]))]
    if as_json:
        show_json(waiting, target)
        return
    console = console_for()
    say_which(console, target)
    if not waiting:
        console.print("nothing waits for its minimum")
        return
    table = new_table("#", "Cluster", "Job", "Priority", "Asks for", "Since", "Why it waits")
    for row in waiting:
        name = row["cluster_id"] + (f"\nin {row['parent']}" if row["parent"] else "")
        at = (row["since"] or "")[11:19]
        table.add_row(str(row["position"]), name, _job(row), str(row["priority"]), amounts(row["min"]), at, Text(row["reason"]))
    console.print(table)


def clusters(
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the virtual nodes too.")] = False,
    resize: Annotated[
        str | None, typer.Option("--resize", metavar="ID", help="Give one another maximum, with --max.", show_default=False)
    ] = None,
    most: Annotated[
        str | None, typer.Option("--max", metavar="JSON", help="Its new maximum; null takes one away.", show_default=False)
    ] = None,
    close: Annotated[
        str | None, typer.Option("--close", metavar="ID", help="Close one; what runs in it finishes.", show_default=False)
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    address: Address = None,
) -> None:
    """Show the tree of virtual clusters: what each uses, has reserved, has now and may have at most.

    One that has more than its new maximum gives back what is idle at once, and the rest as its work ends.

    [bold]Examples[/bold]

    remora clusters

    remora clusters --nodes

    remora clusters --resize vc1 --max '{"CPU": 8}' --reason 'the night shift is over'

    remora clusters --close vc1

    remora clusters --json
    """
    limits = _limits(resize, most)
    api, target = look_at(address) if resize is None and close is None else change(address)
    if resize is not None:
        api.resize_cluster(resize, limits, reason=reason)
    if close is not None:
        api.end_cluster(close, reason=reason)
    found = api.virtual_clusters()
    if as_json:
        show_json(found, target)
        return
    console = console_for()
    say_which(console, target)
    if not found:
        console.print("there are no virtual clusters")
        return
    table = new_table("Cluster", "State", "Job or node", "Resource", "Used", "Reserved", "Has", "At most")
    for depth, row in _tree(found, None):
        _add(table, depth, row, nodes)
    console.print(table)


def _limits(resize: str | None, most: str | None) -> dict[str, float | None]:
    example = "for example --resize vc1 --max '{\"CPU\": 8}'"
    if (resize is None) != (most is None):
        raise InvalidInputError(f"--resize and --max belong together: which virtual cluster, and how much; {example}")
    if most is None:
        return {}
    try:
        value = json.loads(most)
    except ValueError as error:
        raise InvalidInputError(f"--max {most!r} is not JSON ({error}); {example}") from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"--max {most!r} is not a JSON object; {example}")
    return value


def _numbered(priority: str) -> tuple[str, int]:
    cluster_id, equals, number = priority.partition("=")
    try:
        return cluster_id, int(number)
    except ValueError:
        what = "is not a whole number" if equals else "names no priority"
        raise InvalidInputError(f"--priority {priority!r} {what}; for example --priority vc3=10 (more goes first)") from None


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
                name_cell, kind, f"on {short(vnode['node_id'])}", name, f"{vnode['used'].get(name, 0):g}", "", f"{total:g}"
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
