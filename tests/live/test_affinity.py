"""Affinity between actors and tasks on the shared cluster: seeds 001 and 003 as typed, failover, and what must not go wrong."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import pytest
import ray
from tests.live.conftest import World, eventually, few, waits

import remora
from remora import (
    ActorAffinity,
    ActorAffinitySchedulingStrategy,
    LabelMatchExpression,
    LabelMatchOperator,
    actor_affinity,
    affinity,
    anti_affinity,
    label_does_not_exist,
    label_exist,
    label_exists,
    label_in,
    label_not_in,
    node_affinity,
    object_affinity,
    task_affinity,
)
from remora.live.adapter.ray_port import RayPort


class Actor:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        return os.getpid()

    def make(self, **options: Any) -> Any:
        """An actor inside an actor."""
        return ray.remote(Actor).options(num_cpus=0, **options).remote()


def make(**options: Any) -> Any:
    return ray.remote(Actor).options(**{"num_cpus": 0, **options}).remote()


def names(world: World, actors: list[Any]) -> list[str]:
    return world.names([actor.node.remote() for actor in actors])


@pytest.fixture(autouse=True)
def _clean(world: World) -> Any:
    """Every test leaves as it came: no actor, no lease token."""
    before = {work.work_id for work in RayPort().find(None)}
    yield
    for work in RayPort().find(None):
        # What a process made that is gone dies by itself, and we have no handle of it.
        if work.work_id not in before and work.name != "remora-controller":
            with contextlib.suppress(ray.exceptions.ActorHandleNotFoundError):
                ray._private.worker.global_worker.core_worker.kill_actor(ray.ActorID.from_hex(work.work_id), True)
    eventually(lambda: not lease_tokens())


def lease_tokens() -> list[str]:
    """The nodes with more of them than the few that are kept in reserve while leases are asked for."""
    counts = {view.node_id: sum(name.startswith("remora/lease/") for name in view.total) for view in RayPort().observe().nodes}
    return [node_id for node_id, count in counts.items() if count > 4]


NOT_A_CAT = [LabelMatchExpression("type", LabelMatchOperator.NOT_IN, ["cat"], False)]
TOLERANT: dict[str, Any] = {"tolerations": {"gpu_node": "exists()"}}  # so that all four nodes may be used


@pytest.mark.core
def test_spread_co_locate_and_both_as_in_seed_001(world: World) -> None:
    cats = []
    for i in range(4):
        strategy = ActorAffinitySchedulingStrategy(NOT_A_CAT)
        cats.append(make(labels={"type": "cat", "id": "cat-" + str(i)}, scheduling_strategy=strategy, **TOLERANT))
    homes = names(world, cats)
    assert sorted(homes) == ["a", "b", "gpu", "head"]
    for i in (1, 3):
        near = [LabelMatchExpression("id", LabelMatchOperator.IN, ["cat-" + str(i)], False)]
        dog = {"labels": {"type": "dog"}, "scheduling_strategy": ActorAffinitySchedulingStrategy(near), **TOLERANT}
        dogs = [make(**dog) for _ in range(2)]
        assert names(world, dogs) == [homes[i]] * 2


SPELLINGS: dict[str, Any] = {
    "label_in": lambda: actor_affinity(label_in("location", ["dc_1"], False)),
    "two expressions": lambda: actor_affinity([label_in("location", ["dc_1"], False), label_exists("location", False)]),
    "label_exist": lambda: actor_affinity(label_exist("location", False)),
    "tuples": lambda: ActorAffinity(
        [("location", LabelMatchOperator.IN, ["dc_1"], False), ("location", LabelMatchOperator.Exist)]
    ),
    "SQL": lambda: ActorAffinity("location in [dc_1, dc_2]"),
    "or": lambda: actor_affinity([label_in("location", ["dc_1"], False), label_in("x", ["y"], False)], is_or_semantics=True),
}


@pytest.mark.parametrize("name", few(SPELLINGS, "two expressions", "SQL"))
def test_an_actor_joins_another_by_its_labels_written_as(name: str, world: World) -> None:
    first = make(labels={"location": "dc_1"}, label_selector={"zone": "b"})
    assert names(world, [first, make(scheduling_strategy=SPELLINGS[name]())]) == ["b", "b"]


def test_keeping_away_in_every_spelling(world: World) -> None:
    there = make(labels={"location": "dc_1"}, label_selector={"zone": "a"})
    away = (label_not_in("location", ["dc_1"], False), label_does_not_exist("location", False))
    for strategy in map(actor_affinity, away):
        actor = make(scheduling_strategy=strategy, affinity=node_affinity(label_in("zone", ["a", "b"], False)))
        assert names(world, [there, actor]) == ["a", "b"]


@pytest.mark.core
def test_handles_as_in_seed_003(world: World) -> None:
    actor_0 = make()
    actor_1 = make(scheduling_strategy=actor_affinity(affinity(actor_0, False)))
    actor_2 = make(scheduling_strategy=actor_affinity(affinity([actor_0, actor_1], False)))
    actor_3 = make(scheduling_strategy=actor_affinity(anti_affinity(actor_0, False)))
    actor_4 = make(scheduling_strategy=actor_affinity([anti_affinity(actor_0, False), anti_affinity(actor_3, False)]))
    home, one, two, three, four = names(world, [actor_0, actor_1, actor_2, actor_3, actor_4])
    assert one == two == home
    assert len({home, three, four}) == 3


def test_an_actor_waits_for_one_that_is_not_there_yet_and_says_which_case_it_is(world: World) -> None:
    eager = make(scheduling_strategy=actor_affinity(label_in("who", ["late"], False)))
    answer = eager.node.remote()
    assert waits(answer, 0.5)
    why = remora.explain(eager)
    assert why.reason == (
        "0/4 nodes fit: 1 has the untolerated taint gpu_node=true, 3 host no actor with who in (late); "
        "no actor with who in (late) is placed anywhere"
    )
    hog = make(num_cpus=2, labels={"who": "late"}, label_selector={"zone": "b"})
    assert world.names([hog.node.remote(), answer]) == ["b", "b"]
    full = make(num_cpus=1, scheduling_strategy=actor_affinity(label_in("who", ["late"], False)))
    blocked = full.node.remote()
    assert waits(blocked, 0.5)
    eventually(lambda: "1 lacks 1 CPU" in remora.explain(full).reason)
    ray.kill(hog)
    assert waits(blocked, 0.5)
    moved = make(labels={"who": "late"}, label_selector={"zone": "a"})
    assert names(world, [moved]) == ["a"]
    assert world.names([blocked]) == ["a"]


@pytest.mark.core
def test_failover_as_in_seed_003_by_killing_workers(world: World) -> None:
    kept = {"max_restarts": -1, "max_task_retries": -1}
    first = make(labels={"who": "A"}, label_selector={"zone": "in(a, b)"}, **kept)
    second = make(scheduling_strategy=actor_affinity(label_in("who", ["A"], False)), **kept)
    home, with_it = names(world, [first, second])
    assert with_it == home
    remora.taint_node(world.ids[home], {"k": "v"})
    try:
        os.kill(ray.get(first.pid.remote()), signal.SIGKILL)
        (away,) = names(world, [first])
        assert {home, away} == {"a", "b"}
        assert names(world, [second]) == [home]  # it is not affected
        os.kill(ray.get(second.pid.remote()), signal.SIGKILL)
        assert names(world, [second]) == [away]
    finally:
        remora.untaint_node(world.ids[home], ["k"])


def test_failover_by_killing_a_node_keeps_handle_and_rules(world: World) -> None:
    kept: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1}
    with world.extra("x", num_cpus=1, labels={"zone": "x"}):
        kept["fallback_strategy"] = [{"label_selector": {"zone": "b"}}]
        first = make(labels={"who": "N"}, label_selector={"zone": "x"}, **kept)
        second = make(label_selector={"zone": "x"}, scheduling_strategy=actor_affinity(label_in("who", ["N"], False)), **kept)
        assert names(world, [first, second]) == ["x", "x"]
    assert names(world, [first, second]) == ["b", "b"]


class Breeder:
    """A process that makes cats."""

    def __init__(self) -> None:
        self.cats: list[Any] = []
        self.answers: list[Any] = []

    def breed(self, count: int) -> None:
        lonely = {"labels": {"type": "cat"}, "scheduling_strategy": actor_affinity(label_not_in("type", ["cat"], False))}
        self.cats += [make(**lonely, **TOLERANT) for _ in range(count)]
        self.answers += [cat.node.remote() for cat in self.cats]

    def placed(self) -> list[str]:
        return list(ray.get(ray.wait(self.answers, num_returns=len(self.answers), timeout=0)[0])) if self.answers else []

    def kill_one(self) -> None:
        (done,) = ray.wait(self.answers, timeout=0)[0]
        at = self.answers.index(done)
        ray.kill(self.cats.pop(at))
        self.answers.pop(at)


def test_fifty_cats_from_five_processes_at_once_give_exactly_one_on_each_node(world: World) -> None:
    breeders = [ray.remote(Breeder).options(num_cpus=0).remote() for _ in range(5)]
    ray.get([breeder.breed.remote(10) for breeder in breeders], timeout=120)

    def placed() -> list[str]:
        return sorted(world.name(node) for nodes in ray.get([b.placed.remote() for b in breeders]) for node in nodes)

    eventually(lambda: len(placed()) >= 4)
    waiting = [work for work in RayPort().find(None) if work.labels.get("type") == "cat" and work.state == "waiting"]
    assert len(waiting) == 46
    reason = "0/4 nodes fit: 4 already host an actor with type in (cat)"
    assert {remora.explain(work.work_id).reason for work in waiting[:5]} == {reason}
    assert placed() == ["a", "b", "gpu", "head"]
    rich = next(breeder for breeder in breeders if ray.get(breeder.placed.remote()))
    ray.get(rich.kill_one.remote())
    eventually(lambda: placed() == ["a", "b", "gpu", "head"])
    assert sum(work.labels.get("type") == "cat" for work in RayPort().find(None)) == 49
    for breeder in breeders:
        ray.kill(breeder)


def test_the_controller_killed_between_decision_and_start(world: World) -> None:
    controller = ray.get_actor("remora-controller", namespace="remora")
    pid = ray.get(controller.pid.remote())
    lonely = {"labels": {"type": "c2"}, "scheduling_strategy": actor_affinity(label_not_in("type", ["c2"], False))}
    cats = [make(**lonely)]
    os.kill(pid, signal.SIGKILL)
    cats += [make(**lonely) for _ in range(3)]
    answers = [cat.node.remote() for cat in cats]
    started, left = ray.wait(answers, num_returns=3, timeout=90)
    assert sorted(world.names(started)) == ["a", "b", "head"]
    assert waits(left[0], 1)


def test_named_detached_and_nested_actors_and_handles_that_travelled(world: World) -> None:
    home = make(labels={"who": "home"}, label_selector={"zone": "b"}, name="home", lifetime="detached")
    again = make(labels={"who": "home"}, name="home", lifetime="detached", get_if_exists=True)
    assert names(world, [home, again]) == ["b", "b"]
    outer = make(label_selector={"zone": "a"})
    inner = ray.get(outer.make.remote(scheduling_strategy=actor_affinity(affinity(home, False))))
    assert names(world, [inner]) == ["b"]

    def from_a_task(handle: Any) -> str:
        near = make(scheduling_strategy=actor_affinity(affinity(handle, False)))
        return str(ray.get(near.node.remote()))

    assert world.names([ray.remote(num_cpus=0)(from_a_task).remote(home)]) == ["b"]
    with pytest.raises(ValueError, match="home"):
        make(labels={"who": "home"}, name="home")
    eventually(lambda: not lease_tokens())


@pytest.mark.core
def test_tasks_have_labels_and_affinity_too(world: World, where: Any) -> None:
    slow = where.options(num_cpus=0, labels={"stage": "load"}, label_selector={"zone": "b"}).remote(2.0)
    near = where.options(num_cpus=0, scheduling_strategy=task_affinity(label_in("stage", ["load"], False)))
    assert world.names([near.remote()]) == ["b"]
    assert world.names([slow]) == ["b"]
    late = eventually(lambda: ref if waits(ref := near.remote(), 0.5) else None)  # the label is gone a moment after the task
    ray.cancel(late)


def test_create_and_kill_leave_no_token_and_no_growth_in_names(world: World) -> None:
    slots: set[str] = set()
    for _ in range(3):
        actors = [make(labels={"type": "mayfly"}) for _ in range(2)]
        slots.update(work.labels["remora.io/lease"] for work in RayPort().find(None) if "remora.io/lease" in work.labels)
        for actor in actors:
            ray.kill(actor)
        eventually(lambda: not lease_tokens())
    assert len(slots) <= 16  # the long test makes 500


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a label": ({"labels": {"-x": "y"}}, "-x"),
    "the reserved label": ({"labels": {"actor_id": "y"}}, "set by Remora"),
    "a strategy": ({"affinity": 3}, "not a scheduling strategy"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_the_call(name: str, world: World) -> None:
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make(**options)


def moved_by_taint(world: World, leader: Any, home: str) -> None:
    """The leader restarts elsewhere: its node is tainted and its process killed."""
    remora.taint_node(world.ids[home], {"k": "v"})
    os.kill(ray.get(leader.pid.remote()), signal.SIGKILL)
    eventually(lambda: names(world, [leader]) != [home])


@pytest.mark.parametrize("on_failover", ["follow", "together"])
def test_on_failover_an_actor_goes_where_the_one_it_joined_went(on_failover: str, world: World) -> None:
    kept: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "num_cpus": 0.1}
    leader = make(labels={"who": "L"}, label_selector={"zone": "in(a, b)"}, **kept)
    strategy = actor_affinity(label_in("who", ["L"], False), on_failover=on_failover)
    friend = make(scheduling_strategy=strategy, **kept)
    home, with_it = names(world, [leader, friend])
    assert home == with_it
    try:
        moved_by_taint(world, leader, home)
        eventually(lambda: len(set(names(world, [leader, friend]))) == 1)
        assert names(world, [friend]) != [home]
    finally:
        remora.untaint_node(world.ids[home], ["k"])


class Keeper:
    def keep(self) -> None:
        self.reference = remora.put(b"x" * 1_000_000, labels={"set": "big"})

    def drop(self) -> None:
        del self.reference


@pytest.mark.core
def test_work_goes_where_an_object_lies_for_as_long_as_it_does(world: World, where: Any) -> None:
    keeper = ray.remote(Keeper).options(num_cpus=0, label_selector={"zone": "b"}).remote()
    beside = object_affinity(label_in("set", ["big"], False))
    task = where.options(num_cpus=0, scheduling_strategy=beside).remote()
    assert waits(task, 0.5)
    ray.get(keeper.keep.remote())
    actor = make(scheduling_strategy=beside)
    assert world.names([task, actor.node.remote()]) == ["b", "b"]
    other = where.options(num_cpus=0, scheduling_strategy=object_affinity(label_in("set", ["small"], False))).remote()
    assert waits(other, 1.5)  # references are looked at twice a second, and this one is still held
    ray.cancel(other)
    assert world.names([where.options(num_cpus=0, scheduling_strategy=beside).remote()]) == ["b"]
    ray.get(keeper.drop.remote())
    eventually(lambda: not RayPort().keys("object/"))
    late = where.options(num_cpus=0, scheduling_strategy=beside).remote()
    assert waits(late, 1)
    ray.cancel(late)
