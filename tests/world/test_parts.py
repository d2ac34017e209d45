"""The parts of the world by themselves: do raylets, GCS and processes behave as Ray's do?"""

from __future__ import annotations

from typing import Any

import pytest
from tests.world.failure import Failure
from tests.world.gcs import ALIVE, DEAD, PENDING, RESTARTING, ActorEntry
from tests.world.groups import CREATED, GroupEntry
from tests.world.owning import DONE, Run
from tests.world.port import UnreachableError
from tests.world.processes import Driver, Worker
from tests.world.raylet import UNIT, Raylet, Request, Units, to_units
from tests.world.script import Actor, Options, Submits, Task
from tests.world.shrink import shrink
from tests.world.timeline import Chance, Timeline
from tests.world.world import World, node_id_of
from tests.world.writing import write

from remora.controller.answering import Reply
from remora.controller.effects import Done, Effect
from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.port.contract import ENDED, NodeGoneError, Observation, Work
from remora.wire.calls import Call, Enter
from remora.wire.classes import ClassSpec
from remora.wire.fences import FENCE_SECONDS, GO, fence_key, write_fence
from remora.wire.tokens import ACTORS, GROUPS, TAKEN, class_token

ONE = {"CPU": 1.0}


class Still:
    """A controller that answers everything with what it is given and does nothing."""

    settled = True

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    def report(self, observation: Observation) -> None: ...
    def tell(self, work: Work | None) -> None: ...
    def round(self) -> None: ...
    def validate(self) -> None: ...
    def done(self, done: Done) -> None: ...

    def plan(self) -> list[Effect]:
        return []

    def begin(self, call: Call) -> Still:
        self.calls.append(call)
        return self

    def poll(self) -> Reply | None:
        return None if self.answer is None else Reply(self.answer)


class Asking:
    """Whoever asks for a worker, and remembers what came of it."""

    job_id = ""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.failures = 0

    def granted(self, request: Request, worker: Worker) -> None:
        self.workers.append(worker)

    def failed(self, request: Request) -> None:
        self.failures += 1

    def lost(self, request: Request) -> None: ...


def make(*nodes: dict[str, float], answer: Any = "") -> tuple[World, list[Raylet], Driver]:
    world = World(7, lambda port, clock: Still(answer))
    raylets = [world.join(f"n{number}", resources, {}) for number, resources in enumerate(nodes)]
    driver = world.driver("job1", raylets[0].node_id)
    world.host.start()
    run(world, 0.5)
    return world, raylets, driver


def run(world: World, seconds: float) -> None:
    until = world.now + seconds
    while world.timeline.step(until):
        pass


def ask(
    world: World, owner: Asking, need: dict[str, float], wish: str | None = None, held: dict[str, float] | None = None
) -> None:
    request = Request(owner, "x", to_units(need), to_units(need if held is None else held), node_id_of("n0"), wish)
    world.send_request(request, node_id_of("n0"))


def task(driver: Driver, name: str, need: dict[str, float], **spec: Any) -> Run:
    made = Run(name, Task(name, **spec), driver, ONE, to_units(need), cluster=None)
    driver.world.register_run(made)
    driver.owning.submit(made)
    return made


# Raylets


def test_a_total_never_goes_below_what_is_in_use() -> None:
    _, (raylet,), _ = make(ONE)
    raylet.resize({"remora/x": 2})
    raylet.take((("remora/x", 2 * UNIT),))
    assert raylet.resize({"remora/x": 0})["remora/x"] == 2
    raylet.give((("remora/x", 2 * UNIT),))
    assert raylet.total["remora/x"] == 2 * UNIT  # what came back stays until it is resized again
    assert "remora/x" not in raylet.resize({"remora/x": 0})


def test_the_queue_takes_what_is_returned_in_the_same_moment() -> None:
    world, (raylet,), _ = make(ONE)
    first, second = Asking(), Asking()
    ask(world, first, ONE)
    run(world, 1)
    ask(world, second, ONE)
    run(world, 1)
    assert (len(first.workers), len(second.workers)) == (1, 0)
    first.workers[0].release()
    assert raylet.available["CPU"] == 0


def test_a_request_is_sent_to_a_node_with_room() -> None:
    world, raylets, _ = make(ONE, ONE)
    owner = Asking()
    ask(world, owner, ONE)
    ask(world, owner, ONE)
    run(world, 2)
    assert {worker.node_id for worker in owner.workers} == {raylet.node_id for raylet in raylets}


