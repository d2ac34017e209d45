"""``remora status``: the nodes of a live cluster, and what waits."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from remora.cli.connecting import Address, AsJson, look_at, say_which, show_json
from remora.cli.rendering import amounts, console_for, new_table, short, show


def status(as_json: AsJson = False, address: Address = None) -> None:
    """Show the nodes with labels, taints and use, and what waits and why.

    Where virtual clusters have a part of a node: what they have, what of it they use, and what all other work uses.

    [bold]Examples[/bold]

    remora status

    remora status --json
    """
    api, target = look_at(address)
    found = api.status()
    if as_json:
        show_json(found, target)
        return
    console = console_for()
    say_which(console, target)
    show(console, "Nodes", _nodes(found["nodes"]))
    if any(node["virtual_clusters"] for node in found["nodes"]):
        show(console, "Virtual clusters and others", _shares(found["nodes"]))
    if "machines" in found:
        show_machines(console, found["machines"])
    if found.get("spreads"):
        show(console, "What is spread", _spreads(found["spreads"]))
    if found["waiting"]:
        show(console, "What waits", _waiting(found["waiting"]))
    for row in found.get("set_aside", ()):
        console.print(Text(f"set aside: {row['kind']} {row['id']}: {row['error']}"), soft_wrap=True)


def _spreads(rows: list[dict[str, Any]]) -> Table:
    """What is spread over zones or racks, and how evenly it lies."""
    table = new_table("Over", "Of", "Lies in", "Skew")
    for row in rows:
        where = ", ".join(f"{domain}: {count}" for domain, count in row["domains"].items())
        whose = f" in {row['virtual_cluster']}" if row["virtual_cluster"] else ""
        asked = f"at most {row['max_skew']}" + (" if it can be" if row["soft"] else "")
        table.add_row(row["over"], f"{row['of']}{whose}", where, f"{row['skew']} ({asked})")
    return table


def show_machines(console: Console, machines: dict[str, Any]) -> None:
    """Show the types of machines that can be started, and the machines that are kept."""
    table = new_table("Type", "Have", "Asked", "Most", "For")
    for row in machines["types"]:
        asked = f"{row['asked']} ({row['asked_seconds']:.0f} s ago)" if row["asked"] else "0"
        most = "no limit" if row["max_workers"] is None else str(row["max_workers"])
        whom = f"cannot be had now: {row['resting']}" if row["resting"] else row["for"] if row["asked"] else ""
        table.add_row(row["name"], str(row["have"]), asked, most, whom)
    show(console, "Machines", table)
    if machines["source"]:
        console.print(f"node types: from {machines['source']}")
    for each in machines["kept"]:
        console.print(f"{each['node_id'][-12:]} is kept: {each['why']}")
    for problem in machines["problems"]:
        console.print(f"node types: {problem}")


def _nodes(nodes: list[dict[str, Any]]) -> Table:
    table = new_table("Node", "Labels and taints", "Used", whole=("Node", "Used"))
    for node in nodes:
        who = [short(node["node_id"]), node["address"]]
        if node["name"] not in ("", node["address"]):
            who.insert(0, node["name"])
        if node["head"]:
            who[-1] += " (head)"
        used = [f"{node['used'][name]:g}/{total:g} {name}" for name, total in node["total"].items()]
        table.add_row("\n".join(who), _marks(node), "\n".join(used))
    return table


def _marks(node: dict[str, Any]) -> Text:
    """Return one label a line, the taints after them: a table of 80 columns has no room for more beside each other."""
    marks = [Text(f"{key}={value}") for key, value in node["labels"].items()]
    marks += [Text.assemble(("taint ", "bold red"), f"{key}={value}") for key, value in node["taints"].items()]
    return Text("\n").join(marks)


def _waiting(rows: list[dict[str, Any]]) -> Table:
    table = new_table("Count", "Asks for", "Why it waits")
    for row in rows:
        asks = " | ".join(amounts(each) for each in row["resources"])
        help_ = "".join(f"\n- {each}" for each in row["suggestions"])
        what = f"{row['kind']}\n{asks}\n{row['wants']}".strip()
        table.add_row(str(row["count"]), Text(what), Text(row["reason"] + help_))
    return table


def _shares(nodes: list[dict[str, Any]]) -> Table:
    """Return what virtual clusters have of each node, next to what work in none of them uses."""
    table = new_table("Node", "Resource", "Total", "They have", "They use", "Others use")
    for node in nodes:
        for name in sorted({*node["virtual_clusters"], *node["outside"]}):
            part = node["virtual_clusters"].get(name, {"has": 0.0, "used": 0.0})
            shown = (node["total"][name], part["has"], part["used"], node["outside"].get(name, 0.0))
            table.add_row(short(node["node_id"]), name, *(f"{amount:g}" for amount in shown))
    return table
