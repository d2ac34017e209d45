"""``remora taint`` and ``remora label``: what is said about one node of a live cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from remora.cli.connecting import Address, AsJson, Reason, change, say_which, show_json
from remora.cli.rendering import console_for, short
from remora.errors import InvalidInputError, InvalidLabelError, InvalidTaintError
from remora.machine.addresses import Target
from remora.machine.written import plain_taints_of
from remora.model.labels import parse_label_keys, parse_labels
from remora.model.taints import parse_taints

_NodeId = Annotated[str | None, typer.Option("--node-id", help="The node, by its id or a beginning of it.", show_default=False)]
_NodeIp = Annotated[str | None, typer.Option("--node-ip", help="The node, by its address.", show_default=False)]

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say what would start, and what would stay.")]

Drop = dict[str, "str | None"]
"""What is to be taken away, and the value that it must have: None is any."""


def taint(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE] [KEY=VALUE...] [KEY-...]",
            help="The node, unless --node-id or --node-ip names it: its id, a beginning of it, its name or its address. Then "
            "taints to set, and to take away.",
            show_default=False,
        ),
    ] = None,
    node_id: _NodeId = None,
    node_ip: _NodeIp = None,
    append: Annotated[
        str | None, typer.Option("--append", "--apend", metavar="JSON or K=V,...", help="Taints to set.", show_default=False)
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option("--remove", "--delete", metavar="JSON or K=V,...", help="Taints to take away.", show_default=False),
    ] = None,
    dry_run: _DryRun = False,
    reason: Reason = "",
    as_json: AsJson = False,
    address: Address = None,
) -> None:
    """Taint a node, or take taints away: key=value sets, key- takes away.

    When the command returns, no task that does not tolerate the taint starts there any more. A taint that is taken away with
    its value (key=value-) has to have that value.

    [bold]Examples[/bold]

    remora taint 4f2a gpu_node=true memory-pressure-

    remora taint --node-id 4f2a --append '{"memory-pressure": "high"}'

    remora taint --node-ip 10.0.0.7 --remove '{"memory-pressure": "high"}'

    remora taint 4f2a memory-pressure=high --dry-run
    """
    node, changes = _node_and_changes(words or [], node_id, node_ip)
    added, dropped = _read(changes, InvalidTaintError, "gpu_node")
    added |= plain_taints_of([append] if append is not None else [], "--append")
    dropped |= plain_taints_of([remove] if remove is not None else [], "--remove")
    added = dict(parse_taints(added))
    parse_label_keys(dropped, of="taint keys")
    _check(node, added, dropped, InvalidTaintError, "remora taint 4f2a gpu_node=true memory-pressure-")
    api, target = change(address)
    found = api.find_node(node_id, node_ip, node)
    if dry_run:
        preview = api.preview_node(found, taints={**dict.fromkeys(dropped), **added})
        _show_preview(preview, target, as_json)
        return
    api.change_marks(found, "taints", added, dropped, reason=reason)
    _show_marks(api, found, target, as_json)


def label(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE] KEY=VALUE... KEY-...",
            help="The node, unless --node-id or --node-ip names it: its id, a beginning of it, its name or its address. Then "
            "labels to set, and to take away.",
            show_default=False,
        ),
    ] = None,
    node_id: _NodeId = None,
    node_ip: _NodeIp = None,
    dry_run: _DryRun = False,
    reason: Reason = "",
    as_json: AsJson = False,
    address: Address = None,
) -> None:
    """Label a node at run time: key=value sets, key- takes away.

    What waits for such a label starts. A label with the prefix of taints, as in taint.remora.io/gpu_node=true, is the taint.

    [bold]Examples[/bold]

    remora label 4f2a zone=a tier-

    remora label --node-ip 10.0.0.7 zone=a
    """
    node, changes = _node_and_changes(words or [], node_id, node_ip)
    added, dropped = _read(changes, InvalidLabelError, "zone")
    added = dict(parse_labels(added))
    parse_label_keys(dropped)
    _check(node, added, dropped, InvalidLabelError, "remora label 4f2a zone=a tier-")
    api, target = change(address)
    found = api.find_node(node_id, node_ip, node)
    if dry_run:
        preview = api.preview_node(found, labels={**dict.fromkeys(dropped), **added})
        _show_preview(preview, target, as_json)
        return
    api.change_marks(found, "labels", added, dropped, reason=reason)
    _show_marks(api, found, target, as_json)


def _node_and_changes(words: list[str], node_id: str | None, node_ip: str | None) -> tuple[str | None, list[str]]:
    """Return the node that stands before the changes, or None where an option names it; and the changes."""
    if node_id is not None and node_ip is not None:
        raise InvalidInputError("name one node: --node-id ID or --node-ip ADDRESS, not both; 'remora status' lists them")
    if node_id is not None or node_ip is not None:
        return None, words
    if not words or _is_change(words[0]):
        raise InvalidInputError(
            "name one node, before the changes: its id, a beginning of it, its name or its address; or by --node-id ID or "
            "--node-ip ADDRESS; 'remora status' lists them"
        )
    return words[0], words[1:]


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _read(changes: list[str], error: type[InvalidInputError], key: str) -> tuple[dict[str, str], Drop]:
    """Return what is to be set, and what is to be taken away."""
    added: dict[str, str] = {}
    dropped: Drop = {}
    for change_ in changes:
        name, equals, value = change_.partition("=")
        if ":" in value and error is InvalidTaintError:
            raise error(
                f"{change_!r} names an effect, as kubectl has them; here a taint has none: nothing new starts that does not "
                f"tolerate it; for example {key}=true"
            )
        if change_.endswith("-"):
            dropped[name if equals else change_[:-1]] = value[:-1] if equals else None
        elif not equals:
            raise error(f"{change_!r} is neither key=value nor key-; for example '{key}=a' or '{key}-'")
        elif added.setdefault(name, value) != value:
            raise error(f"{name!r} is set twice, to {added[name]!r} and {value!r}: say it once")
    return added, dropped


def _check(node: str | None, added: dict[str, str], dropped: Drop, error: type[InvalidInputError], example: str) -> None:
    if not added and not dropped:
        raise error(f"say what to change{f' on {node!r}' if node else ''}; for example {example}")
    both = sorted(added.keys() & dropped.keys())
    if both:
        raise error(f"{both[0]!r} is to be set and to be taken away: say one of them; for example {example}")


def _show_preview(found: dict[str, Any], target: Target, as_json: bool) -> None:
    """Show what a change would do."""
    if as_json:
        show_json(found, target)
        return
    console = console_for()
    say_which(console, target)
    typer.echo(found["text"])


def _show_marks(api: Any, node_id: str, target: Target, as_json: bool) -> None:
    """Show what a node is marked with now."""
    nodes: dict[str, dict[str, Any]] = {node["node_id"]: node for node in api.status()["nodes"]}
    node = nodes.get(node_id, {"labels": {}, "taints": {}})
    if as_json:
        show_json({"node_id": node_id, "labels": node["labels"], "taints": node["taints"]}, target)
        return
    console = console_for()
    say_which(console, target)
    for what in ("labels", "taints"):
        marks = ", ".join(f"{key}={value}" for key, value in node[what].items())
        typer.echo(f"{short(node_id)} {what}: {marks or 'none'}")
