"""``remora taint``, ``remora label`` and ``remora status``: what is said about the nodes of a live cluster."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Column, Table

from remora.errors import InvalidInputError, InvalidLabelError, InvalidTaintError
from remora.machine.state import running_address
from remora.model.labels import parse_label_keys, parse_labels
from remora.model.taints import parse_taints

_NodeId = Annotated[str | None, typer.Option("--node-id", help="The node, by its id or a beginning of it.", show_default=False)]
_NodeIp = Annotated[str | None, typer.Option("--node-ip", help="The node, by its address.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say what would start, and what would stay.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the journal.", show_default=False)]
Address = Annotated[
    str | None, typer.Option("--address", help="The cluster; by default the one that runs here.", show_default=False)
]


def taint(
    node_id: _NodeId = None,
    node_ip: _NodeIp = None,
    append: Annotated[
        str | None, typer.Option("--append", "--apend", metavar="JSON", help="Taints to add.", show_default=False)
    ] = None,
    remove: Annotated[
        str | None, typer.Option("--remove", "--delete", metavar="JSON", help="Taints to take away.", show_default=False)
    ] = None,
    dry_run: _DryRun = False,
    reason: Reason = "",
    as_json: _Json = False,
    address: Address = None,
) -> None:
    """Taint a node, or take taints away.

    When the command returns, no task that does not tolerate the taint starts there any more.

    [bold]Examples[/bold]

    remora taint --node-id 4f2a --append '{"memory-pressure": "high"}'

    remora taint --node-ip 10.0.0.7 --remove '{"memory-pressure": "high"}'

    remora taint --node-id 4f2a --append '{"memory-pressure": "high"}' --dry-run
    """
    if append is None and remove is None:
        raise InvalidTaintError('say which taints: --append or --remove, for example --append \'{"gpu_node": "true"}\'')
    added, removed = parse_taints(_object("--append", append)), parse_taints(_object("--remove", remove))
    _check_node(node_id, node_ip)
    api = connected(address)
    found = api.find_node(node_id, node_ip)
    if dry_run:
        _show_preview(api.preview_node(found, taints={**dict.fromkeys(dict(removed)), **dict(added)}), as_json)
        return
    if removed:
        api.untaint_node(found, [key for key, _ in removed], reason=reason)
    if added:
        api.taint_node(found, dict(added), reason=reason)
    _show_marks(api, found, as_json)


def label(
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE... KEY-...", help="Labels to set, and to take away.")],
    node_id: _NodeId = None,
    node_ip: _NodeIp = None,
    dry_run: _DryRun = False,
    reason: Reason = "",
    as_json: _Json = False,
    address: Address = None,
) -> None:
    """Label a node at run time: key=value sets, key- takes away.

    What waits for such a label starts.

    [bold]Examples[/bold]

    remora label --node-id 4f2a zone=a tier-
    """
    labels = _changes(changes)
    _check_node(node_id, node_ip)
    api = connected(address)
    found = api.find_node(node_id, node_ip)
    if dry_run:
        _show_preview(api.preview_node(found, labels=labels), as_json)
        return
    api.label_node(found, labels, reason=reason)
    _show_marks(api, found, as_json)


def _show_preview(found: dict[str, Any], as_json: bool) -> None:
    """What a change would do."""
    typer.echo(json.dumps(found) if as_json else found["text"])


def _show_marks(api: Any, node_id: str, as_json: bool) -> None:
    """What a node is marked with now."""
    nodes: dict[str, dict[str, Any]] = {node["node_id"]: node for node in api.status()["nodes"]}
    node = nodes.get(node_id, {"labels": {}, "taints": {}})
    if as_json:
        typer.echo(json.dumps({"node_id": node_id, "labels": node["labels"], "taints": node["taints"]}))
        return
    for what in ("labels", "taints"):
        typer.echo(f"{node_id[:12]} {what}: {', '.join(_lines(node[what]).splitlines()) or 'none'}")


def status(as_json: _Json = False, address: Address = None) -> None:
    """Show the nodes with labels, taints and use, and what waits and why.

    Where virtual clusters have a part of a node: what they have, what of it they use, and what all other work uses.

    [bold]Examples[/bold]

    remora status --json
    """
    found = connected(address).status()
    console = Console(highlight=False)
    if as_json:
        console.print_json(json.dumps(found))
        return
    marks = [Column(each, overflow="fold") for each in ("Labels", "Taints")]
    nodes = Table("Node", "Address", *marks, "Used", box=box.SIMPLE_HEAD, title="Nodes", title_justify="left")
    for node in found["nodes"]:
        used = [f"{node['used'][name]:g}/{total:g} {name}" for name, total in node["total"].items()]
        nodes.add_row(node["node_id"][:12], node["address"], _lines(node["labels"]), _lines(node["taints"]), "\n".join(used))
    console.print(nodes)
    if any(node["virtual_clusters"] for node in found["nodes"]):
        console.print(_shares(found["nodes"]))
    if "machines" in found:
        show_machines(console, found["machines"])
    if found.get("spreads"):
        console.print(_spreads(found["spreads"]))
    if found["waiting"]:
        waiting = Table("Count", "Asks for", "Why it waits", box=box.SIMPLE_HEAD, title="What waits", title_justify="left")
        for row in found["waiting"]:
            asks = " | ".join(amounts(each) for each in row["resources"])
            help_ = "".join(f"\n- {each}" for each in row["suggestions"])
            what = f"{row['kind']}\n{asks}\n{row['wants']}".strip()
            waiting.add_row(str(row["count"]), what, row["reason"] + help_)
        console.print(waiting)


def _spreads(rows: list[dict[str, Any]]) -> Table:
    """What is spread over zones or racks, and how evenly it lies."""
    table = Table("Over", "Of", "Lies in", "Skew", box=box.SIMPLE_HEAD, title="What is spread", title_justify="left")
    for row in rows:
        where = ", ".join(f"{domain}: {count}" for domain, count in row["domains"].items())
        whose = f" in {row['virtual_cluster']}" if row["virtual_cluster"] else ""
        asked = f"at most {row['max_skew']}" + (" if it can be" if row["soft"] else "")
        table.add_row(row["over"], f"{row['of']}{whose}", where, f"{row['skew']} ({asked})")
    return table


def show_machines(console: Console, machines: dict[str, Any]) -> None:
    """The types of machines that can be started, and the machines that are kept."""
    columns = ("Type", "Have", "Asked", "Most", "For")
    table = Table(*columns, box=box.SIMPLE_HEAD, title="Machines", title_justify="left")
    for row in machines["types"]:
        asked = f"{row['asked']} ({row['asked_seconds']:.0f} s ago)" if row["asked"] else "0"
        most = "no limit" if row["max_workers"] is None else str(row["max_workers"])
        whom = f"cannot be had now: {row['resting']}" if row["resting"] else row["for"] if row["asked"] else ""
        table.add_row(row["name"], str(row["have"]), asked, most, whom)
    console.print(table)
    if machines["source"]:
        console.print(f"node types: from {machines['source']}")
    for each in machines["kept"]:
        console.print(f"{each['node_id'][-12:]} is kept: {each['why']}")
    for problem in machines["problems"]:
        console.print(f"node types: {problem}")


def _shares(nodes: list[dict[str, Any]]) -> Table:
    """What virtual clusters have of each node, next to what work in none of them uses."""
    columns = ("Node", "Resource", "Total", "They have", "They use", "Others use")
    table = Table(*columns, box=box.SIMPLE_HEAD, title="Virtual clusters and others", title_justify="left")
    for node in nodes:
        for name in sorted({*node["virtual_clusters"], *node["outside"]}):
            part = node["virtual_clusters"].get(name, {"has": 0.0, "used": 0.0})
            shown = (node["total"][name], part["has"], part["used"], node["outside"].get(name, 0.0))
            table.add_row(node["node_id"][:12], name, *(f"{amount:g}" for amount in shown))
    return table


def amounts(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items()) or "nothing"


def _lines(labels: dict[str, str]) -> str:
    """One label a line: a table of 80 columns has no room for more."""
    return "\n".join(f"{key}={value}" for key, value in labels.items())


def _object(option: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidTaintError(
            f'{option} {text!r} is not JSON ({error}); for example {option} \'{{"gpu_node": "true"}}\''
        ) from None
    if not isinstance(value, dict):
        raise InvalidTaintError(f'{option} {text!r} is not a JSON object; for example {option} \'{{"gpu_node": "true"}}\'')
    return value


def _example(option: str) -> str:
    return f'for example {option} \'{{"gpu_node": "true"}}\''


def _changes(changes: list[str]) -> dict[str, str | None]:
    labels: dict[str, str | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if equals:
            labels.update(parse_labels({key: value}))
        elif change.endswith("-"):
            labels[parse_label_keys([change[:-1]])[0]] = None
        else:
            raise InvalidLabelError(f"{change!r} is neither key=value nor key-; for example 'zone=a' or 'zone-'")
    return labels


def _check_node(node_id: str | None, node_ip: str | None) -> None:
    if (node_id is None) == (node_ip is None):
        raise InvalidInputError("name one node: --node-id ID or --node-ip ADDRESS; 'remora status' lists them")


def connected(address: str | None) -> Any:
    from remora.live import api

    if address is None and not os.environ.get("RAY_ADDRESS"):
        address = running_address(os.environ)
    api.connect(address)
    return api
