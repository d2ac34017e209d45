"""Who sits on which node, as boxes side by side that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

WIDTH = 80


@dataclass(frozen=True)
class Box:
    """One node: its name in the frame, then what is said about it, then who sits there."""

    name: str
    notes: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()


def picture(boxes: Sequence[Box], width: int = WIDTH) -> str:
    """The boxes in one row, equally wide and equally high."""
    if not boxes:
        return ""
    room = (width - (len(boxes) - 1)) // len(boxes) - 4
    texts = [_text(box, room) for box in boxes]
    rows = ["".join(f"╭─ {_fit(box.name, room - 1)} ".ljust(room + 3, "─") + "╮ " for box in boxes)]
    rows += ["".join(f"│ {line:{room}} │ " for line in lines) for lines in zip_longest(*texts, fillvalue="")]
    rows.append("".join("╰" + "─" * (room + 2) + "╯ " for _ in boxes))
    return "\n".join(row.rstrip() for row in rows)


def _text(box: Box, room: int) -> list[str]:
    notes = [_fit(note, room) for note in box.notes]
    return [*notes, "", *(textwrap.wrap(" ".join(box.inside), room, break_on_hyphens=False) or [""])]


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
