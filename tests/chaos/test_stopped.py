"""Processes that are stopped for half a minute, longer than any time of ours: nobody is dead, and nothing is decided wrongly
because somebody was late."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from tests.chaos import tally
from tests.chaos.breakable import Breakable, breakable, part, raylet_pid, repeatedly
from tests.chaos.checker import Checker
from tests.chaos.load import Counting, Load, twins

from remora.wire import timing

STOPPED_SECONDS = 31


def test_it_is_longer_than_every_time_that_somebody_waits() -> None:
    """But for classes that sleep, and for who is dead."""
    longest = max(
        timing.AWAY_SECONDS, timing.CLAIM_SECONDS, timing.PREDECESSOR_SECONDS, timing.GROUP_CREATED_SECONDS, timing.COOL_SECONDS
    )
    assert longest < STOPPED_SECONDS


def _pids(rig: Breakable, what: str) -> list[int]:
    return {
        "the controller": lambda: [rig.controller_pid()],
        "GCS": lambda: [rig.gcs_pid()],
        "a raylet": lambda: [raylet_pid(rig.nodes["a"])],
        "all workers": rig.worker_pids,
    }[what]()


@pytest.mark.parametrize("what", ["the controller", "GCS", "a raylet", "all workers"])
def test_stopped(what: str, checker_of: Callable[[str], Checker], survived: Any) -> None:
    """Amid a bit of everything, once."""
    seconds = part(STOPPED_SECONDS)
    with breakable(f"stopped {what}", is_quick=False) as rig:

        def stop() -> None:
            pids = _pids(rig, what)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        def life(load: Load, faults: bool) -> None:
            with repeatedly(stop, rig.chance, 1, 4, 1 if faults else 0) as stopped:
                load.run(part(10), stopped.is_over)

        figures = twins(rig, checker_of, life)
    assert figures["begun anew"] == 0  # nobody was taken for dead
    survived(seconds_stopped=seconds, **figures)


def test_a_driver_stopped_between_the_place_that_it_was_given_and_its_actor(
    checker_of: Callable[[str], Checker], survived: Any
) -> None:
    """Meanwhile others are given places. Then it creates its actor on what it was given: nobody else has that."""
    with breakable("late", is_quick=False) as rig:
        checker = checker_of("late")
        with checker.watching():
            driver = rig.tenant(str(checker.path), "late", "1")
            made: list[Any] = []
            try:
                slot = driver.hear().split()[1]
                until = time.monotonic() + STOPPED_SECONDS
                while time.monotonic() < until:
                    made.append(
                        Counting.options(labels={"kind": "other"}, num_cpus=0.1).remote(
                            str(checker.path), "other", f"{len(made)}"
                        )
                    )
                    assert ray.get(made[-1].count.remote(0), timeout=60) == 0
                    time.sleep(2)
                driver.signal(signal.SIGCONT)
                assert driver.hear()
                assert driver.hear() == "done"
                assert ray.get([each.count.remote(1) for each in made], timeout=60) == [1] * len(made)
            finally:
                driver.kill()
            for each in made:
                ray.kill(each)
        checker.settled()
        began = tally.names(checker.lines(), tally.BEGAN)
        assert len(began) == len(set(began)) == len(made) + 1
        assert slot
    survived(others_meanwhile=len(made))
