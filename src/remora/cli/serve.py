"""``remora dashboard``: the page and the REST API of a cluster."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from remora.cli.connecting import Address, change
from remora.errors import InvalidInputError


def dashboard(
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Which port; 0 takes a free one.", min=0, max=65535)] = 8270,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name that it is reached by.", show_default=False),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine though Ray's token authentication is off.")
    ] = False,
    fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    address: Address = None,
) -> None:
    """Serve the page of a cluster, and its REST API (documented at /docs), until Ctrl-C.

    Where Ray's token authentication is on, the page asks for Ray's token.

    [bold]Examples[/bold]

    remora dashboard

    remora dashboard --port 0 --read-only

    remora dashboard --host 0.0.0.0 --allow-host remora.example.com
    """
    if not is_installed():
        raise InvalidInputError("the dashboard needs FastAPI and uvicorn: install them with pip install 'remora[dashboard]'")
    from remora.dashboard import serving

    where = serving.Where(host, port, tuple(allow_host or ()), read_only, insecure)
    api, _ = change(address)
    rules = serving.rules_for(where, api.is_token_needed(), api.is_right_token)
    bound = serving.bind(where) if fd is None else serving.take_over(fd)
    warning = "\nwarning: everybody who reaches this address may change the cluster" if rules.insecure and not read_only else ""
    typer.echo(f"the dashboard is at {serving.address_of(bound)}{warning}")
    serving.serve(bound, rules)


def is_installed() -> bool:
    """Return whether what the dashboard needs is there."""
    return all(importlib.util.find_spec(name) is not None for name in ("fastapi", "uvicorn"))
