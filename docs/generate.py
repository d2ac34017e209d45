"""Writes the reference pages from the code; mkdocs calls it for every page."""

from __future__ import annotations

from typing import Any

import typer
from typer.testing import CliRunner

import remora
from remora.cli.main import app

_SECTIONS = {
    "remora.live.api": "On a live Ray",
    "remora.wire.answers": "What is answered",
    "remora.wire.typed_options": "Options with types",
    "remora.live.front": "Ray's own functions with types",
    "remora.model.virtual_clusters": "Virtual clusters",
    "remora.live.inspect.infos": "Looking at virtual clusters",
    "remora.model.strategies": "Strategies",
    "remora.model.spreading": "Spreading",
    "remora.model.selectors": "Label expressions",
    "remora.model.operators": "Conditions",
    "remora.model.taints": "Tolerations",
    "remora.model.labels": "Labels",
    "remora.errors": "Errors",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    if "{{ names }}" in markdown:
        markdown = markdown.replace("{{ names }}", _names())
    if "{{ commands }}" in markdown:
        markdown = markdown.replace("{{ commands }}", _commands())
    return markdown


def _names() -> str:
    """Every public name under the heading of the module that it comes from."""
    lines = []
    homes = {name: home for home, names in remora._HOMES.items() for name in names}
    for home in sorted({*homes.values()}, key=list(_SECTIONS).index):
        lines.append(f"## {_SECTIONS[home]}\n")
        lines += [f"::: {home}.{name}\n" for name in remora.__all__ if homes.get(name) == home]
    return "\n".join(lines)


def _commands() -> str:
    return "\n".join(_help(typer.main.get_command(app), []))


def _help(command: Any, path: list[str]) -> list[str]:
    shown = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"}).invoke(app, [*path, "--help"]).output.strip("\n")
    lines = [f"## {' '.join(['remora', *path])}\n\n```text\n{shown}\n```\n"]
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        lines += [] if inner.hidden else _help(inner, [*path, name])
    return lines