def test_a_wish_is_waited_for_where_the_node_could_ever_hold_it() -> None:
    world, raylets, _ = make(ONE, ONE)
    owner = Asking()
    ask(world, owner, ONE, node_id_of("n1"))
    ask(world, owner, ONE, node_id_of("n1"))
    run(world, 2)
    assert [worker.node_id for worker in owner.workers] == [raylets[1].node_id]


def test_what_no_node_can_hold_waits_without_harm() -> None:
    world, (raylet,), _ = make(ONE)
    owner = Asking()
    ask(world, owner, {"CPU": 1, "remora/x": 1})
    run(world, 5)
    assert not owner.workers
    assert not owner.failures
    raylet.resize({"remora/x": 1})
    run(world, 1)
    assert len(owner.workers) == 1


def test_what_is_queued_where_it_can_never_run_any_more_fails() -> None:
    world, (raylet,), _ = make(ONE)
    holder, owner = Asking(), Asking()
    raylet.resize({"remora/x": 1})
    ask(world, holder, ONE)
    run(world, 1)
    ask(world, owner, {"CPU": 1, "remora/x": 1})
    run(world, 1)
    raylet.resize({"remora/x": 0})
    run(world, 1)
    assert owner.failures == 1


def test_what_is_queued_moves_to_another_node_that_could_hold_it() -> None:
    world, raylets, _ = make(ONE, {"CPU": 1})
    holder, owner = Asking(), Asking()
    raylets[0].resize({"remora/x": 1})
    ask(world, holder, ONE, node_id_of("n0"))
    run(world, 1)
    ask(world, owner, {"CPU": 1, "remora/x": 1})
    run(world, 1)
    raylets[1].resize({"remora/x": 1})
    run(world, 1)  # before anybody has told it, it would fail
    raylets[0].resize({"remora/x": 0})
    run(world, 1)
    assert [worker.node_id for worker in owner.workers] == [raylets[1].node_id]


def test_a_queue_grants_by_what_work_holds_not_by_what_it_needs_to_be_placed() -> None:
    world, (raylet,), _ = make(ONE)
    holder, owner = Asking(), Asking()
    raylet.resize({"remora/x": 1})
    ask(world, holder, ONE)
    run(world, 1)
    ask(world, owner, {"CPU": 1, "remora/x": 1}, held=ONE)
    run(world, 1)
    raylet.resize({"remora/x": 1, "remora/y": 1})
    raylet.take((("remora/x", UNIT),))
    holder.workers[0].release()
    run(world, 1)
    assert len(owner.workers) == 1


def test_a_worker_that_waits_lends_its_cpu_and_takes_it_back_without_waiting() -> None:
    world, (raylet,), _ = make({"CPU": 1.0, "remora/x": 1.0})
    first, second = Asking(), Asking()
    ask(world, first, {"CPU": 1, "remora/x": 1})
    run(world, 1)
    first.workers[0].block()
    assert raylet.available == {"CPU": UNIT, "remora/x": 0}
    ask(world, second, ONE)
    run(world, 1)
    first.workers[0].unblock()
    assert raylet.available["CPU"] == -UNIT
    world.kill(first.workers[0], "test")
    assert raylet.available == {"CPU": 0, "remora/x": UNIT}


def test_a_worker_that_dies_while_it_waits_gives_back_what_it_had_left() -> None:
    world, (raylet,), _ = make(ONE)
    owner = Asking()
    ask(world, owner, ONE)
    run(world, 1)
    owner.workers[0].block()
    world.kill(owner.workers[0], "test")
    assert raylet.available == raylet.total
    assert world.host.port.ended([owner.workers[0].worker_id]) == [owner.workers[0].worker_id]


def test_a_dead_node_is_unreachable_until_gcs_has_found_out() -> None:
    world, _, _ = make(ONE, ONE)
    world.node_dies("n1")
    with pytest.raises(UnreachableError):
        world.host.port.resize(node_id_of("n1"), {})
    run(world, 3)
    with pytest.raises(NodeGoneError):
        world.host.port.resize(node_id_of("n1"), {})


# Owners


def test_a_worker_gets_the_next_task_of_its_line_without_anybody_being_asked() -> None:
    world, _, driver = make(ONE)
    runs = [task(driver, f"t{number}", ONE, seconds=0.05) for number in range(4)]
    run(world, 3)
    assert [each.state for each in runs] == [DONE] * 4
    told = [text for _, text, _ in world.story if text.startswith(("{} is granted", "{} starts"))]
    assert [text.startswith("{} starts") for text in told][:4] == [False, True, True, True]


