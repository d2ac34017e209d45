"""The table of what was tried, between two marks in a document. It is written by the command only."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.compat.running import COLUMNS

BEGIN, END = "<!-- written by make compat -->", "<!-- until here -->"
_HEAD = ("Ray", "Python", "facts of Ray", "contract", "a quarter of the live tests", "tests without Ray")

Key = tuple[str, str]
Rows = dict[Key, tuple[str, ...]]


def row(counts: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the cells of an environment."""
    return tuple(cell(counts[column]) if column in counts else "" for column in COLUMNS)


def cell(counts: Mapping[str, int]) -> str:
    said = [f"**{counts[name]} {name}**" for name in ("failed", "not run") if counts.get(name)]
    said += [f"{counts.get('passed', 0)} passed"]
    said += [f"{counts['skipped']} skipped"] if counts.get("skipped") else []
    return ", ".join(said)


def read(document: str) -> Rows:
    """Return the rows that a document shows now."""
    rows: Rows = {}
    for line in _between(document).splitlines()[2:]:
        ray, python, *cells = (each.strip() for each in line.strip().strip("|").split("|"))
        rows[ray, python] = tuple(cells)
    return rows


def write(document: str, rows: Mapping[Key, tuple[str, ...]]) -> str:
    """Return the document with these rows, the newest first."""
    ordered = sorted(rows.items(), key=lambda each: [_numbers(part) for part in each[0]], reverse=True)
    lines = [_HEAD, ("---",) * len(_HEAD), *((*key, *cells) for key, cells in ordered)]
    made = "\n".join("| " + " | ".join(each) + " |" for each in lines)
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"


def _between(document: str) -> str:
    if BEGIN not in document or END not in document:
        raise ValueError(f"a document needs the lines {BEGIN!r} and {END!r}, between which the table stands")
    return document.partition(BEGIN)[2].partition(END)[0].strip()


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]
