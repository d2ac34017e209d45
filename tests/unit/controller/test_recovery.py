"""A controller that comes after another: it knows what that knew, and what it cannot read stops nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LONELY, WITH_CAT, LeasedWorld, spec, wanted, wanted_task

from remora import label_in, label_not_in, object_affinity, task_affinity
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL
from remora.wire.fences import read_fence
from remora.wire.keys import (
    CLASSES,
    CLUSTERS,
    FENCES,
    GENERATION,
    HOLDS,
    JOURNAL,
    OBJECTS,
    OVERRIDES,
    TASK_LEASES,
    Kind,
    write_entry,
)
from remora.wire.timing import PREDECESSOR_SECONDS
from remora.wire.tokens import class_token, lease_token, share_token

PLAIN = spec()
TOKEN = class_token(PLAIN.class_id)


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2", "n3")


def test_a_restarted_controller_knows_what_runs_and_what_waits(world: LeasedWorld):
    cats = [world.start(**LONELY) for _ in range(4)]
    world.restart()
    fifth = world.start(**LONELY)
    assert fifth.node_ids == ()
    waiting = next(cat for cat in cats if not cat.node_ids)
    world.dies(next(cat for cat in cats if cat.node_ids))
    started = [work for work in (world.let_start(waiting), world.let_start(fifth)) if work.node_ids]
    assert len(started) == 1


def test_a_controller_killed_between_decision_and_start_changes_nothing(world: LeasedWorld):
    asked = wanted(**LONELY)
    slot, node_id = world.place(asked)
    world.restart()
    assert world.slot_on(slot) == node_id
    late = world.let_start(world.created(slot, asked))
    assert late.node_ids == (node_id,)
    others = [world.start(**LONELY) for _ in range(3)]
    assert sum(bool(other.node_ids) for other in others) == 2


def test_the_token_of_a_slot_that_nobody_came_for_is_taken_away_after_a_while(world: LeasedWorld):
    slot, _ = world.place(wanted(**LONELY))
    world.restart()
    world.pass_time(PREDECESSOR_SECONDS + 2)
    assert slot not in world.slots()


def test_a_labelled_task_counts_for_the_next_controller_until_it_is_done(world: LeasedWorld):
    beside = wanted_task(scheduling_strategy=task_affinity(label_in("stage", ["load"], False)))
    slot, node_id = world.place(wanted_task(labels={"stage": "load"}), "q1")
    world.restart()
    assert world.slot_on(slot) == node_id
    assert world.place(beside)[1] == node_id
    world.ask(calls.GiveUp(slot, "q1"))
    world.round()
    assert world.place(beside)[1] is None
    assert slot not in world.slots()


def test_what_waits_keeps_away_from_objects_that_the_controller_before_knew_of(world: LeasedWorld):
    world.ask(calls.PutObject("o1", (("type", "cat"),), "n1", "tests", JOB_ID))
    for node_id in ("n2", "n3"):
        world.port.take(node_id, {"CPU": 4})
    slot, decided = world.place(wanted_task(scheduling_strategy=object_affinity(label_not_in("type", ["cat"], False))), "q1")
    assert decided is None
    world.restart()
    assert world.slot_on(slot) is None
    world.port.give("n2", {"CPU": 4})
    world.round()
    assert world.slot_on(slot) == "n2"


def test_what_a_controller_gave_in_its_last_moment_counts_for_the_next_one(world: LeasedWorld):
    """Nothing of it is in any report yet."""
    slot, node_id = world.place(wanted(cpus=4, labels={"a": "b"}))
    world.created(slot, wanted(cpus=4, labels={"a": "b"}), claim=False)
    world.restart()
    nodes = [world.place(wanted(cpus=4, labels={"a": "b"}))[1] for _ in range(3)]
    assert sorted(map(str, nodes)) == sorted(map(str, {"n1", "n2", "n3", None} - {node_id}))


def test_what_the_first_controller_set_at_run_time_and_reserved_is_there_for_the_second(world: LeasedWorld):
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    cluster_id = world.create(flexible_resource_min={"CPU": 2})
    reserved = world.where(share_token(cluster_id, "CPU"))
    world.restart()
    assert world.offers(PLAIN) == {"n2", "n3"}
    assert world.total_on("n1", TOKEN) == 0.0001
    assert world.where(share_token(cluster_id, "CPU")) == reserved
    assert world.failures() == {}


# Entries that cannot be read

NEWER = write_entry(9, {})
GARBAGE = b"\xc1 what is this"
SPOILT: dict[str, tuple[Kind[Any], list[str]]] = {
    "a class": (CLASSES, ["abcdef"]),
    "a node": (OVERRIDES, ["n1"]),
    "a task": (TASK_LEASES, ["1.77"]),
    "an object": (OBJECTS, ["o7"]),
    "a cluster": (CLUSTERS, ["vc7"]),
    "a hold": (HOLDS, ["n1", "remora-hold-n1-7"]),
    "a fence": (FENCES, ["n3"]),
    "the generation": (GENERATION, []),
    "the journal": (JOURNAL, []),
}
WRONG = {"of a newer Remora": NEWER, "garbage": GARBAGE, "empty": b"", "of the wrong shape": write_entry(2, ["what"])}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("what", SPOILT)
def test_an_entry_that_cannot_be_read_is_named_and_everything_else_starts(world: LeasedWorld, what: str, how: str):
    world.host.allows_failures = True
    kind, parts = SPOILT[what]
    beside = wanted_task(scheduling_strategy=object_affinity(label_in("set", ["x"], False)))
    world.ensure(PLAIN)
    world.taint("n2", k="v")
    world.ask(calls.PutObject("o1", (("set", "x"),), "n3", "tests", JOB_ID))
    cluster_id = world.create(flexible_resource_min={"CPU": 2})
    cat, dog = world.start(**LONELY), world.submit(wanted(**WITH_CAT))
    task, task_on = world.place(wanted_task(labels={"stage": "load"}), "q1")
    key = kind.key(*parts)
    world.port.put(key, WRONG[how])
    world.restart(allows_failures=True)

    assert [error for (_, name), error in world.failures().items() if name == key] != []
    assert any(text.startswith("the entry is set aside") for text in world.events(key))
    assert world.offers(PLAIN) == {"n1", "n3"}
    assert world.place(beside)[1] == "n3"
    assert sum(world.where(share_token(cluster_id, "CPU")).values()) == 2
    assert world.why(cat) == f"it runs on {cat.node_ids[0]}"
    assert world.slot_on(task) == task_on
    assert world.place(wanted_task(labels={"stage": "load"}), "q1") == (task, task_on)
    assert world.let_start(dog).node_ids == cat.node_ids


@pytest.mark.parametrize("what", ["a class", "a node", "a task", "an object", "a cluster", "a hold", "a fence"])
def test_what_cannot_be_read_stays_in_the_store_for_whoever_can(world: LeasedWorld, what: str):
    kind, parts = SPOILT[what]
    world.port.put(kind.key(*parts), NEWER)
    world.restart(allows_failures=True)
    world.pass_time(30)
    if what not in ("a hold", "a fence"):  # nobody misses these: they are made anew
        assert world.port.get(kind.key(*parts)) == NEWER
    world.restart(allows_failures=True)
    assert world.place(wanted(**LONELY))[1] is not None


@pytest.mark.parametrize("key", ["hold/n1", "node/a/b", "fence/a/b", "lease/1.2/3", "object/", "vc/", "class/a/b"])
def test_a_key_that_nobody_writes_stops_nothing(world: LeasedWorld, key: str):
    world.ensure(PLAIN)
    world.port.put(key, b"what")
    world.restart(allows_failures=True)
    assert world.offers(PLAIN) == {"n1", "n2", "n3"}
    assert key in {name for _, name in world.failures()}


def test_a_body_that_is_not_understood_is_set_aside_by_name(world: LeasedWorld):
    world.port.put(CLASSES.key("abc"), write_entry(2, {"choices": "what"}))
    world.port.put(CLUSTERS.key("vc7"), write_entry(2, {"parent": None}))
    world.port.put(TASK_LEASES.key("1.7"), write_entry(2, {"job_id": JOB_ID, "request": "{}"}))
    world.restart(allows_failures=True)
    assert {("class", "abc"), ("virtual cluster", "vc7"), ("lease", "1.7")} <= world.failures().keys()
    assert world.place(wanted(**LONELY))[1] is not None


def test_the_name_of_a_cluster_that_cannot_be_read_is_given_to_no_other(world: LeasedWorld):
    world.port.put(CLUSTERS.key("vc1"), NEWER)
    world.restart(allows_failures=True)
    assert world.create(flexible_resource_min={"CPU": 1}) == "vc2"
    assert world.port.get(CLUSTERS.key("vc1")) == NEWER


def test_a_cluster_that_cannot_be_read_is_left_alone_though_its_work_goes_on(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    cat = world.start(cluster=cluster_id, labels={"type": "cat"})
    world.port.put(CLUSTERS.key(cluster_id), NEWER)
    world.restart(allows_failures=True)
    world.pass_time(10)
    assert world.restarts(cat).node_ids != ()
    assert world.port.get(CLUSTERS.key(cluster_id)) == NEWER


def test_a_fence_that_cannot_be_read_is_written_anew_for_the_workers(world: LeasedWorld):
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    for node_id in ("n1", "n2"):
        world.port.put(FENCES.key(node_id), NEWER)
    world.restart(allows_failures=True)
    assert read_fence(world.port.get(FENCES.key("n1"))).classes == {PLAIN.class_id}
    assert read_fence(world.port.get(FENCES.key("n2"))).classes == frozenset()


@pytest.mark.parametrize("lost", [None, GARBAGE])
def test_slots_of_before_are_not_given_again_though_the_generation_is_lost(world: LeasedWorld, lost: bytes | None):
    """Both are in use: a cat that runs, and a task."""
    cat = world.start(**LONELY)
    task, _ = world.place(wanted_task(labels={"a": "b"}))
    world.port.put(GENERATION.key(), lost)
    world.restart(allows_failures=True)
    given = {world.place(wanted(cpus=0.01, labels={"a": "b"}))[0] for _ in range(30)}
    assert given.isdisjoint({cat.labels[LEASE_LABEL], task})
    assert lease_token(task) in world.all_tokens()
