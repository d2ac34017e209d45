"""What every verb about a live cluster begins with: which Ray it is, that it is there, and how its answer says so."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from remora.errors import ControllerAwayError
from remora.machine.addresses import Target, find_target

Address = Annotated[
    str | None, typer.Option("--address", help="The cluster; by default the one that runs here.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the journal.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def look_at(address: str | None) -> tuple[Any, Target]:
    """Connect to a cluster to look at it, and return the API and which Ray it is. Nothing is started: where there is no
    controller, that is said."""
    target = find_target(address, os.environ)
    api = _connect(target)
    from remora.live.link import link

    if link.find() is None:
        raise ControllerAwayError(
            f"there is no Remora in the {target.line}, and looking starts none: 'remora run', 'remora job submit' or a program "
            "that calls remora.init() brings it"
        )
    return api, target


def change(address: str | None) -> tuple[Any, Target]:
    """Connect to a cluster to change it, and return the API and which Ray it is: never one of several that was guessed."""
    target = find_target(address, os.environ, changes=True)
    return _connect(target), target


def show_json(found: Any, target: Target) -> None:
    """Print what was found as JSON: an object says which Ray it is of, and so does each row of a list."""
    if isinstance(found, list):
        if not found:
            typer.echo(target.line, err=True)
        said: Any = [{**row, "ray": target.to_dict()} for row in found]
    else:
        said = {**found, "ray": target.to_dict()}
    typer.echo(json.dumps(said, indent=2))


def say_which(console: Console, target: Target) -> None:
    """Print the first line of what a verb says to people."""
    console.print(Text(target.line, style="dim"), soft_wrap=True)


def _connect(target: Target) -> Any:
    from remora.live import api

    api.connect(target.address)
    return api
