"""Run the chosen tests in one environment, and count what came of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.compat.environments import LIVE, ROOT, UNIT, Environment

COMMANDS = {
    LIVE: ["tests/live", "-m", "core and not deep", "-W", "default"],
    # Not what says that the table is whole: this run is on its way into it.
    UNIT: ["tests/unit", "tests/property", "tests/scenario", "tests/world", "-n", "2", "--ignore", "tests/unit/test_compat.py"],
}

COLUMNS = ("facts", "contract", "core", "unit")
_FACTS, _CONTRACT = ("test_facts.py", "test_traps.py"), ("test_port.py",)

Outcomes = dict[str, str]
"""By test: passed, skipped, failed or not run."""


def run(environment: Environment, part: str, seconds: float, *, resume: bool) -> Outcomes:
    """Run a part for so long, and return what is known of it; with ``resume`` what has passed before is not run again."""
    kept = kept_of(environment, part)
    if not resume:
        kept.unlink(missing_ok=True)
    variables = {
        **os.environ,
        "PATH": f"{environment.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "COMPAT_KEPT": str(kept),
        "COMPAT_SECONDS": str(seconds),
        # As important as all else here: Ray starts workers with less, and on a busy machine a controller then starts slowly.
        "RAY_worker_niceness": "0",
    }
    words = [str(environment.folder / "bin/python"), "-m", "pytest", *COMMANDS[part], "-p", "no:cacheprovider"]
    subprocess.run([*words, "-p", "tests.compat.rest"], cwd=ROOT, env=variables, check=False)
    return read(kept)


def kept_of(environment: Environment, part: str) -> Path:
    return environment.folder / f"{part}.jsonl"


def read(kept: Path) -> Outcomes:
    """Return the last that was noted of each test. Where nothing was, pytest did not even begin."""
    if not kept.exists():
        return {"pytest itself": "failed"}
    return dict(json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines())


def count(outcomes: Mapping[str, str], part: str) -> dict[str, Counter[str]]:
    """Return how many there are of each outcome, by column of the table."""
    counts: dict[str, Counter[str]] = {}
    for test, outcome in outcomes.items():
        counts.setdefault(_column(test, part), Counter())[outcome] += 1
    return counts


def _column(test: str, part: str) -> str:
    file = test.partition("::")[0].rpartition("/")[2]
    if part == UNIT:
        return "unit"
    return "facts" if file in _FACTS else "contract" if file in _CONTRACT else "core"
