"""Drivers killed in every state that a driver can be in; what they had goes back, and who waits for it gets it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.chaos import tenant
from tests.chaos.breakable import Breakable, breakable, part
from tests.chaos.checker import Checker

from remora import VirtualCluster

PAIRS = (("queued", "growing"), ("closing", "handing_on"), ("placing", "grouping"))
KILLS = 4


def live(rig: Breakable, path: str, state: str, number: str, kill: bool) -> None:
    """One driver, from its start to its end: killed within a second after it came into its state, or let go on."""
    driver = rig.tenant(path, state, number)
    try:
        with contextlib.ExitStack() as stack:
            if state == "queued":  # somebody has what it waits for
                stack.enter_context(VirtualCluster(flexible_resource_min={"CPU": 4}, timeout=60))
            assert driver.hear() == "there"
            if kill:
                rig.pause(0, rig.chance.choice([0.05, 1.0]))
                driver.kill()
        assert kill or (driver.hear() == "done" and driver.is_well())
    finally:
        driver.kill()


@pytest.mark.parametrize("states", PAIRS, ids=" and ".join)
def test_drivers_killed(states: tuple[str, ...], checker_of: Callable[[str], Checker], survived: Any) -> None:
    kills = 0
    with breakable(" ".join(states)) as rig:
        for faults in (False, True):
            checker = checker_of("faults" if faults else "calm")
            with checker.watching():
                for turn in range(part(KILLS) if faults else 1):
                    for state in states:
                        live(rig, str(checker.path), state, str(turn), faults)
                        kills += faults
            checker.settled()
    survived(drivers_killed=kills)


def test_every_state_is_killed_in() -> None:
    assert {state for pair in PAIRS for state in pair} == {*tenant.STATES} - {"late", "sharing"}