def test_a_task_whose_worker_dies_is_submitted_again_as_often_as_it_may_be() -> None:
    world, _, driver = make(ONE)
    twice, once = task(driver, "twice", ONE, seconds=5.0, retries=1), task(driver, "once", ONE, seconds=0.1, retries=0)
    run(world, 1)
    assert twice.worker is not None
    world.kill(twice.worker, "test")
    run(world, 1)
    assert twice.worker is not None
    assert twice.worker.alive
    world.kill(twice.worker, "test")
    run(world, 1)
    assert twice.error
    assert once.state == DONE


def test_what_a_dead_process_has_submitted_ends_with_it() -> None:
    world, (raylet,), driver = make(ONE)
    task(driver, "runs", ONE, seconds=50.0)
    task(driver, "waits", ONE)
    run(world, 1)
    world.kill(driver, "test")
    run(world, 2)
    assert raylet.available == raylet.total
    assert not raylet.demands()
    assert world.host.port.find("job1") == []


# GCS


def make_actor(world: World, driver: Driver, name: str = "a", resources: Units | None = None, **spec: Any) -> ActorEntry:
    entry = ActorEntry(
        f"actor-{name}", Actor(name, Options(), **spec), "job1", driver, resources or to_units(ONE), {}, {"type": "cat"},
        cluster=None, wish=None, spread=False,
    )  # fmt: skip
    world.gcs.create_actor(entry)
    return entry


def test_an_actor_is_started_again_as_often_as_it_may_be() -> None:
    world, _, driver = make(ONE)
    entry = make_actor(world, driver, max_restarts=1)
    run(world, 1)
    assert entry.state == ALIVE
    world.host.port.restart(entry.actor_id)
    run(world, 0.15)
    assert entry.state in (RESTARTING, ALIVE)
    run(world, 1)
    assert entry.state == ALIVE
    assert entry.worker is not None
    world.kill(entry.worker, "test")
    run(world, 1)
    assert entry.state == DEAD


def test_a_detached_actor_outlives_its_job() -> None:
    world, _, driver = make({"CPU": 2.0})
    kept, lost = make_actor(world, driver, "kept", detached=True), make_actor(world, driver, "lost")
    run(world, 1)
    world.kill(driver, "test")
    run(world, 1)
    assert (kept.state, lost.state) == (ALIVE, DEAD)


def test_what_is_published_of_a_change_has_no_labels() -> None:
    world, _, driver = make(ONE)
    told: list[Work | None] = []
    world.host.feed = told.append  # type: ignore[assignment, method-assign]
    entry = make_actor(world, driver)
    run(world, 1)
    world.gcs.end_actor(entry, "test")
    actors = [work for work in told if work is not None and work.kind == "actor"]
    assert [(work.detail, dict(work.labels)) for work in actors] == [
        ("PENDING_CREATION", {"type": "cat"}),
        ("ALIVE", {}),
        ("DEAD", {}),
    ]
    assert world.host.port.find(entry.actor_id)[0].state == ENDED


def test_a_group_that_fits_no_node_is_looked_at_again_only_when_one_joins() -> None:
    world, (raylet,), _ = make(ONE)
    group = GroupEntry("g", "g", "job1", [to_units({"CPU": 1, "remora/x": 1})], "PACK")
    world.gcs.groups.create(group)
    run(world, 1)
    raylet.resize({"remora/x": 1})
    run(world, 30)
    assert group.state == "PENDING"
    world.join("n1", {"CPU": 1.0}, {})
    run(world, 1)
    assert group.state == CREATED
    assert group.nodes == [raylet.node_id]


def test_a_group_without_room_is_tried_again() -> None:
    world, (raylet,), _ = make(ONE)
    owner = Asking()
    ask(world, owner, ONE)
    run(world, 1)
    group = GroupEntry("g", "g", "job1", [to_units(ONE)], "PACK")
    world.gcs.groups.create(group)
    run(world, 2)
    owner.workers[0].release()
    run(world, 2)
    assert group.state == CREATED
    assert raylet.total["CPU_group_g"] == UNIT
    world.gcs.groups.remove("g")
    assert "CPU_group_g" not in raylet.total
    assert raylet.available == raylet.total


