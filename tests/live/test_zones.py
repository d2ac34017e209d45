"""Zones and racks on the shared cluster, over a label that its nodes get at run time; six raylets are in tests/soak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from tests.live.conftest import World, eventually, waits

import remora
from remora import actor_affinity, affinity, anti_affinity, label_in, label_not_in, spread
from remora.live import installed
from remora.live.attach import install

ROOMS = {"head": "x", "a": "x", "b": "y", "gpu": "y"}
TOLERANT: dict[str, Any] = {"tolerations": {"gpu_node": "exists()"}}


class Guest:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def make(**options: Any) -> Any:
    return ray.remote(Guest).options(**{"num_cpus": 0, **options}).remote()


@pytest.fixture(autouse=True)
def rooms(world: World) -> Iterator[None]:
    for name, room in ROOMS.items():
        remora.label_node(world.ids[name], {"room": room})
    yield
    for name in ROOMS:
        remora.label_node(world.ids[name], {"room": None})


def rooms_of(world: World, actors: list[Any]) -> list[str]:
    return sorted(ROOMS[name] for name in world.names([actor.node.remote() for actor in actors]))


class Crowd:
    def __init__(self) -> None:
        self.made: list[Any] = []

    def make(self, count: int) -> None:
        apart = actor_affinity(label_not_in("crowd", ["here"], soft=False, topology="room"))
        self.made += [make(labels={"crowd": "here"}, scheduling_strategy=apart, **TOLERANT) for _ in range(count)]

    def placed(self) -> list[str]:
        started, _ = ray.wait([each.node.remote() for each in self.made], num_returns=len(self.made), timeout=0.2)
        return list(ray.get(started))


def test_twenty_from_five_processes_at_once_give_exactly_one_in_each_room(world: World) -> None:
    crowds: list[Any] = [ray.remote(Crowd).options(num_cpus=0).remote() for _ in range(5)]
    ray.get([crowd.make.remote(4) for crowd in crowds], timeout=120)

    def placed() -> list[str]:
        return sorted(ROOMS[world.name(node)] for nodes in ray.get([c.placed.remote() for c in crowds]) for node in nodes)

    eventually(lambda: len(placed()) >= 2)
    assert placed() == ["x", "y"]
    extra = make(
        labels={"crowd": "here"},
        scheduling_strategy="DEFAULT",
        affinity=actor_affinity("crowd not in [here] within room"),
        **TOLERANT,
    )
    reason = remora.explain(extra).reason
    assert reason == "0/4 nodes fit: 4 are in rooms x, y that already host an actor with crowd in (here)"
    # A further room, made by a label at run time: what waits is decided again, what runs stays.
    free = next(name for name in ("b", "gpu") if world.ids[name] not in [n for c in crowds for n in ray.get(c.placed.remote())])
    remora.label_node(world.ids[free], {"room": "z"})
    eventually(
        lambda: (
            len(ray.get(crowds[0].placed.remote()) + [n for c in crowds[1:] for n in ray.get(c.placed.remote())]) >= 3
            or not waits(extra.node.remote(), 1)
        )
    )
    for crowd in crowds:
        ray.kill(crowd)


def test_spread_in_one_strategy_and_near_and_far_by_handle(world: World) -> None:
    four = [make(labels={"app": "even"}, scheduling_strategy=spread(over="room"), **TOLERANT) for _ in range(4)]
    assert rooms_of(world, four) == ["x", "x", "y", "y"]
    first = four[0]
    near = make(scheduling_strategy=actor_affinity(affinity(first, topology="room")), **TOLERANT)
    far = make(scheduling_strategy=actor_affinity(anti_affinity([first, near], soft=False, topology="room")), **TOLERANT)
    mates = make(scheduling_strategy=actor_affinity(label_in("app", ["even"], topology="room")), **TOLERANT)
    assert rooms_of(world, [near]) == rooms_of(world, [first]) != rooms_of(world, [far])
    assert rooms_of(world, [mates])


def test_evenness_for_a_whole_job_reaches_actors_that_say_nothing(world: World) -> None:
    before: Any = installed.current()
    remora.init(spread=spread(over="room"))
    try:
        assert rooms_of(world, [make(**TOLERANT) for _ in range(4)]) == ["x", "x", "y", "y"]
    finally:
        install.install(before.submitter.defaults)
