"""A plugin for pytest, loaded with ``-p``: attaches every driver of Ray's own tests, this process and those that tests start.

It sets what ``remora run`` sets: ``ray.init`` by hand, by a fixture, by itself or in a script of ``run_string_as_driver``
attaches as soon as it is connected. With ``RAYTESTS_STOCK`` nothing is attached, and everything else is the same. Each test
becomes lines in the file of ``RAYTESTS_LOG``: that it began, and what came of it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

STOCK = bool(os.environ.get("RAYTESTS_STOCK"))
LOG = Path(os.environ["RAYTESTS_LOG"])
DONE = frozenset(os.environ.get("RAYTESTS_DONE", "").split("\t"))

if not STOCK:
    from remora.wire.run_env import RunOptions

    os.environ.update(RunOptions().environ(os.environ))


def _say(**what: Any) -> None:
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(what) + "\n")


def _is_attached() -> bool:
    from remora.live import installed

    return installed.current() is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _say(test=item.nodeid, event="began")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        _say(test=item.nodeid, event="body", connected=ray.is_initialized(), attached=not STOCK and _is_attached())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        why = ""
        if report.failed:
            why = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))[:400]
        _say(test=report.nodeid, event="report", outcome=report.outcome, seconds=round(report.duration, 1), why=why)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has been run; pytest's own ``--deselect`` goes by the beginning of a name."""
    gone = [item for item in items if item.nodeid in DONE]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


# On a small machine Ray's dashboard and its agents run in their smallest form, where a test does not look as if it needed
# them: the same attached and not.
_NEEDS = re.compile(
    r"list_\w+\(|dashboard|summar|metric|prom_|state_api|get_(task|actor|node|worker|object|job|log)s?\(|job|http|status"
)
_whole = ray._private.utils.get_dashboard_dependency_error
_is_small = False


def _dependency_error() -> Any:
    return ImportError("left out while Ray's tests run") if _is_small else _whole()


ray._private.utils.get_dashboard_dependency_error = _dependency_error


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _is_small  # noqa: PLW0603 - what Ray calls takes no argument
    fixtures = getattr(item, "fixturenames", ())
    try:
        text = inspect.getsource(item.module if any("shared" in name for name in fixtures) else item.function)  # type: ignore[attr-defined]
    except (OSError, TypeError):
        text = "dashboard"
    _is_small = not _NEEDS.search(text) and not any("dashboard" in name for name in fixtures)
