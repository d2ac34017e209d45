"""Actors and tasks with leases inside virtual clusters: what is decided and not reported yet counts against the share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LeasedWorld, near, restarting, spec, wanted, wanted_task

from remora import actor_affinity, anti_affinity, label_in
from remora.port.contract import ENDED, JOB, Work
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL
from remora.wire.keys import CLUSTERS
from remora.wire.tokens import lease_token, share_token

TEN_MINUTES = 700.0


@pytest.fixture
def world() -> LeasedWorld:
    return LeasedWorld("n1", "n2")


def cat(cluster_id: str | None, cpus: float = 1) -> dict[str, Any]:
    return {"cpus": cpus, "cluster": cluster_id, "labels": {"type": "cat"}}


# An elastic cluster that was idle


@pytest.mark.parametrize("cpus", [0, 1])
@pytest.mark.parametrize("idle", [0, 10])
def test_an_actor_starts_in_an_elastic_cluster_however_long_that_was_idle(world: LeasedWorld, idle: int, cpus: float):
    """Also one of no CPU, which needs one only to be placed."""
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    world.pass_time(idle)
    work = world.submit(wanted(**cat(cluster_id, cpus)))
    world.port.wait(work.shapes[0])  # as Ray reports it while it waits
    world.pass_time(20, every=0.5)  # it takes its time: a worker process has to be started
    node_id = world.token_on(work)
    assert node_id is not None
    assert world.tokens(cluster_id) == {node_id: 1.0}
    assert world.let_start(work).node_ids == (node_id,)
    world.dies(work)
    assert world.failures() == {}


@pytest.mark.parametrize("cpus", [0, 1])
def test_an_actor_that_restarts_in_an_elastic_cluster_finds_its_share_again(world: LeasedWorld, cpus: float):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    work = world.start(**cat(cluster_id, cpus))
    world.pass_time(60)
    assert world.free(cluster_id) == 0
    waiting = world.stops(work)
    world.port.wait(waiting.shapes[0])
    world.pass_time(120)
    assert world.let_start(waiting).node_ids != ()


def test_an_actor_that_waits_for_another_keeps_its_cluster_from_being_taken_for_idle(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    dog = world.submit(wanted(cluster=cluster_id, scheduling_strategy=actor_affinity(label_in("type", ["cat"], False))))
    world.pass_time(60)
    leader = world.start(**cat(cluster_id))
    assert leader.node_ids != ()
    assert world.let_start(dog).node_ids == leader.node_ids


def test_what_is_decided_in_a_cluster_counts_against_its_maximum_before_any_report(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    nodes = [world.place(wanted(**cat(cluster_id)))[1] for _ in range(3)]
    assert [node is None for node in nodes] == [False, False, True]
    world.pass_time(2)
    assert sum(world.tokens(cluster_id).values()) == 2


# Restarts of the controller


def test_a_controller_starts_while_an_actor_waits_inside_a_cluster(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    alone = actor_affinity(label_in("type", ["dog"], False))
    work = world.submit(wanted(cluster=cluster_id, labels={"type": "cat"}, scheduling_strategy=alone))
    world.later(1)
    world.restart()
    assert world.clusters() == [cluster_id]
    assert not any("is gone" in text for text in world.events(cluster_id))  # it is the one that is remembered
    dog = world.start(cluster=cluster_id, labels={"type": "dog"})
    assert world.let_start(work).node_ids == dog.node_ids
    assert world.place(wanted(**cat(cluster_id)))[1] is None  # and has its maximum


@pytest.mark.parametrize("started", [True, False])
def test_a_controller_that_dies_over_a_start_in_a_cluster_is_survived_by_the_share(world: LeasedWorld, started: bool):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    work = world.start(**cat(cluster_id)) if started else world.submit(wanted(**cat(cluster_id)))
    world.restart()
    world.pass_time(20)
    if not started:
        work = world.let_start(work)
    assert world.tokens(cluster_id) == {work.node_ids[0]: 1.0}


def test_a_controller_starts_when_the_cluster_of_an_actor_that_restarts_is_gone(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    work = world.start(**cat(cluster_id, cpus=0))
    world.close(cluster_id)
    world.pass_time(TEN_MINUTES, every=10)
    waiting = world.stops(work)
    for _ in range(3):
        world.kill()
        world.port.put(CLUSTERS.key(cluster_id), None)  # whoever was before us has forgotten it
        world.restart()
        assert world.failures() == {}
    assert world.let_start(waiting).node_ids != ()


def test_a_controller_starts_when_the_cluster_of_a_task_is_gone(world: LeasedWorld):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    slot, _ = world.place(wanted_task(cpus=0, cluster=cluster_id, labels={"type": "cat"}), "q1")
    world.close(cluster_id)
    world.pass_time(TEN_MINUTES, every=10)
    for _ in range(3):
        world.kill()
        world.port.put(CLUSTERS.key(cluster_id), None)
        world.restart()
        assert world.failures() == {}
    world.ask(calls.GiveUp(slot, "q1"))
    world.pass_time(5)
    assert world.clusters() == []
    assert world.port.keys("lease/") == []


# Actors that outlive their cluster


@pytest.mark.parametrize("cpus", [0, 1])
@pytest.mark.parametrize("ended", ["the job", "the with"])
def test_an_actor_that_outlives_its_cluster_restarts_and_ends_as_any_other(world: LeasedWorld, ended: str, cpus: float):
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    work = world.start(**cat(cluster_id, cpus))
    if ended == "the job":
        world.job(JOB_ID, ENDED)  # the actor is detached, and lives on
    else:
        world.close(cluster_id)
    world.pass_time(TEN_MINUTES, every=10)
    work = world.restarts(work)
    assert work.node_ids != ()
    waiting = world.stops(work)
    world.dies(waiting)
    world.pass_time(TEN_MINUTES, every=10)
    assert world.clusters() == []
    assert world.failures() == {}
    assert world.all_tokens() == set()


def test_an_actor_that_never_started_ends_with_its_job(world: LeasedWorld):
    """The user presses Ctrl-C because nothing starts: whichever of the two messages comes first, rounds go on."""
    for job_first in (True, False):
        cluster_id = world.create(flexible_resource_max={"CPU": 2})
        world.pass_time(10)
        work = world.submit(wanted(**cat(cluster_id)))
        world.pass_time(5)
        ends = [Work(JOB, JOB_ID, "", JOB_ID, ENDED, "", ()), replace(work, state=ENDED, detail="DEAD", node_ids=())]
        for each in ends if job_first else reversed(ends):
            world.port.submit(each)
        world.pass_time(120)
        assert world.failures() == {}
        assert world.clusters() == []
        assert world.all_tokens() == set()
    world.port.join("n9", {"CPU": 4})
    world.ensure(spec())
    assert world.offers(spec()) == {"n1", "n2", "n9"}


@pytest.mark.parametrize("comes", [True, False])
def test_a_slot_whose_actor_is_not_created_yet_outlives_its_cluster(world: LeasedWorld, comes: bool):
    """GCS knows of no actor that was made in the cluster, so it goes with its job; whoever has the slot may still create it."""
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    asked = wanted(cluster=cluster_id, scheduling_strategy=actor_affinity(label_in("type", ["cat"], False)))
    slot, node_id = world.place(asked)
    assert node_id is None
    world.job(JOB_ID, ENDED)
    world.pass_time(2)
    if comes:
        work = world.created(slot, asked)
        leader = world.start(**cat(cluster_id))
        assert world.let_start(work).node_ids == leader.node_ids
        world.dies(work)
        world.dies(leader)
    world.pass_time(TEN_MINUTES, every=10)
    assert world.failures() == {}
    assert world.clusters() == []
    assert world.all_tokens() == set()


def test_a_slot_outlives_its_cluster_though_nobody_knows_the_actor_that_it_names(world: LeasedWorld):
    """It waits for what GCS says of that actor, as it would if it were asked for now."""
    other = world.start(**cat(None))
    cluster_id = world.create(fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 4}}]}])
    away = actor_affinity(anti_affinity(other.work_id))
    _, node_id = world.place(wanted(cluster=cluster_id, scheduling_strategy=away))
    assert node_id is not None
    world.port.hidden.add(other.work_id)
    world.dies(other)
    world.job(JOB_ID, ENDED)
    world.lose(node_id)
    world.pass_time(3)
    assert world.failures() == {}
    world.pass_time(60)
    assert world.clusters() == []
    assert world.all_tokens() == set()


# Moving together


def test_a_group_in_a_cluster_comes_back_together_where_its_cluster_has_a_share():
    world = LeasedWorld("n1", "n2", "n3")
    cluster_id = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    leader = world.start(cluster=cluster_id, labels={"who": "A"})
    friend = world.start(cluster=cluster_id, **near("A", "together"))
    assert leader.node_ids == friend.node_ids
    world.later(1)
    world.lose(leader.node_ids[0])
    world.later(1)
    back = [world.tell(restarting(work)) for work in (leader, friend)]
    world.pass_time(8)
    (node_id,) = world.tokens(cluster_id)
    assert [world.token_on(work) for work in back] == [node_id, node_id]
    assert [world.let_start(work).node_ids for work in back] == [(node_id,), (node_id,)]


def test_a_group_in_a_cluster_moves_together_from_a_node_that_it_may_not_stay_on():
    world = LeasedWorld("n1", "n2", "n3")
    cluster_id = world.create(flexible_resource_max={"CPU": 4})
    leader = world.start(cluster=cluster_id, labels={"who": "A"})
    friend = world.start(cluster=cluster_id, **near("A", "together"))
    home = leader.node_ids[0]
    assert friend.node_ids == (home,)
    world.taint(home, k="v")
    moved = world.restarts(leader)
    assert moved.node_ids not in ((), (home,))
    assert world.port.restarted == [friend.work_id]
    assert world.restarts(friend).node_ids == moved.node_ids
    world.pass_time(20)
    token = share_token(cluster_id, "CPU")
    assert world.total_on(moved.node_ids[0], token) == 2
    assert world.total_on(home, token) == world.held(home, token)  # somebody may be queued for it there


def test_the_token_of_a_lease_in_a_cluster_stands_where_its_share_stands(world: LeasedWorld):
    cluster_id = world.create(fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 1}}] * 3}])
    works = [world.submit(wanted(**cat(cluster_id))) for _ in range(3)]
    for work in works:
        (node_id,) = world.where(lease_token(work.labels[LEASE_LABEL]))
        assert world.free_on(node_id, share_token(cluster_id, "CPU")) >= 1
    assert all(world.let_start(work).node_ids for work in works)


# What goes wrong in between


def test_what_restarts_where_it_was_is_counted_once_though_another_moves_with_it():
    """What the first of them took was given back twice."""
    world = LeasedWorld("n1", "n2", cpus=2)
    cluster_id = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3})
    leader = world.start(cluster=cluster_id, labels={"who": "A"})
    friend = world.start(cluster=cluster_id, **near("A", "together"))
    world.pass_time(3)
    tell = world.controller.tell
    for work in (friend, leader):  # before any report
        tell(restarting(work))
        world.controller.validate()


def test_a_share_grows_for_a_lease_though_a_controller_died_over_that(world: LeasedWorld):
    """Its token stands, and what its cluster should have grown to was never remembered."""
    cluster_id = world.create(flexible_resource_max={"CPU": 1})
    remembered = world.port.get(CLUSTERS.key(cluster_id))
    work = world.submit(wanted(**cat(cluster_id)))
    node_id = world.token_on(work)
    assert node_id is not None
    world.kill()
    world.port.put(CLUSTERS.key(cluster_id), remembered)
    world.port.resize(node_id, {share_token(cluster_id, "CPU"): 0})
    world.restart()
    world.pass_time(20)
    assert world.tokens(cluster_id) == {node_id: 1.0}
    assert world.let_start(work).node_ids == (node_id,)


def test_what_a_report_gave_back_is_not_given_back_again_by_a_restart(world: LeasedWorld):
    """Somebody else has got it since."""
    cluster_id = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    first = world.start(**cat(cluster_id))
    world.pass_time(3)
    world.submit(wanted(**cat(cluster_id)))
    world.gives_back(first)
    world.round()  # the second is decided where the first was
    world.controller.tell(restarting(first))
    world.controller.validate()


def test_what_a_controller_before_us_decided_goes_elsewhere_when_others_have_its_share():
    """Its own share counted against it."""
    world = LeasedWorld("n1", "n2", cpus=1)
    world.port.take("n2", {"CPU": 1})
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    slot, node_id = world.place(wanted_task(cluster=cluster_id, labels={"type": "cat"}))
    assert node_id == "n1"
    world.round()
    world.port.take("n1", {"CPU": 1, share_token(cluster_id, "CPU"): 1})  # another of its cluster was faster
    world.restart()
    world.pass_time(3)
    world.port.give("n2", {"CPU": 1})
    world.pass_time(20)
    assert world.slot_on(slot) == "n2"


def test_what_a_controller_before_us_decided_is_given_to_nobody_else_after_a_restart():
    """Its token stands, and no report shows it: it counts all the same."""
    world = LeasedWorld("n1", cpus=1)
    cluster_id = world.create(fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 1}}]}])
    slot, node_id = world.place(wanted_task(cluster=cluster_id, labels={"type": "cat"}))
    waiting, nowhere = world.place(wanted_task(cluster=cluster_id, labels={"type": "cat"}))
    assert (node_id, nowhere) == ("n1", None)
    world.port.take("n1", {"CPU": 1})  # neither can start
    world.round()
    world.restart()
    world.pass_time(20)
    assert world.slot_on(slot) == "n1"
    assert world.slot_on(waiting) is None
