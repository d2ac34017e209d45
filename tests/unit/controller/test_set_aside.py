"""One bad thing stops nobody else: it is named in the status and in the journal, left alone for a moment, and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LONELY, LeasedWorld, spec, wanted, wanted_task

from remora.controller.clusters import growing
from remora.controller.clusters.admission import Admission
from remora.controller.leases.lease_tokens import LeaseTokens
from remora.controller.leases.leases import Leases
from remora.controller.tokens import class_tokens
from remora.kernel import cycle
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.port.contract import ENDED
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL

PLAIN = spec()
IN_A = spec(label_selector={"zone": "a"})
BAD: dict[str, Any] = {"labels": {"who": "bad"}}
GOOD: dict[str, Any] = {"labels": {"who": "good"}}


class BadLuckError(Exception):
    """What no rule foresees."""


@pytest.fixture
def world() -> LeasedWorld:
    world = LeasedWorld("n1", "n2", "n3")
    world.host.allows_failures = True
    return world


def broken(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_bad: Callable[..., bool]) -> None:
    """From now on a function fails for some arguments, until the patch is undone."""
    whole = getattr(owner, name)

    def fails(*args: Any, **kwargs: Any) -> Any:
        if is_bad(*args, **kwargs):
            raise BadLuckError(f"{name} failed")
        return whole(*args, **kwargs)

    monkeypatch.setattr(owner, name, fails)


def bad_labels(_: Any, __: Any, labels: Any, *___: Any) -> bool:
    return dict(labels) == BAD["labels"]


def told(world: LeasedWorld, subject: str) -> list[str]:
    return [text for text in world.events(subject) if "set aside" in text]


# A lease


def test_a_lease_that_cannot_be_decided_about_waits_alone(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        broken(patch, cycle, "decide", bad_labels)
        slot, node_id = world.place(wanted(**BAD))
        bad = world.created(slot, wanted(**BAD))
        assert node_id is None
        assert [world.start(**GOOD).node_ids != () for _ in range(3)] == [True] * 3
        world.ensure(PLAIN)
        world.port.join("n4", {"CPU": 4})
        world.pass_time(80)
        assert world.offers(PLAIN) == {"n1", "n2", "n3", "n4"}
        assert world.failures() == {("lease", bad.work_id): "BadLuckError: decide failed"}
        assert len([text for text in world.events() if "decide failed" in text]) == 1  # though it was tried again and again
    world.pass_time(60)
    assert world.let_start(bad).node_ids != ()
    assert world.failures() == {}


def test_equal_ones_are_not_held_up_by_the_one_before_them(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    for name in ("n1", "n2", "n3"):
        world.port.take(name, {"CPU": 4})
    first, second = (world.submit(wanted(**GOOD)) for _ in range(2))
    broken(monkeypatch, cycle, "decide", lambda *args: args[-1] == first.work_id)
    world.port.give("n1", {"CPU": 4})
    world.pass_time(1)
    assert world.let_start(second).node_ids == ("n1",)
    assert world.let_start(first).node_ids == ()
    assert ("lease", first.work_id) in world.failures()


def test_a_lease_that_cannot_be_moved_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    bad, good = world.submit(wanted(cpus=4, **BAD)), world.submit(wanted(cpus=4, **GOOD))
    for work in (bad, good):
        world.port.take(world.token_on(work) or "", {"CPU": 1})
    (room,) = {"n1", "n2", "n3"} - {world.token_on(bad), world.token_on(good)}
    broken(monkeypatch, Cluster, "release", lambda _, workload: workload.workload_id == bad.work_id)
    world.pass_time(20)
    assert world.let_start(good).node_ids == (room,)
    assert any("release failed" in error for error in world.failures().values())


def test_a_lease_that_cannot_be_confirmed_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        broken(patch, Cluster, "confirm", lambda _, workload: dict(workload.labels) == BAD["labels"])
        bad, good = world.start(**BAD), world.start(**GOOD)
        world.pass_time(5)
        world.dies(good)
        assert world.start(**GOOD).node_ids != ()
        assert ("lease", bad.labels[LEASE_LABEL]) in world.failures()
    world.pass_time(5)
    assert world.failures() == {}


# A class


def test_a_class_of_which_it_cannot_be_said_where_it_is_offered_stops_no_other(
    world: LeasedWorld, monkeypatch: pytest.MonkeyPatch
):
    world.ensure(PLAIN)
    world.label("n1", zone="a")
    world.ensure(IN_A)
    with monkeypatch.context() as patch:
        broken(patch, class_tokens, "offered", lambda _, choices, *__: choices == IN_A.choices)
        world.taint("n3", k="v")
        world.port.join("n4", {"CPU": 4}, {"zone": "a"})
        world.pass_time(3)
        assert world.offers(PLAIN) == {"n1", "n2", "n4"}
        assert world.offers(IN_A) == {"n1"}  # as it was
        assert world.failures() == {("class", IN_A.class_id): "BadLuckError: offered failed"}
        assert len(told(world, IN_A.class_id)) == 1
    world.pass_time(60)
    assert world.offers(IN_A) == {"n1", "n4"}
    assert world.failures() == {}


# A node


@pytest.mark.parametrize("what", ["observe_node", "add_node", "remove_node"])
def test_a_node_that_cannot_be_taken_in_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch, what: str):
    world.ensure(PLAIN)
    with monkeypatch.context() as patch:
        broken(patch, Cluster, what, lambda _, node, *__: getattr(node, "node_id", node) in ("n3", "n4"))
        world.port.join("n4", {"CPU": 4})
        world.port.join("n5", {"CPU": 4})
        world.lose("n3")
        world.pass_time(5)
        assert {"n1", "n2", "n5"} <= world.offers(PLAIN)
        if what != "remove_node":
            assert [world.start(cpus=4, **GOOD).node_ids != () for _ in range(3)] == [True] * 3
        bad = "n3" if what == "remove_node" else "n4"
        assert world.failures()[("node", bad)] == f"BadLuckError: {what} failed"
        assert len(told(world, bad)) == 1
    world.pass_time(60)
    assert world.offers(PLAIN) == {"n1", "n2", "n4", "n5"}
    assert sorted(row["node_id"] for row in world.status()["nodes"]) == ["n1", "n2", "n4", "n5"]
    assert world.failures() == {}


def test_a_node_that_does_not_know_what_to_write_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        broken(patch, class_tokens.ClassTokens, "changes", lambda _, node_id, __: node_id == "n2")
        world.ensure(PLAIN)
        assert world.offers(PLAIN) == {"n1", "n3"}
        world.pass_time(30)
        assert world.failures() == {("node", "n2"): "BadLuckError: changes failed"}
        assert len(told(world, "n2")) == 1
    world.pass_time(60)
    assert world.offers(PLAIN) == {"n1", "n2", "n3"}
    assert world.failures() == {}


def test_a_node_that_does_not_answer_holds_nobody_up(world: LeasedWorld):
    world.port.unwritable = {"n2"}
    world.ensure(PLAIN)
    world.pass_time(5)
    assert world.offers(PLAIN) == {"n1", "n3"}
    assert world.failures() == {("effect", "n2"): "OSError: the raylet does not answer"}
    began = world.time
    found = world.ask_in_time(world.creation(flexible_resource_max={"CPU": 1}))
    assert (found["state"], world.time) == ("READY", began)
    assert world.taint("n1", k="v") is True
    world.port.unwritable = set()
    world.pass_time(3)
    assert world.offers(PLAIN) == {"n2", "n3"}
    assert world.failures() == {}


# An actor, a worker, a job


def test_an_actor_whose_news_cannot_be_taken_in_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    bad, good = world.start(**BAD), world.start(**GOOD)
    cat = world.submit(wanted(**LONELY))
    with monkeypatch.context() as patch:
        broken(patch, cycle.Scheduler, "finish", lambda _, workload: workload.workload_id == bad.work_id)
        world.dies(bad)
        world.dies(good)
        assert world.failures() == {("actor", bad.work_id): "BadLuckError: finish failed"}
        assert told(world, bad.work_id) != []
        assert world.let_start(cat).node_ids != ()
        assert world.start(**GOOD).node_ids != ()
    world.pass_time(40)  # it is looked up, and ended
    assert bad.labels[LEASE_LABEL] not in world.controller.leases.by_slot
    assert world.failures() == {}


@pytest.mark.parametrize("whose", ["worker", "job"])
def test_the_end_of_one_worker_or_job_that_cannot_be_taken_in_stops_no_other(
    world: LeasedWorld, monkeypatch: pytest.MonkeyPatch, whose: str
):
    slot, _ = world.place(wanted_task(**BAD), worker_id="w1")
    other, _ = world.place(wanted_task(**GOOD), worker_id="w2", job_id="j2")
    whole = Leases._end

    def fails(leases: Leases, lease: Any) -> None:
        if lease.slot == slot:
            raise BadLuckError("end failed")
        whole(leases, lease)

    with monkeypatch.context() as patch:
        patch.setattr(Leases, "_end", fails)
        for worker_id, job_id in (("w1", JOB_ID), ("w2", "j2")):
            if whose == "worker":
                world.worker_ended(worker_id)
            else:
                world.job(job_id, ENDED)
        world.pass_time(2)
        assert (slot in world.slots(), other in world.slots()) == (True, False)
        assert (whose, "w1" if whose == "worker" else JOB_ID) in world.failures()


# A virtual cluster, a step, a call


def test_a_virtual_cluster_that_cannot_be_tended_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    bad, good = (world.create(flexible_resource_max={"CPU": 1}) for _ in range(2))
    for cluster_id in (bad, good):
        world.want(cluster_id)
    with monkeypatch.context() as patch:
        broken(patch, shares, "trim_one", lambda _, vcluster: vcluster.cluster_id == bad)
        world.pass_time(10)
        assert (world.free(bad), world.free(good)) == (1, 0)
        assert world.failures() == {("virtual cluster", bad): "BadLuckError: trim_one failed"}
    world.pass_time(60)
    assert world.free(bad) == 0
    assert world.failures() == {}


def test_a_minimum_of_which_it_cannot_be_said_who_has_it_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    greedy = world.create(flexible_resource_max={"CPU": 12})
    world.want(greedy, 12)
    for node_id, amount in world.tokens(greedy).items():
        for _ in range(int(amount)):
            world.run(greedy, node_id)
    bad, good = (world.create(flexible_resource_min={"CPU": 4}) for _ in range(2))
    with monkeypatch.context() as patch:
        broken(patch, growing, "reclaim", lambda _, vcluster, *__: vcluster.cluster_id == bad)
        world.later(1)
        assert world.failures() == {("virtual cluster", bad): "BadLuckError: reclaim failed"}
        assert any(greedy in world.fence(node_id) for node_id in ("n1", "n2", "n3"))
    assert world.state(good) == "QUEUED"


def test_a_worker_that_cannot_be_admitted_stops_no_other(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    cluster_id = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    (node_id, *_) = world.tokens(cluster_id)
    for worker_id in ("bad", "good"):
        world.run(cluster_id, node_id)
        world.lend(worker_id, cluster_id, node_id)
    with monkeypatch.context() as patch:
        broken(patch, Admission, "_may_go_on", lambda _, waiter, *__: waiter.worker_id == "bad")
        answers = [world.reclaim(worker_id, cluster_id, node_id) for worker_id in ("bad", "good")]
        assert answers == [None, "go"]
        assert world.failures() == {("worker", "bad"): "BadLuckError: _may_go_on failed"}


def test_a_virtual_cluster_that_cannot_be_reserved_stops_no_other_that_is_queued(
    world: LeasedWorld, monkeypatch: pytest.MonkeyPatch
):
    all_of_it = world.create(flexible_resource_min={"CPU": 12})
    bad, good = (world.create(flexible_resource_min={"CPU": 4}) for _ in range(2))
    assert (world.state(bad), world.state(good)) == ("QUEUED", "QUEUED")
    with monkeypatch.context() as patch:
        broken(patch, cycle, "reserve", lambda _, vcluster: vcluster.cluster_id == bad)
        world.ask(calls.CloseCluster(all_of_it, True))
        world.pass_time(3)
        assert (world.state(bad), world.state(good)) == ("QUEUED", "READY")
        assert world.failures() == {("virtual cluster", bad): "BadLuckError: reserve failed"}
        world.controller.validate()
    world.pass_time(60)
    assert world.state(bad) == "READY"
    assert world.failures() == {}


def test_a_step_that_fails_as_a_whole_stops_no_other_step(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    world.ensure(PLAIN)
    with monkeypatch.context() as patch:
        broken(patch, world.controller.lending, "forget", lambda *_: True)
        broken(patch, world.controller.holds, "plan", lambda *_: True)
        world.port.join("n4", {"CPU": 4})
        world.pass_time(3)
        assert world.offers(PLAIN) == {"n1", "n2", "n3", "n4"}
        assert {kind for kind, _ in world.failures()} == {"step"}
    world.pass_time(3)
    assert world.failures() == {}


def test_a_call_that_fails_is_its_callers_answer_and_is_named_until_one_goes_well(
    world: LeasedWorld, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        broken(patch, class_tokens.ClassTokens, "nodes_of", lambda *_: True)
        with pytest.raises(BadLuckError):
            world.ensure(PLAIN)
        assert ("call", "EnsureClass") in world.failures()
        assert world.start(**GOOD).node_ids != ()
    world.ensure(PLAIN)
    assert world.failures() == {}


def test_a_place_that_fails_half_way_leaves_nothing_behind(world: LeasedWorld, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        broken(patch, LeaseTokens, "follow", lambda _, lease: dict(lease.ask.labels) == BAD["labels"])
        with pytest.raises(BadLuckError):
            world.place(wanted(cpus=4, **BAD))
    assert [world.place(wanted(cpus=4, **GOOD))[1] for _ in range(3)].count(None) == 0
    world.controller.validate()


def test_an_error_of_the_users_is_nobodys_failure(world: LeasedWorld):
    with pytest.raises(Exception, match="no node has the id"):
        world.taint("nowhere", k="v")
    assert world.failures() == {}
    assert world.ask(calls.GetEvents()) is not None
