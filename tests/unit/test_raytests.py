"""What is said of Ray's own tests, from the lines that a plugin of pytest writes while they run."""

from __future__ import annotations

import json

import pytest
from tests.raytests import verdicts
from tests.raytests.turns import Job, next_job
from tests.raytests.verdicts import BOTH, FLAKY, ONLY, OPEN, PASSED, SKIPPED, Try

FILE, TEST = "test_basic.py", "test_basic.py::test_get"
GOOD, BAD, GONE, LEFT = Try("passed"), Try("failed", "no"), Try("killed"), Try("skipped")


def lines(*rows: dict[str, object]) -> list[str]:
    return [json.dumps({"test": TEST, **row}) for row in rows]


def test_a_test_that_began_and_never_ended_was_killed() -> None:
    assert verdicts.read(lines({"event": "began"})) == {TEST: [GONE]}


def test_a_failure_is_not_forgotten_over_a_teardown() -> None:
    rows = lines(
        {"event": "began"},
        {"event": "report", "outcome": "failed", "why": "no"},
        {"event": "body", "attached": True},
        {"event": "report", "outcome": "skipped"},
    )
    assert verdicts.read(rows) == {TEST: [BAD]}


def test_every_run_counts_by_itself() -> None:
    began: dict[str, object] = {"event": "began"}
    rows = lines(began, {"event": "report", "outcome": "failed", "why": "no"}, began, {"event": "report", "outcome": "passed"})
    assert verdicts.read(rows) == {TEST: [BAD, GOOD]}


@pytest.mark.parametrize(
    ("attached", "stock", "want"),
    [
        ([GOOD], [], PASSED),
        ([LEFT], [], SKIPPED),
        ([BAD], [], OPEN),
        ([BAD], [BAD], BOTH),
        ([GONE], [GONE], BOTH),
        ([BAD], [GOOD], ONLY),
        ([GONE], [GOOD], ONLY),
        ([BAD, BAD], [GOOD], ONLY),
        ([BAD, GOOD], [GOOD], FLAKY),
        ([GOOD, BAD], [GOOD], ONLY),
    ],
)
def test_the_last_run_decides(attached: list[Try], stock: list[Try], want: str) -> None:
    assert verdicts.verdict(attached, stock) == want


@pytest.mark.parametrize(
    ("attached", "stock", "finished", "want"),
    [
        ({}, {}, [], Job("attached", (FILE,))),
        ({TEST: [GOOD]}, {}, [], Job("attached", (FILE,), (TEST,))),
        ({TEST: [GOOD]}, {}, [FILE], None),
        ({TEST: [BAD]}, {}, [FILE], Job("stock", (TEST,))),
        ({TEST: [BAD]}, {TEST: [BAD]}, [FILE], None),
        ({TEST: [BAD]}, {TEST: [GOOD]}, [FILE], Job("attached", (TEST,))),
        ({TEST: [BAD, BAD]}, {TEST: [GOOD]}, [FILE], None),
    ],
    ids=["first", "rest", "all passed", "is it us", "it is not", "is it chance", "it is us"],
)
def test_what_failed_runs_stock_and_then_once_more(
    attached: verdicts.Tries, stock: verdicts.Tries, finished: list[str], want: Job | None
) -> None:
    tries = {"attached": {**attached, "test_other.py::test_x": [BAD]}, "stock": stock}
    assert next_job(FILE, tries, finished) == want


def test_the_report_counts_by_file_and_names_what_fails_attached_only() -> None:
    other = "test_other.py::test_x"
    said = verdicts.show({"attached": {TEST: [BAD], other: [GOOD]}, "stock": {TEST: [GOOD]}})
    assert said == [
        f"test_basic.py: 1 {ONLY}",
        "test_other.py: 1 passed",
        "",
        f"{ONLY}: {TEST}\n    no",
        "",
        f"2 tests of 2 files: 1 passed, 1 {ONLY}",
    ]