def test_a_group_that_lost_its_node_stops_all_others_while_it_has_no_room() -> None:
    world, raylets, _ = make({"CPU": 2.0}, {"CPU": 2.0})
    group = GroupEntry("g", "g", "job1", [to_units({"CPU": 2})], "PACK", detached=True)
    world.gcs.groups.create(group)
    run(world, 1)
    other = next(raylet for raylet in raylets if raylet.node_id not in group.nodes)
    lost = next(raylet for raylet in raylets if raylet.node_id in group.nodes)
    if lost.is_head:
        lost.is_head, other.is_head = False, True
    owner = Asking()
    world.send_request(Request(owner, "x", to_units(ONE), to_units(ONE), other.node_id), other.node_id)
    run(world, 1)
    world.node_dies("n0" if lost.node_id == node_id_of("n0") else "n1")
    run(world, 3)
    assert not world.host.port.hold("h", other.node_id, ONE)
    owner.workers[0].release()
    run(world, 1)
    assert group.state == CREATED
    assert world.host.port.observe().nodes[0].available["CPU"] == 0


@pytest.mark.parametrize(("strategy", "want"), [("STRICT_SPREAD", 2), ("STRICT_PACK", 1), ("PACK", 1), ("SPREAD", 2)])
def test_bundles_lie_as_their_strategy_says(strategy: str, want: int) -> None:
    world, _, _ = make({"CPU": 2.0}, {"CPU": 2.0})
    group = GroupEntry("g", "g", "job1", [to_units(ONE), to_units(ONE)], strategy)
    world.gcs.groups.create(group)
    run(world, 1)
    assert len(set(group.nodes)) == want


def test_a_hold_is_placed_by_what_was_reported_and_is_nobodys_after_it_was_let_go() -> None:
    world, (raylet,), _ = make(ONE)
    raylet.resize({"remora/x": 1})
    port = world.host.port
    assert not port.hold("h", raylet.node_id, {"remora/x": 1.0})  # not reported yet
    run(world, 1)
    assert port.hold("h", raylet.node_id, {"remora/x": 1.0})
    assert raylet.available["remora/x"] == 0
    assert [work.state for work in port.find("h")] == ["running"]
    port.let_go("h")
    assert raylet.available["remora/x"] == UNIT
    assert port.find("h") == []


# Processes


def test_a_fence_is_read_late_but_not_later_than_it_may_be() -> None:
    world, (raylet,), driver = make(ONE, answer=GO)
    task(driver, "before", ONE, seconds=0.01)
    run(world, 0.2)
    world.gcs.kv[fence_key(raylet.node_id)] = write_fence((), ["root"])
    world.fences[raylet.node_id] = (world.now - FENCE_SECONDS / 2, world.fences[raylet.node_id][1])
    early = task(driver, "early", ONE, seconds=0.01)
    run(world, FENCE_SECONDS / 2 - 0.01)
    assert early.state == DONE
    run(world, FENCE_SECONDS)
    task(driver, "late", ONE, seconds=0.01)
    run(world, 1)
    assert [type(call) for call in _brain(world).calls if isinstance(call, Enter)] == [Enter]


def test_a_worker_that_dies_over_its_marker_is_found_by_the_next() -> None:
    world, (raylet,), driver = make({"CPU": 2.0}, answer=GO)
    dead = Worker(world, "dead", raylet, "job1")
    world.markers[raylet.node_id] = {"dead": dead}
    dead.die()
    task(driver, "next", ONE)
    run(world, 1)
    (call,) = [call for call in _brain(world).calls if isinstance(call, Enter)]
    assert call.dead == ["dead"]
    assert not world.markers[raylet.node_id]


def test_a_call_is_sent_again_to_the_controller_after_one_that_died() -> None:
    world, _, driver = make(ONE, answer=None)
    answers: list[Any] = []
    world.host.send(driver, Enter(_who(), False, True, []), lambda value, error: answers.append((value, error)))
    run(world, 0.1)
    before = _brain(world)
    world.host.die()
    run(world, 0.1)
    assert not answers
    run(world, 3)
    assert _brain(world) is not before
    assert [type(call) for call in _brain(world).calls] == [Enter]


def test_who_stands_in_line_is_answered_nothing_after_a_while() -> None:
    world, _, driver = make(ONE, answer=None)
    answers: list[Any] = []
    world.host.send(driver, Enter(_who(), False, True, []), lambda value, error: answers.append((value, error)))
    run(world, 1.5)
    assert not answers
    run(world, 1.5)
    assert answers == [(None, None)]


def _who() -> Any:
    from remora.wire.calls import Who

    return Who("w", "vc1", node_id_of("n0"), {"CPU": 1.0})


def _brain(world: World) -> Still:
    assert isinstance(world.host.brain, Still)
    return world.host.brain


# Stories


