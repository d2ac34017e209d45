"""Every example in the README and in the documentation, on the cluster that ``remora up`` starts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.documents import PAGES, ROOT, blocks, commands, verb, with_blocks

ELSEWHERE = ("up", "down", "start", "simulate", "top", "job")  # they have tests of their own
COMMANDS = sorted(
    {line for page in PAGES for line in commands(page) if verb(line)[0] == "remora" and verb(line)[1] not in ELSEWHERE}
)


class Machine:
    """A shell in which ``remora`` is the one that is tested."""

    def __init__(self, folder: Path) -> None:
        program = folder / "remora"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m remora "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environ = {**os.environ, "PATH": path, "REMORA_HOME": str(folder), "REMORA_METADATA": "off", "ACTOR": "stuck"}
        self.environ.pop("RAY_ADDRESS", None)

        self.files = folder / "files"  # those that pages show, under the names that their first lines say
        self.files.mkdir()
        for text in (text.lstrip("\n") for page in PAGES for text in blocks(page, "yaml")):
            named = re.match(r"# (\S+\.yaml)\n", text)
            if named is not None:
                (self.files / named[1]).write_text(text, encoding="utf-8")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        where = self.files if verb(command)[1] == "plan" else None
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=120, env=self.environ, check=False, cwd=where
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("home"))
    try:
        done = made.run("remora up --json")
        assert done.returncode == 0, done.stderr
        started: dict[str, Any] = json.loads(done.stdout)
        made.environ["RAY_ADDRESS"] = started["address"]
        made.environ["NODE"] = next(node["node_id"][:8] for node in started["nodes"] if node["name"] == "worker-0")
        yield made
    finally:
        made.run("remora down")


@pytest.fixture(scope="module")
def outcomes(machine: Machine) -> Iterator[dict[str, str]]:
    """What went wrong on each page; the driver lives on, with an actor that waits, for the commands."""
    words = [sys.executable, "-m", "tests.local.run_pages"]
    driver = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=machine.environ)
    assert driver.stdout is not None
    yield dict(json.loads(driver.stdout.readline() or '["", "the driver has ended"]') for _ in with_blocks("py"))
    driver.communicate(timeout=60)


@pytest.mark.parametrize("page", with_blocks("py"))
def test_the_examples_of_a_page_run_as_they_stand(outcomes: dict[str, str], page: str):
    assert outcomes[page] == ""


@pytest.fixture(scope="module")
def answers(machine: Machine, outcomes: dict[str, str]) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each command said, some at a time: most of each is the import of Ray."""
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(COMMANDS, pool.map(machine.run, COMMANDS), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_works_as_it_stands(answers: dict[str, subprocess.CompletedProcess[str]], command: str):
    answer = answers[command]
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout or command.startswith(("remora taint", "remora label"))
