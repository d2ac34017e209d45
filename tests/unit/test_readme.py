"""Every Python block of the README runs, in order, in one namespace; every command in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_python_blocks_run_as_they_stand():
    assert len(blocks("python")) >= 4
    namespace: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE))))
def test_every_make_target_that_is_named_exists(target: str):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", README))))
def test_every_link_into_the_project_leads_somewhere(link: str):
    assert (ROOT / link).exists()
