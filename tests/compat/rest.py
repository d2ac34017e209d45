"""A plugin for pytest, loaded with ``-p tests.compat.rest``: leave out what has passed, end when the time is over, and note
what came of every test as soon as it is known."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

KEPT = Path(os.environ["COMPAT_KEPT"])
UNTIL = time.monotonic() + float(os.environ["COMPAT_SECONDS"])


def _note(test: str, outcome: str) -> None:
    with KEPT.open("a", encoding="utf-8") as kept:
        kept.write(json.dumps([test, outcome]) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = dict(json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()) if KEPT.exists() else {}
    for item in items:
        if item.nodeid not in known:
            _note(item.nodeid, "not run")
    gone = [item for item in items if known.get(item.nodeid) in ("passed", "skipped")]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _note(report.nodeid, report.outcome)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Return True for a test that is not begun any more."""
    if time.monotonic() < UNTIL:
        return None
    item.session.shouldstop = "the time is over: --resume goes on from here"
    return True
