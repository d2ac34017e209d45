"""What came of each of Ray's tests, attached and stock, from the lines that the plugin has written."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ATTACHED, STOCK = "attached", "stock"

PASSED, FLAKY, BOTH, ONLY, SKIPPED, OPEN = (
    "passed",
    "passed at the second try",
    "fails stock too",
    "FAILS ATTACHED ONLY",
    "skipped",
    "failed, stock not run yet",
)
_ORDER = (PASSED, FLAKY, BOTH, ONLY, OPEN, SKIPPED)


class Try(NamedTuple):
    """One run of a test. ``outcome`` is pytest's; a test that began and never ended was killed, which is a failure."""

    outcome: str
    why: str = ""


Tries = dict[str, list[Try]]


def read(lines: Iterable[str]) -> Tries:
    """Return the runs of each test, oldest first, from the lines of one mode."""
    tries: Tries = defaultdict(list)
    for line in lines:
        row = json.loads(line)
        if row["event"] == "began":
            tries[row["test"]].append(Try("killed"))
        elif row["event"] == "report":
            known = tries[row["test"]]
            if known[-1].outcome != "failed":  # by the test, before its teardown
                known[-1] = Try(row["outcome"], row.get("why", ""))
    return dict(tries)


def read_all(folder: Path) -> dict[str, Tries]:
    found = {}
    for mode in (ATTACHED, STOCK):
        log = folder / f"{mode}.jsonl"
        found[mode] = read(log.read_text(encoding="utf-8").splitlines() if log.exists() else ())
    return found


def has_failed(tries: list[Try]) -> bool:
    return bool(tries) and tries[-1].outcome in ("failed", "killed")


def verdict(attached: list[Try], stock: list[Try]) -> str:
    """Return what is to be said of a test. The last run counts: it is the one with the newest code."""
    if not has_failed(attached):
        if any(has_failed([each]) for each in attached):
            return FLAKY
        return SKIPPED if attached[-1].outcome == "skipped" else PASSED
    if not stock:
        return OPEN
    return BOTH if has_failed(stock) else ONLY


def show(tries: dict[str, Tries]) -> list[str]:
    """Return the report: counts by file, then every test that fails attached only, and why."""
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    failing = []
    for test, runs in sorted(tries[ATTACHED].items()):
        found = verdict(runs, tries[STOCK].get(test, []))
        by_file[test.partition("::")[0]][found] += 1
        if found in (ONLY, OPEN):
            failing.append(f"{found}: {test}\n    {runs[-1].why or runs[-1].outcome}".rstrip())
    total = sum(by_file.values(), Counter())
    lines = [f"{file}: {_counts(each)}" for file, each in sorted(by_file.items())]
    return [*lines, "", *failing, "", f"{sum(total.values())} tests of {len(by_file)} files: {_counts(total)}"]


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{found[kind]} {kind}" for kind in _ORDER if found[kind])