def test_chance_depends_on_its_name_alone() -> None:
    first, second = Chance(1), Chance(1)
    first.of("somebody else")
    assert [first.of("me") for _ in range(3)] == [second.of("me") for _ in range(3)]
    assert Chance(2).of("me") != Chance(1).of("me")
    numbers = [Chance(seed).of("x") for seed in range(2000)]
    assert 0.45 < sum(numbers) / len(numbers) < 0.55


def test_time_goes_from_one_event_to_the_next() -> None:
    timeline, seen = Timeline(), list[str]()
    timeline.after(2.0, seen.append, "second")
    timeline.after(1.0, seen.append, "first")
    timeline.cancel(timeline.after(1.5, seen.append, "never"))
    while timeline.step(timeline.now + 10):
        pass
    assert seen == ["first", "second"]


def test_a_seed_is_one_script() -> None:
    assert write(3) == write(3)
    assert write(3) != write(4)


def test_a_story_is_shrunk_to_what_it_is_about() -> None:
    script = write(0)
    culprit = next(action for action in script if isinstance(action, Submits))
    short = shrink(script, lambda tried: any(isinstance(a, Submits) and a.task.name == culprit.task.name for a in tried))
    assert len(short) == 1
    assert short[0].at == culprit.at


def test_work_that_is_lost_is_a_failure() -> None:
    world, (raylet,), driver = make(ONE)
    raylet.resize({"remora/x": 1})
    task(driver, "holder", ONE, seconds=9.0)
    run(world, 1)
    task(driver, "queued", {"CPU": 1, "remora/x": 1})
    run(world, 1)
    with pytest.raises(Failure, match="work is lost"):
        raylet.resize({"remora/x": 0})


ACTORS_CLASS = ClassSpec((NodeClass(LabelSelector(), Tolerations()),), takers=ACTORS)


def _tainted(offered: float) -> tuple[World, Raylet, list[ActorEntry]]:
    """A node of two CPUs where one actor of a class runs, then tainted, with so much of the class offered on it; and another
    actor that waits."""
    world, (raylet,), driver = make({"CPU": 2.0})
    token = class_token(ACTORS_CLASS.class_id)
    raylet.resize({token: TAKEN})
    need = {"CPU": UNIT, token: 1}
    actors = [make_actor(world, driver, "a", need)]
    run(world, 1)
    world.checks.changes(raylet.node_id, {}, {"spot": "true"})()
    raylet.resize({token: offered})
    run(world, 1)
    actors.append(make_actor(world, driver, "b", need))
    for each in actors:
        each.node_class = ACTORS_CLASS
    return world, raylet, actors


def test_an_actor_that_starts_against_its_class_is_a_failure() -> None:
    world, _, _ = _tainted(offered=2 * TAKEN)
    with pytest.raises(Failure, match="a hard rule is broken"):
        run(world, 1)


def test_an_actor_may_get_what_another_has_just_given_back() -> None:
    world, _, (first, second) = _tainted(offered=0.0)
    run(world, 1)
    assert second.state == PENDING
    world.gcs.end_actor(first, "test")
    run(world, 1)
    assert second.state == ALIVE


def test_what_was_given_back_long_ago_is_nobodys_excuse() -> None:
    world, _, (first, second) = _tainted(offered=0.0)
    world.gcs.end_actor(second, "test")
    world.gcs.end_actor(first, "test")
    run(world, 10)
    third = make_actor(world, first.owner, "c", first.resources)  # type: ignore[arg-type]
    third.node_class = ACTORS_CLASS
    with pytest.raises(Failure, match="a hard rule is broken"):
        run(world, 1)


def test_a_group_that_is_reserved_against_its_class_is_a_failure() -> None:
    world, (raylet,), _ = make(ONE)
    spec = ClassSpec(ACTORS_CLASS.choices, takers=GROUPS)
    token = class_token(spec.class_id)
    raylet.resize({token: 1.0})
    world.checks.changes(raylet.node_id, {}, {"spot": "true"})()
    run(world, 1)
    world.gcs.groups.create(GroupEntry("g", "g", "job1", [{"CPU": UNIT, token: 1}], "PACK", classes=[spec]))
    with pytest.raises(Failure, match="a hard rule is broken"):
        run(world, 1)


def test_what_a_task_makes_that_is_tried_again_is_another_actor() -> None:
    world, _, _ = make(ONE)
    assert [world.new_actor_id("a"), world.new_actor_id("a"), world.new_actor_id("b")] == ["actor-a", "actor-a-2", "actor-b"]
