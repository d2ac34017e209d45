"""The files in examples/ as people run them, one after another on one cluster of ``remora up``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# What each has to say, as patterns; where there is a choice of nodes, only the part that is sure.
SAYS = {
    "selectors_and_fallbacks": [
        "zone b, but not tier t0: it ran on worker-1",
        "tier t0 or t2: it ran on worker-0",
        "no tier at all: it ran on head",
        "zone c, else tier t1: it ran on worker-1",
        "zone c: 0/4 nodes fit: 4 do not match zone=c",
    ],
    "isolate_gpus": [
        "plain tasks: (?!.*gpu)",
        "tolerates the taint: 1 on gpu",
        "after worker-1 was tainted: (?!.*worker-1)",
    ],
    "spread_a_service": ["servers: head, worker-0, worker-1", "3 already host an actor with app in \\(server\\)"],
    "spread_over_zones": [
        "replicas: 2 in zone a, 2 in zone b",
        "leaders in zones: a, b",
        "a third leader: .*are in zones a, b that already host an actor with svc in \\(leader\\)",
        "the gang is in one zone",
    ],
    "workers_next_to_their_data": ["work on p0 ran on worker-0", "work on p1 ran on worker-1"],
    "a_share_for_each_team": [
        "red: at least 1 CPU, at most 1; at any time it used 1 or less",
        "blue: at least 2 CPU, at most 3; at any time it used [1-3] or less",
        "inside there are 4.0 CPUs",
        "and inside of that 1.0",
    ],
    "why_does_it_wait": ["actor waiting: 0/4 nodes fit: 2 do not match zone=b, 2 are too small for 1 GPU", "it runs on gpu"],
}


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environ = {**kept, "REMORA_HOME": str(tmp_path_factory.mktemp("home")), "REMORA_METADATA": "off"}
    done = _remora("up", environ)
    assert done.returncode == 0, done.stderr
    yield environ
    _remora("down", environ)


def _remora(verb: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remora", verb]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=environ)


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("[!_]*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_and_shows_what_it_says(environ: dict[str, str], name: str) -> None:
    command = [sys.executable, f"{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=environ, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert [text for text in SAYS[name] if not re.search(text, done.stdout)] == [], done.stdout
    assert "starting" not in done.stderr  # the cluster that runs is used


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
