"""The README and the pages of the documentation, as tests see them.

``python`` blocks need no Ray; ``py`` blocks and the commands of ``sh`` blocks run on the cluster that ``remora up`` starts. The
blocks of one page run one after another in one namespace.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """As they stand, after as many empty lines as there are lines before them: a failure names the line of the page."""
    text = text_of(page)
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, each.start(1)) + each.group(1) for each in found]


def languages(page: str) -> set[str]:
    """The languages of the blocks of a page; a picture or what a command prints has none, or is ``text``."""
    return set(re.findall(r"^```([^\n]*)\n.*?^```", text_of(page), re.MULTILINE | re.DOTALL)) - {"", "text"}


def with_blocks(language: str) -> list[str]:
    return [page for page in PAGES if blocks(page, language)]


def commands(page: str) -> list[str]:
    """Every line of the ``sh`` blocks, without its comment; a line that ends in a backslash goes on in the next."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    found = (re.sub(r"(^|\s+)#\s.*$", "", line) for line in lines)
    return [line for line in found if line]


def verb(command: str) -> tuple[str, ...]:
    return tuple(shlex.split(command)[:2])
