"""One life: a script is played, then the world goes quiet and is looked at, then everything ends and nothing may be left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.world import quiet
from tests.world.acting import Acting
from tests.world.brain import Make, Recovered
from tests.world.failure import Failure
from tests.world.script import Script
from tests.world.timeline import BEGIN
from tests.world.world import World

QUIET_SECONDS = 45.0
"""So long after the last action and fault everything that can start has started."""

SCALED_SECONDS = 40.0
"""And so much longer where machines may have to be started for it, one after the other."""

END_SECONDS = 900.0
"""So long after the last job has ended nothing is left: a cluster that is closed may serve late work for ten minutes."""

_MOST_EVENTS = 200_000
_MOST_EQUAL = 3
_DULL = ("again=True", "is answered None")


@dataclass
class Outcome:
    failure: Failure | None
    world: World
    events: int
    deaths: int

    @property
    def rule(self) -> str:
        return self.failure.rule if self.failure is not None else ""


def play(script: Script, seed: int, make: Make = Recovered) -> Outcome:
    """Play a script with the luck of a seed. The controller is validated after every one of its events."""
    world = World(seed, make)
    acting = Acting(world)
    for action in script:
        world.timeline.at(BEGIN + action.at, acting.act, action)
    failure: Failure | None = None
    try:
        _run(world, BEGIN + max((action.at for action in script), default=0.0))
        _go_quiet(world)
        quiet.check_waiting(world, acting)
        _end(world, acting)
        quiet.check_nothing_left(world)
    except Failure as error:
        failure = error
    return Outcome(failure, world, world.timeline.count, world.host.deaths)


def _go_quiet(world: World) -> None:
    world.weather.clear()
    world.note("-- from here on nothing goes wrong any more")
    for process in world.processes.values():
        process.dies_at = process.stops_at = None
    world.host.survive()
    _run(world, max(world.now, *(process.stopped_until for process in world.processes.values()), 0.0) + 4.0)
    _leap(world, world.now + QUIET_SECONDS + (SCALED_SECONDS if world.autoscaler is not None else 0.0), most=8.0)


def _end(world: World, acting: Acting) -> None:
    world.note("-- everything ends")
    for driver in acting.drivers.values():
        if driver.alive:
            world.kill(driver, "it is done")
    for seconds in (3.0, 5.0):  # a task that was just ending may have made one more, which outlives its job
        for entry in list(world.gcs.actors.values()):
            world.gcs.end_actor(entry, "its user ended it")
        _run(world, world.now + seconds)
    _leap(world, world.now + END_SECONDS, most=100.0)


def _run(world: World, until: float) -> None:
    before = world.timeline.count
    while world.timeline.step(until):
        if world.timeline.count - before > _MOST_EVENTS:
            raise Failure("the world does not come to rest", f"{_MOST_EVENTS} events by {world.now - BEGIN:.1f}")


def _leap(world: World, until: float, most: float) -> None:
    """Where nothing happens rounds are made more and more seldom."""
    while world.now < until:
        world.patience = min(world.patience * 2.0, most)
        _run(world, min(world.now + 5.0 * world.patience, until))
    world.patience = 1.0


def tell(outcome: Outcome) -> str:
    """The story as it happened."""
    told: Counter[str] = Counter()
    lines = []
    for when, text, args in outcome.world.story:
        line = _line(text, args)
        told[line] += 1
        if told[line] <= _MOST_EQUAL and not any(dull in line for dull in _DULL):
            lines.append(f"{when:9.4f}  {line}" + (" (and so on)" if told[line] == _MOST_EQUAL else ""))
    return "\n".join(lines)


def _line(text: str, args: tuple[Any, ...]) -> str:
    shown = text.format(*(arg.show() if hasattr(arg, "show") else arg for arg in args))
    return shown.replace("f" * 16 + "-", "")
