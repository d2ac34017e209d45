"""The contract of the port, held against both of its bodies: what the memory one says, Ray does."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterable
from typing import Any

import pytest
import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.live.conftest import World, eventually, run_driver
from tests.replies import all_demands, decode_all

import remora
from remora.live.adapter.gcs_calls import GcsCalls
from remora.live.adapter.ray_port import RayPort
from remora.live.adapter.reports import Reader, Reports, nodes_of
from remora.port.contract import ENDED, GROUP, JOB, RUNNING, WORKER, Demand, NodeGoneError, NodeView, Work
from remora.port.memory_port import MemoryPort

pytestmark = pytest.mark.core

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


def test_a_node_that_has_not_changed_is_the_identical_view_and_one_that_has_is_not(body: Any) -> None:
    def view() -> Any:
        return next(view for view in body.port.observe().nodes if view.node_id == body.node)

    before = eventually(lambda: (view() is (now := view()) and TOKEN not in now.total and now) or None)
    body.port.resize(body.node, {TOKEN: 5.0})
    eventually(lambda: view() is not before)
    eventually(lambda: view().total.get(TOKEN) == 5.0)


def test_every_report_is_what_decoding_all_of_it_would_give(stock: World) -> None:
    """While tokens come and go, work runs, and a node joins and dies."""
    port = RayPort()
    gcs = ray._private.worker.global_worker.gcs_client
    reports, reader = Reports(GcsCalls(gcs.address)), Reader()
    seen: list[NodeView] = []

    def look() -> dict[str, NodeView]:
        usage = reports.fetch()
        by_node = nodes_of(usage)
        found = {view.node_id: view for view in reader.read(usage, by_node, reports.infos(by_node)).nodes}
        everything = decode_all(usage, gcs)
        both = found.keys() & everything.keys()
        assert {node_id: found[node_id] for node_id in both} == {node_id: everything[node_id] for node_id in both}
        if found.keys() != everything.keys():  # all were asked for a moment later: meanwhile a node has joined or died
            eventually(lambda: {node_id.hex() for node_id in nodes_of(reports.fetch())} == everything.keys())
        seen.extend(found.values())
        return found

    def shows(amount: float) -> bool:
        return look()[stock.ids["a"]].total.get(TOKEN) == amount

    assert [view.node_id for view in look().values() if view.is_head] == [stock.ids["head"]]
    with stock.extra("short-lived", num_cpus=1) as kill:
        eventually(lambda: stock.ids["short-lived"] in look())
        for number in range(1, 8):
            port.resize(stock.ids["a"], {TOKEN: float(number)})
            ray.get(ray.remote(lambda: None).remote())
            eventually(functools.partial(shows, number))
        kill()
        eventually(lambda: stock.ids["short-lived"] not in look())
    port.resize(stock.ids["a"], {TOKEN: 0})
    assert 10 < len({id(view) for view in seen}) < len(seen)


def test_what_waits_is_what_rays_autoscaler_sees(stock: World) -> None:
    port = RayPort()
    gcs = ray._private.worker.global_worker.gcs_client

    def ours(demands: Iterable[Demand]) -> list[Demand]:
        return sorted((each for each in demands if "contract/nothing" in each.shapes[0]), key=repr)

    refs = [ray.remote(num_cpus=cpus, resources={"contract/nothing": 1})(lambda: None).remote() for cpus in (0, 1, 1)]
    groups = [
        placement_group([{"contract/nothing": 1}] * 2, strategy=each) for each in ("STRICT_SPREAD", "STRICT_PACK", "PACK")
    ]
    eventually(lambda: len(ours(port.observe().demands)) == 5 and ours(port.observe().demands) == ours(all_demands(gcs)))
    for ref in refs:
        ray.cancel(ref)
    for group in groups:
        remove_placement_group(group)
    eventually(lambda: ours(port.observe().demands) == [])


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


def test_what_is_held_already_under_a_name_is_held_and_something_else_under_it_is_let_go(stock: World) -> None:
    """Also by a process that knows nothing of the first."""
    first, again = RayPort(), RayPort()
    node, other = stock.ids["a"], stock.ids["b"]
    for each in (node, other):
        first.resize(each, {TOKEN: 10.0})
    name = "remora-hold-contract"

    def used(where: str) -> float:
        view = next(view for view in first.observe().nodes if view.node_id == where)
        return round(view.total.get(TOKEN, 0.0) - view.available.get(TOKEN, 0.0), 4)

    assert eventually(lambda: first.hold(name, node, {TOKEN: 0.5})) is True
    eventually(lambda: used(node) == 0.5)
    assert again.hold(name, node, {TOKEN: 0.5}) is True
    (found,) = again.find(name)
    assert (found.state, found.node_ids) == (RUNNING, (node,))
    assert again.hold(name, other, {TOKEN: 0.5}) is False
    eventually(lambda: used(node) == 0)
    assert again.find(name) == []
    assert eventually(lambda: again.hold(name, other, {TOKEN: 0.5})) is True
    first.let_go(name)  # the one that it knows is gone already
    first.let_go(name)
    eventually(lambda: used(other) == 0)
    for each in (node, other):
        first.resize(each, {TOKEN: 0})


def test_a_placement_group_is_let_go_by_its_id(stock: World) -> None:
    group = placement_group([{"CPU": 1}], name="by-id")
    assert group.wait(30)
    port = RayPort()
    port.let_go(group.id.hex())
    eventually(lambda: all(found.state == ENDED for found in port.find(group.id.hex())))


def test_a_hold_from_another_namespace_is_let_go(stock: World) -> None:
    driver = run_driver(
        stock,
        """
        ray.init(address, namespace="elsewhere", logging_level="ERROR", log_to_driver=False)
        group = ray.util.placement_group([{"CPU": 1}], name="remora-hold-elsewhere", lifetime="detached")
        assert group.wait(30)
        print(group.id.hex())
        """,
    )
    said, _ = driver.communicate(timeout=60)
    port = RayPort()
    assert [found.work_id for found in port.find("remora-hold-elsewhere")] == [said.strip()]
    port.let_go("remora-hold-elsewhere")
    eventually(lambda: port.find("remora-hold-elsewhere") == [])


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
