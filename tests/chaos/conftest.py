"""Figures of what was survived, printed at the end of a run, and a checker for each life."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.breakable import PART, SEED, close
from tests.chaos.checker import Checker
from tests.live.conftest import pytest_runtest_makereport  # noqa: F401 - what the controller knew is said with a failure

_survived: list[str] = []


@pytest.fixture
def checker_of(tmp_path: Path) -> Callable[[str], Checker]:
    return lambda name: Checker(tmp_path / f"{name}.jsonl")


@pytest.fixture
def survived(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Say what was done to a cluster and came of it: ``survived(kills=100, results=3000)``."""
    began = time.monotonic()

    def say(**figures: Any) -> None:
        text = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures.items())
        _survived.append(f"  {request.node.name}: {text} ({time.monotonic() - began:.0f} s)")

    return say


def pytest_sessionfinish() -> None:
    close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _survived:
        terminalreporter.section(f"survived (SEED={SEED}, PART={PART:g})")
        for line in _survived:
            terminalreporter.line(line)
