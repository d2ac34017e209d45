"""Raylets, workers and the controller killed at random, amid a bit of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.breakable import breakable, part, repeatedly
from tests.chaos.checker import Checker
from tests.chaos.load import Load, twins

CheckerOf = Callable[[str], Checker]


def test_raylets_killed_at_random(checker_of: CheckerOf, survived: Any) -> None:
    kills = part(12)
    with breakable("raylets") as rig:

        def kill() -> None:
            name = rig.chance.choice([*rig.nodes])
            rig.kill_raylet(name)
            rig.pause(0, 2)
            rig.put_back(name)

        def life(load: Load, faults: bool) -> None:
            with repeatedly(kill, rig.chance, 0, 4, kills if faults else 0) as killed:
                load.run(part(10), killed.is_over)

        survived(raylets_killed=kills, **twins(rig, checker_of, life))


def test_workers_killed_at_random(checker_of: CheckerOf, survived: Any) -> None:
    kills = part(60)
    with breakable("workers") as rig:

        def life(load: Load, faults: bool) -> None:
            with repeatedly(rig.kill_worker, rig.chance, 0.1, 1.5, kills if faults else 0) as killed:
                load.run(part(10), killed.is_over)

        survived(workers_killed=kills, **twins(rig, checker_of, life))


def test_the_controller_killed_at_random(checker_of: CheckerOf, survived: Any) -> None:
    """A hundred times, half of them within half a second of its last start."""
    kills = part(100)
    with breakable("controller") as rig:
        last = [0]

        def kill() -> int:
            rig.pause(0, rig.chance.choice([0.5, 2.0]))
            last[0] = rig.kill_controller(last[0])
            return last[0]

        def life(load: Load, faults: bool) -> None:
            with repeatedly(kill, rig.chance, 0, 0, kills if faults else 0) as killed:
                load.run(part(10), killed.is_over)
            assert len(set(killed.done)) == len(killed.done)

        survived(controllers_killed=kills, **twins(rig, checker_of, life))
