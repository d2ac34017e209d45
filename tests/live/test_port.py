"""The contract of the port, held against both of its bodies: what the memory one says, Ray does."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.live.conftest import World, eventually

import remora
from remora.ray_seam.ray_port import RayPort
from remora.seam.memory import MemoryPort
from remora.seam.port import ENDED, GROUP, JOB, RUNNING, WORKER, NodeGoneError, Work

TOKEN = "contract/token"  # not one of ours: the controller would take it away


class Memory:
    """Takes and gives back by saying so."""

    def __init__(self) -> None:
        self.port = MemoryPort()
        self.port.join("n1", {"CPU": 2}, {"zone": "a"})
        self.node = "n1"

    def take(self) -> None:
        self.port.take(self.node, {TOKEN: 0.5})

    def give(self) -> None:
        self.port.give(self.node, {TOKEN: 0.5})

    def stock(self) -> Any:
        return contextlib.nullcontext()

    def something(self) -> tuple[str, str]:
        self.port.submit(Work("actor", "ab" * 16, "sitter", "01000000", RUNNING, "ALIVE", ({},), (self.node,)))
        return "sitter", "01000000"

    def job(self) -> str:
        self.port.submit(Work(JOB, "01000000", "", "01000000", RUNNING, "RUNNING", ()))
        return "01000000"

    def worker_ends(self) -> str:
        self.port.submit(Work(WORKER, "cd" * 28, "", "", ENDED, "DEAD", (), (self.node,)))
        return "cd" * 28

    def worker_that_runs(self) -> str:
        return "ef" * 28


class Real:
    """Takes and gives back with an actor that holds the token."""

    def __init__(self, world: World) -> None:
        self.port = RayPort()
        self.node = world.ids["a"]
        self._holder: Any = None

    def take(self) -> None:
        class Holder:
            def ping(self) -> None:
                pass

        remora.detach()  # a plain actor, so that it holds nothing but what it names
        try:
            here = NodeAffinitySchedulingStrategy(self.node, soft=False)
            options = {"num_cpus": 0, "resources": {TOKEN: 0.5}, "scheduling_strategy": here}
            self._holder = ray.remote(Holder).options(**options).remote()
            ray.get(self._holder.ping.remote())
        finally:
            remora.attach()

    def give(self) -> None:
        ray.kill(self._holder)

    @contextlib.contextmanager
    def stock(self) -> Any:
        """As in the controller, which is not attached."""
        remora.detach()
        try:
            yield
        finally:
            remora.attach()

    def something(self) -> tuple[str, str]:
        class Sitter:
            def ping(self) -> None:
                pass

        here = NodeAffinitySchedulingStrategy(self.node, soft=False)
        sitter = ray.remote(Sitter).options(num_cpus=0, name="sitter", scheduling_strategy=here).remote()
        ray.get(sitter.ping.remote())
        self._holder = sitter
        return "sitter", ray.get_runtime_context().get_job_id()

    def job(self) -> str:
        return str(ray.get_runtime_context().get_job_id())

    def worker_that_runs(self) -> str:
        return str(ray.get_runtime_context().get_worker_id())

    def worker_ends(self) -> str:
        """By a signal that it cannot handle, as when memory runs out."""

        def who() -> tuple[str, int]:
            return ray.get_runtime_context().get_worker_id(), os.getpid()

        worker_id, pid = ray.get(ray.remote(who).options(num_cpus=1).remote())
        os.kill(pid, signal.SIGKILL)
        return str(worker_id)


@pytest.fixture(params=["memory", "ray"])
def body(request: pytest.FixtureRequest) -> Any:
    made: Any = Memory() if request.param == "memory" else Real(request.getfixturevalue("world"))
    yield made
    if getattr(made, "_holder", None) is not None:
        ray.kill(made._holder)
    made.port.resize(made.node, {TOKEN: 0})


def total(body: Any) -> float:
    view = next(view for view in body.port.observe().nodes if view.node_id == body.node)
    return float(view.total.get(TOKEN, 0.0))


def free(body: Any) -> float:
    view = next(view for view in body.port.observe().nodes if view.node_id == body.node)
    return float(view.available.get(TOKEN, 0.0))


def test_a_resource_is_added_to_a_live_node_and_taken_away_again(body: Any) -> None:
    assert body.port.resize(body.node, {TOKEN: 1000.0})[TOKEN] == 1000.0
    eventually(lambda: total(body) == 1000.0)
    assert TOKEN not in body.port.resize(body.node, {TOKEN: 0})
    eventually(lambda: total(body) == 0)


def test_a_total_is_never_below_what_is_in_use_and_stays_until_it_is_resized_again(body: Any) -> None:
    body.port.resize(body.node, {TOKEN: 1000.0})
    body.take()
    eventually(lambda: round(total(body) - free(body), 4) == 0.5)
    assert round(body.port.resize(body.node, {TOKEN: 0})[TOKEN], 4) == 0.5
    body.give()
    eventually(lambda: round(free(body), 4) == 0.5)
    assert TOKEN not in body.port.resize(body.node, {TOKEN: 0})


def test_a_node_says_its_totals_when_nothing_is_resized(body: Any) -> None:
    body.port.resize(body.node, {TOKEN: 3.0})
    assert body.port.resize(body.node, {})[TOKEN] == 3.0
    with pytest.raises(NodeGoneError):
        body.port.resize("ab" * 28, {})


def test_a_node_that_is_not_there_is_gone(body: Any) -> None:
    with pytest.raises(NodeGoneError):
        body.port.resize("ab" * 28, {TOKEN: 1})


def test_what_is_put_is_remembered_until_it_is_deleted(body: Any) -> None:
    port = body.port
    assert port.get("test/one") is None
    port.put("test/one", b"1")
    port.put("test/two", b"2")
    port.put("test/one", b"one")
    assert (port.get("test/one"), port.keys("test/")) == (b"one", ["test/one", "test/two"])
    port.put("test/one", None)
    port.put("test/one", None)
    port.put("test/two", None)
    assert port.keys("test/") == []


def test_labels_and_resources_are_seen_as_they_are(body: Any) -> None:
    view = next(view for view in body.port.observe().nodes if view.node_id == body.node)
    assert view.labels["zone"] == "a"
    assert view.total["CPU"] == 2


def quiet(woken: threading.Event) -> bool:
    if not woken.wait(0.5):
        return True
    woken.clear()
    return False


def test_a_watcher_is_woken_when_a_node_comes_or_an_actor_starts(body: Any) -> None:
    woken = threading.Event()
    stop = body.port.watch(lambda _: woken.set())
    eventually(lambda: quiet(woken))  # what happened before it listened
    body.something()
    assert woken.wait(30)
    stop()


def test_a_watcher_is_told_which_worker_has_ended(body: Any) -> None:
    told: list[Any] = []
    woken = threading.Event()

    def wake(work: Any) -> None:
        told.append(work)
        woken.set()

    stop = body.port.watch(wake)
    eventually(lambda: quiet(woken))
    worker_id = body.worker_ends()
    eventually(lambda: any(work is not None and (work.kind, work.work_id) == (WORKER, worker_id) for work in told))
    stop()


def test_work_is_found_by_id_and_by_name_and_by_its_job(body: Any) -> None:
    name, job_id = body.something()
    (found,) = body.port.find(name)
    assert (found.kind, found.state, found.name) == ("actor", "running", name)
    assert [work.work_id for work in body.port.find(found.work_id)] == [found.work_id]
    assert found.work_id in [work.work_id for work in body.port.find(job_id)]
    assert found.node_ids == (body.node,)
    assert body.port.find("nobody-has-this-name") == []
    assert found in body.port.find(None)


def test_jobs_that_run_are_among_the_living(body: Any) -> None:
    assert body.job() in [work.work_id for work in body.port.find(None) if work.kind == JOB]


def test_what_is_held_is_not_free_and_comes_back_when_it_is_let_go(body: Any) -> None:
    body.port.resize(body.node, {TOKEN: 10.0})
    eventually(lambda: free(body) == 10.0)
    with body.stock():
        # Placement groups are placed by a view of their own, which may be a moment behind: then it is tried again.
        assert eventually(lambda: body.port.hold("contract-hold", body.node, {TOKEN: 0.5})) is True
        eventually(lambda: free(body) == 9.5)
        assert [(found.kind, found.state) for found in body.port.find("contract-hold")] == [(GROUP, RUNNING)]
        assert round(body.port.resize(body.node, {TOKEN: 0})[TOKEN], 4) == 0.5
        body.port.let_go("contract-hold")
        body.port.let_go("contract-hold")
    eventually(lambda: free(body) == 0.5)


def test_workers_that_have_ended_are_told_from_those_that_run(body: Any) -> None:
    alive = body.worker_that_runs()
    assert body.port.ended([alive]) == []
    dead = body.worker_ends()
    eventually(lambda: body.port.ended([alive, dead]) == [dead])


def test_what_is_in_use_cannot_be_held_and_is_not_waited_for(body: Any) -> None:
    body.port.resize(body.node, {TOKEN: 0.5})
    body.take()
    eventually(lambda: total(body) == 0.5 and free(body) == 0)
    with body.stock():
        assert body.port.hold("contract-hold", body.node, {TOKEN: 0.5}) is False
    assert not any(found.state != ENDED for found in body.port.find("contract-hold"))
    body.give()
    eventually(lambda: free(body) == 0.5)


def test_what_is_not_there_cannot_be_held(body: Any) -> None:
    with body.stock():
        assert body.port.hold("contract-hold", body.node, {"contract/nothing": 0.5}) is False
    assert not any(found.state != ENDED for found in body.port.find("contract-hold"))
