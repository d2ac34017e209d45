"""``remora explain`` and ``remora events``: why it waits, and what happened."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from remora.cli.connecting import Address, AsJson, look_at, say_which, show_json
from remora.cli.rendering import amounts, console_for, new_table, short
from remora.errors import InvalidInputError, UnknownNameError

_KINDS = ("controller", "node", "taint", "label", "class", "lease", "cluster", "fence", "machines")


def explain(
    what: Annotated[str, typer.Argument(metavar="TASK|ACTOR|PG|JOB", help="An id, or the name of an actor, group or task.")],
    as_json: AsJson = False,
    address: Address = None,
) -> None:
    """Show why something waits, node by node, and the smallest changes that would let it start.

    Of an actor with labels or affinity also what was decided about it and when, as far as the journal goes back. For a job:
    everything of it that has not ended.

    [bold]Examples[/bold]

    remora explain 49fa0b3ce3fd4e12b7ea5bf801000000

    remora explain my-actor --json
    """
    api, target = look_at(address)
    found = api.explain_all(what)
    if not found:
        raise UnknownNameError(
            f"no task, actor, placement group or running job in the {target.line} has the id or name {what!r}: see 'ray list'"
        )
    journal = api.events()
    found = [{**row, "decisions": decisions(journal, row["id"])} for row in found]
    if as_json:
        show_json(found, target)
        return
    console = console_for()
    say_which(console, target)
    for row in found:
        _show(console, row)


def events(
    as_json: AsJson = False,
    kind: Annotated[
        str | None, typer.Option("--kind", help=f"Only one of: {', '.join(_KINDS)}.", autocompletion=lambda: _KINDS)
    ] = None,
    last: Annotated[int, typer.Option("--last", metavar="N", help="Only the last N.", min=1)] = 50,
    address: Address = None,
) -> None:
    """Show what happened lately: nodes that came and went, taints, decisions, virtual clusters.

    [bold]Examples[/bold]

    remora events --kind taint --last 5
    """
    if kind is not None and kind not in _KINDS:
        raise InvalidInputError(f"the kind {kind!r} is not known: use one of {', '.join(_KINDS)}")
    api, target = look_at(address)
    found = [entry for entry in api.events() if kind in (None, entry["kind"])][-last:]
    if as_json:
        show_json(found, target)
        return
    console = console_for()
    say_which(console, target)
    table = new_table("At", "Kind", "About", "What", whole=("At", "Kind", "About"))
    for entry in found:
        table.add_row(entry["at"][11:19], entry["kind"], short(entry["subject"]), Text(entry["text"] + said_by(entry)))
    console.print(table)


def said_by(entry: dict[str, Any]) -> str:
    """Return `` (alice by remora taint from host: why)`` for an entry that says who did it."""
    by = entry.get("by") or {}
    parts = [by.get("who", ""), *(f"{word} {by[name]}" for word, name in (("by", "through"), ("from", "from")) if by.get(name))]
    who = " ".join(filter(None, parts))
    return f" ({': '.join(filter(None, (who, by.get('reason', ''))))})" if by else ""


def decisions(journal: list[dict[str, Any]], actor_id: str) -> list[dict[str, str]]:
    """The time line of an actor, oldest first."""
    own = [entry for entry in journal if entry["kind"] == "lease" and entry["subject"] == actor_id]
    return [{"at": entry["at"], "text": entry["text"]} for entry in own]


def _show(console: Console, row: dict[str, Any]) -> None:
    asks = " | ".join(amounts(each) for each in row["resources"])
    title = f"{row['kind']} {row['name']} ({row['id']})".replace("  ", " ")
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(Text(f"  asks for {asks}" + (f", {row['wants']}" if row["wants"] else "")))
    console.print(Text(f"  {row['state']}: {row['reason']}"), soft_wrap=True)
    if row["refusals"]:
        table = new_table("Node", "Why not", whole=("Node",))
        for refusal in row["refusals"]:
            for node_id in refusal["nodes"]:
                table.add_row(short(node_id), Text(refusal["each"] or refusal["text"]))
        console.print(table)
    for suggestion in row["suggestions"]:
        console.print(Text(f"  - {suggestion}"), soft_wrap=True)
    for entry in row["decisions"]:
        console.print(Text(f"  {entry['at'][11:19]} {entry['text']}"), soft_wrap=True)
