"""How verbs write for people: consoles, tables with a title of their own line, amounts, ids that can be copied, help texts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

SHORT = 12
"""So many characters of an id are shown where the whole one is too long; every command takes the beginning of an id."""

_NUMBERS = frozenset({"#", "Count", "Used", "Total", "Has", "Reserved", "At most", "Have", "Most", "Priority"})
_Verb = TypeVar("_Verb")


def console_for() -> Console:
    """Return where to print to."""
    # When it is not a terminal there is no width to ask for, and 80 columns can be read anywhere.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 80)


def new_table(*columns: str, whole: Iterable[str] = ()) -> Table:
    """Return a table; the columns ``whole`` are never folded, and numbers stand at the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = column in _NUMBERS
        table.add_column(
            column,
            justify="right" if numeric else "left",
            no_wrap=numeric or not column or column in whole,
            overflow="fold",
        )
    return table


def show(console: Console, title: str, table: Table) -> None:
    """Print a table under its title. Not as the table's own: that is folded where the table is narrow."""
    console.print(Text(f"\n{title}", style="bold"))
    console.print(table)


def amounts(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items()) or "nothing"


def short(node_id: str) -> str:
    return node_id[:SHORT]


def adder(app: typer.Typer, name: str, **settings: Any) -> Callable[[_Verb], _Verb]:
    """Return what makes a function a verb. Its docstring is the help, in which only an empty line ends a paragraph: the line
    breaks of the source are no business of a terminal's."""

    def add(function: _Verb) -> _Verb:
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        app.command(name, help="\n\n".join(each.replace("\n", " ") for each in paragraphs), **settings)(
            cast("Callable[..., Any]", function)
        )
        return function

    return add
