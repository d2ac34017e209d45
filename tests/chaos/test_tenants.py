"""Two tenants at once, each in a virtual cluster of its own, against each of them alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from tests.chaos import tally
from tests.chaos.breakable import Breakable, Tenant, breakable, part
from tests.chaos.checker import Checker

MOST = 1.25
ROUNDS = 6


def test_two_tenants_at_once_against_each_alone(checker_of: Callable[[str], Checker], survived: Any) -> None:
    """Each has two CPUs and work for ten rounds of them. How long the work took is said by the work itself, so that the start
    of a process counts for nobody. Nothing is misplaced: at no time did one have more than its share."""
    alone: list[float] = []
    both: list[float] = []
    with breakable("tenants") as rig:
        checker = checker_of("tenants")
        with checker.watching():
            drivers = [rig.tenant(str(checker.path), "sharing", name) for name in ("one", "two")]
            try:
                for driver in drivers:
                    assert driver.hear() == "there"
                for turn in range(max(2, part(ROUNDS))):
                    for which in ([0], [1], [0, 1]):
                        took = _let(drivers, which)
                        if turn > 0:  # the first is for workers to start
                            (both if len(which) == 2 else alone).extend(took)
                for driver in drivers:
                    driver.tell("end")
                    assert driver.hear() == "done"
                    assert driver.is_well()
            finally:
                for driver in drivers:
                    driver.kill()
        checker.settled()
        _check_places(rig, checker)
    slowdown = statistics.median(both) / statistics.median(alone)
    assert slowdown <= MOST, f"alone {alone}, both {both}"
    survived(tasks=len(tally.names(checker.lines(), tally.BEGAN)), slowdown=f"{slowdown:.2f}-fold")


def _let(drivers: list[Tenant], which: list[int]) -> list[float]:
    for each in which:
        drivers[each].tell("go")
    return [float(drivers[each].hear()) for each in which]


def _check_places(rig: Breakable, checker: Checker) -> None:
    lines = checker.lines()
    assert {line.node_id for line in lines}.isdisjoint(rig.tainted_ids)
    for group in {line.group for line in lines}:
        assert tally.most_at_once(tally.spans(lines, group)) == 2
