"""A few hundred short lives; ``make world`` plays as many as wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.world", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


def test_three_hundred_lives_break_nothing() -> None:
    """In a process of their own: the order of sets is part of a life."""
    played = play("--lives", "300", "--seed", "0", "--jobs", "2")
    assert played.returncode == 0, played.stdout[-20_000:] + played.stderr[-5_000:]


def test_a_life_is_the_same_when_it_is_played_again() -> None:
    first, second = (play("--seed", "7", "--trace") for _ in range(2))
    assert first.stdout == second.stdout
    assert "nothing went wrong" in first.stdout
