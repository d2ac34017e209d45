"""What breaks, and what must hold all the same: dead nodes, a dead controller, two first drivers, taints everywhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy
from tests.live.conftest import World, eventually, few, run_driver, waits
from tests.live.test_facts import in_table, is_in_state

import remora
from remora import Exists
from remora.live.adapter.kv import Kv
from remora.live.link import link
from remora.wire.calls import EnsureClass


def controller() -> Any:
    return ray.get_actor("remora-controller", namespace="remora")


def make_spy(**options: Any) -> Any:
    class Spy:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    return ray.remote(Spy).options(**options).remote()


# ----------------------------------------------------------------------------------------------------------------- nodes


@pytest.mark.deep
def test_an_actor_whose_node_is_killed_restarts_where_the_rules_of_now_allow_it(world: World) -> None:
    with world.extra("mortal", num_cpus=1, labels={"role": "web"}) as kill:
        spy = make_spy(num_cpus=0, label_selector={"role": "web"}, max_restarts=-1, max_task_retries=-1)
        assert world.names([spy.node.remote()]) == ["mortal"]
        remora.taint_node(world.ids["a"], {"broken": "true"})
        for name in ("a", "b"):
            remora.label_node(world.ids[name], {"role": "web"})
        kill()
        eventually(lambda: in_table(spy).num_restarts == 1)
        assert world.names([spy.node.remote()]) == ["b"]
        ray.kill(spy)
    for name in ("a", "b"):
        remora.label_node(world.ids[name], {"role": None})
    remora.untaint_node(world.ids["a"], ["broken"])


@pytest.mark.deep
def test_what_no_node_matches_starts_when_a_node_with_the_label_joins(world: World, where: Any) -> None:
    spy = make_spy(num_cpus=0, label_selector={"team": "green"})
    refs = [where.options(num_cpus=0, label_selector={"team": "green"}).remote(), spy.node.remote()]
    assert all(waits(ref, 0.5) for ref in refs)
    with world.extra("late", num_cpus=1, labels={"team": "green"}):
        assert world.names(refs) == ["late", "late"]
        ray.kill(spy)


@pytest.mark.deep
def test_a_node_that_joins_with_a_taint_takes_nothing_that_does_not_tolerate_it(world: World, where: Any) -> None:
    refs = [where.options(resources={"fresh": 0.01}).remote() for _ in range(5)]
    with world.extra("fresh", num_cpus=4, resources={"fresh": 1}, labels={"taint.remora.io/new": "true"}):
        tolerant = where.options(resources={"fresh": 0.01}, tolerations={"new": Exists()}).remote()
        assert world.names([tolerant]) == ["fresh"]
        assert not ray.wait(refs, timeout=1)[0]
        remora.untaint_node(world.ids["fresh"], ["new"])
        assert world.names(refs) == ["fresh"] * 5


# ------------------------------------------------------------------------------------------------------------ controller


@pytest.mark.core
def test_a_controller_killed_amid_200_submissions_of_two_classes_loses_none(world: World) -> None:
    def work(number: int) -> tuple[int, str]:
        return number * number, str(ray.get_runtime_context().get_node_id())

    run = ray.remote(num_cpus=0.5)(work)
    pid = ray.get(controller().pid.remote())
    refs = []
    for number in range(200):
        if number == 100:
            os.kill(pid, signal.SIGKILL)
        selector = {"zone": "in(a, b)"} if number < 100 or number % 2 else {"zone": "in(b, after-the-kill)"}
        refs.append(run.options(label_selector=selector).remote(number))
    done = ray.get(refs, timeout=120)
    assert [value for value, _ in done] == [number * number for number in range(200)]
    assert {world.name(node) for _, node in done} <= {"a", "b"}
    assert {world.name(node) for _, node in done[100::2]} == {"b"}
    assert ray.get(controller().pid.remote()) != pid


def test_jobs_go_on_while_the_controller_is_dead_and_everything_is_repaired_afterwards(world: World, where: Any) -> None:
    plain = run_driver(
        world,
        """
        ray.init(address, logging_level="ERROR")
        kv, f, done = ray._private.worker.global_worker.gcs_client, ray.remote(num_cpus=0)(lambda n: n + 1), 0
        while not kv.internal_kv_exists(b"plain/stop", b"tests"):
            assert ray.get([f.remote(n) for n in range(4)], timeout=60) == [1, 2, 3, 4]
            done += 4
            kv.internal_kv_put(b"plain/done", b"%d" % done, True, b"tests")
        """,
    )
    kv = ray._private.worker.global_worker.gcs_client
    known = {"num_cpus": 0.5, "label_selector": {"zone": "b"}}
    world.names([where.options(**known).remote()])
    before = eventually(lambda: plainly_done(kv))
    kills, while_dead, victim, late = 0, 0, 0, None
    handle, start = controller(), time.monotonic()
    while time.monotonic() < start + 3 or kills < 2 or not while_dead:
        assert time.monotonic() < start + 60, f"{kills} kills, {while_dead} answers while it was dead"
        if is_in_state(handle, "ALIVE") and (pid := in_table(handle).pid) != victim:
            os.kill(pid, signal.SIGKILL)
            kills, victim = kills + 1, pid
            late = late or where.options(num_cpus=0.5, label_selector={"zone": "in(b, while-dead)"}).remote()
        dead = not is_in_state(handle, "ALIVE")
        assert world.names([where.options(**known).remote()], timeout=60) == ["b"]
        while_dead += dead and not is_in_state(handle, "ALIVE")
    after = plainly_done(kv)
    kv.internal_kv_put(b"plain/stop", b"", True, b"tests")
    plain.communicate(timeout=60)
    assert (plain.returncode, after > before) == (0, True)
    kv.internal_kv_del(b"plain/", True, b"tests")
    assert world.names([late]) == ["b"]
    remora.taint_node(world.ids["b"], {"k": "v"})
    refused = where.options(**known).remote()
    assert world.names([where.options(**known, tolerations={"k": Exists()}).remote()]) == ["b"]
    assert waits(refused, 0.5)
    remora.untaint_node(world.ids["b"], ["k"])
    assert world.names([refused]) == ["b"]


def test_a_controller_that_cannot_read_something_starts_all_the_same_and_names_it(world: World, where: Any) -> None:
    kv, handle = Kv(), controller()
    kv.put("class/unreadable", b"{")
    before = in_table(handle).num_restarts
    os.kill(ray.get(handle.pid.remote()), signal.SIGKILL)
    eventually(lambda: in_table(handle).num_restarts > before)
    assert world.names([where.options(label_selector={"zone": "in(b, once-it-is-back)"}).remote()]) == ["b"]
    assert [row["id"] for row in remora.status()["set_aside"]] == ["class/unreadable"]
    assert kv.get("class/unreadable") == b"{"
    kv.put("class/unreadable", None)
    assert controller()._actor_id == handle._actor_id


def plainly_done(kv: Any) -> int:
    return int(kv.internal_kv_get(b"plain/done", b"tests") or 0)


def test_two_drivers_that_attach_at_the_same_instant_where_there_is_none_get_one_controller(world: World) -> None:
    old = ray.get(controller().pid.remote())
    code = """
        import os, time, remora
        ray.init(address, logging_level="ERROR")
        kv = ray._private.worker.global_worker.gcs_client
        kv.internal_kv_put(b"barrier/%d" % os.getpid(), b"", True, b"tests")
        while len(kv.internal_kv_keys(b"barrier/", b"tests")) < 2:
            time.sleep(0.001)
        remora.attach()
        f = ray.remote(num_cpus=0.1)(lambda: ray.get_runtime_context().get_node_id())
        nodes = set(ray.get([f.options(label_selector={"zone": "b"}).remote() for _ in range(3)], timeout=60))
        print(*nodes, ray.get(ray.get_actor("remora-controller", "remora").pid.remote()))
        """
    remora.shutdown_controller()
    drivers = [run_driver(world, code) for _ in range(2)]
    try:
        answers = {driver.communicate(timeout=120)[0].strip().splitlines()[-1] for driver in drivers}
    finally:
        remora.attach()
    client = ray._private.worker.global_worker.gcs_client
    client.internal_kv_del(b"barrier/", True, b"tests")
    (answer,) = answers
    node, pid = answer.split()
    assert (world.name(node), int(pid)) == ("b", ray.get(controller().pid.remote()))
    assert int(pid) != old


# ---------------------------------------------------------------------------------------------------------------- taints

STRATEGIES: dict[str, Callable[[str], Any]] = {
    "DEFAULT": lambda node_id: "DEFAULT",
    "SPREAD": lambda node_id: "SPREAD",
    "hard node affinity": lambda node_id: NodeAffinitySchedulingStrategy(node_id, soft=False),
    "soft node affinity": lambda node_id: NodeAffinitySchedulingStrategy(node_id, soft=True),
    "node labels": lambda node_id: NodeLabelSchedulingStrategy(hard={"zone": In("g")}),
}


def test_what_is_queued_at_the_only_node_for_it_survives_a_taint_and_starts_when_it_goes(world: World, where: Any) -> None:
    hog = make_spy(num_cpus=2, label_selector={"zone": "in(b, nowhere)"})
    assert world.names([hog.node.remote()]) == ["b"]
    actor = make_spy(num_cpus=1, label_selector={"zone": "b"})
    queued = [*(where.options(label_selector={"zone": "b"}).remote() for _ in range(3)), actor.node.remote()]
    eventually(lambda: any(row["wants"] == "zone=b" for row in remora.status()["waiting"]))
    remora.taint_node(world.ids["b"], {"k": "v"})
    ray.kill(hog)
    allowed = where.options(label_selector={"zone": "b"}, tolerations={"k": "exists()"}, num_cpus=2)
    assert world.names([allowed.remote()]) == ["b"]  # the CPUs are free again
    assert not ray.wait(queued, timeout=1)[0]
    remora.untaint_node(world.ids["b"], ["k"])
    assert world.names(queued) == ["b"] * 4
    ray.kill(actor)


def test_what_a_task_gives_back_on_a_tainted_node_lets_no_actor_and_no_group_in(
    world: World, where: Any, tmp_path: Path
) -> None:
    """They are of the same class, and the raylet hands on at once what is given back."""
    end = tmp_path / "end"

    def stay() -> str:
        (tmp_path / f"began-{os.getpid()}").touch()
        while not end.exists():
            time.sleep(0.01)
        return str(ray.get_runtime_context().get_node_id())

    there = {"label_selector": {"zone": "b"}}
    running = [ray.remote(stay).options(**there).remote() for _ in range(2)]
    eventually(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    actors = [make_spy(num_cpus=1, **there) for _ in range(3)]
    group = ray.util.placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "b"}])
    answers = [actor.node.remote() for actor in actors]
    eventually(lambda: sum(row["count"] for row in remora.status()["waiting"] if row["wants"] == "zone=b") >= 3)
    remora.taint_node(world.ids["b"], {"k": "v"})
    end.touch()
    assert world.names(running) == ["b"] * 2
    allowed = where.options(**there, tolerations={"k": "exists()"}, num_cpus=2)
    assert world.names([allowed.remote()]) == ["b"]
    assert not ray.wait(answers, timeout=1)[0]
    assert not group.wait(0.1)
    ray.util.remove_placement_group(group)
    remora.untaint_node(world.ids["b"], ["k"])
    started, _ = ray.wait(answers, num_returns=2, timeout=60)
    assert world.names(started) == ["b"] * 2
    for actor in actors:
        ray.kill(actor)


@pytest.mark.parametrize("name", few(STRATEGIES, "SPREAD", "soft node affinity"))
def test_a_taint_is_honoured_by_tasks_and_actors_under(name: str, world: World, where: Any) -> None:
    """Only the tainted node has what they ask for, so whatever starts at all starts there."""
    strategy = STRATEGIES[name](world.ids["gpu"])
    asked = {"resources": {"accel": 0.01}, "scheduling_strategy": strategy}
    actors = [make_spy(num_cpus=0, **asked), make_spy(num_cpus=0.1, **asked)]
    refused = [where.options(num_cpus=0.1, **asked).remote(), *(actor.node.remote() for actor in actors)]
    asked["tolerations"] = {"gpu_node": Exists()}
    allowed = make_spy(num_cpus=0, **asked)
    assert world.names([where.options(num_cpus=0.1, **asked).remote(), allowed.node.remote()]) == ["gpu", "gpu"]
    assert not ray.wait(refused, num_returns=1, timeout=1)[0]
    ray.cancel(refused[0])
    for actor in (*actors, allowed):
        ray.kill(actor)


@pytest.mark.parametrize("name", few(["DEFAULT", "SPREAD", "soft node affinity"], "SPREAD"))
def test_an_actor_that_wants_nothing_stays_off_a_tainted_node_under(name: str, world: World) -> None:
    actors = [make_spy(num_cpus=0, scheduling_strategy=STRATEGIES[name](world.ids["gpu"])) for _ in range(5)]
    assert "gpu" not in world.names([actor.node.remote() for actor in actors])
    for actor in actors:
        ray.kill(actor)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_a_taint_is_honoured_by_placement_groups_under(strategy: str, world: World) -> None:
    refused = ray.util.placement_group([{"accel": 0.01}], strategy=strategy)
    allowed = ray.util.placement_group([{"accel": 0.01}], strategy=strategy, tolerations={"gpu_node": Exists()})
    assert allowed.wait(60)
    assert not refused.wait(1)
    ray.util.remove_placement_group(refused)
    ray.util.remove_placement_group(allowed)


def test_nothing_that_runs_in_the_background_connects_a_driver_again_that_has_shut_down(world: World) -> None:
    code = """
        import threading, time
        import remora
        from ray.util import placement_group
        from remora.live import installed
        from remora.live.submit import wait_warnings

        wait_warnings.PATIENCE_SECONDS = 0.1
        remora.init(address=address, logging_level="ERROR", log_to_driver=False)
        task = ray.remote(lambda: 1).options(label_selector={"zone": "nowhere"}).remote()
        group = placement_group([{"CPU": 1000}])
        kept = remora.put("x", labels={"kind": "x"})
        threads = {thread.name: thread for thread in threading.enumerate() if thread.name.startswith("remora-")}
        noted = installed.current().submitter.waiting._noted
        ray.shutdown()
        threads.pop("remora-objects").join(30)
        assert not ray.is_initialized()
        until = time.monotonic() + 30
        while noted and time.monotonic() < until:  # forgotten when it has looked
            time.sleep(0.01)
        print(sorted(threads), len(noted), ray.is_initialized())
        """
    driver = run_driver(world, code)
    assert driver.communicate(timeout=120)[0].strip() == "['remora-waiting'] 0 False"


def test_labelled_objects_of_a_program_that_connects_anew_are_dropped_too(world: World) -> None:
    code = """
        import time
        import remora
        from remora.live.submit import labelled_objects

        def run():
            remora.init(address=address, logging_level="ERROR", log_to_driver=False)
            kept = remora.put("x", labels={"kind": "anew"})
            assert len(labelled_objects.objects._known) == 1
            return kept

        first = run()
        ray.shutdown()
        second = run()
        del second
        until = time.monotonic() + 30
        while labelled_objects.objects._known and time.monotonic() < until:
            time.sleep(0.05)
        print(len(labelled_objects.objects._known))
        """
    driver = run_driver(world, code)
    assert driver.communicate(timeout=120)[0].strip() == "0"


def test_work_starts_though_the_message_that_says_what_its_class_is_was_lost(
    world: World, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []
    tell = link.tell

    def lose(call: Any) -> Any:
        if isinstance(call, EnsureClass) and len(lost) < 1:
            lost.append(call)
            return None
        return tell(call)

    monkeypatch.setattr(link, "tell", lose)
    ref = where.options(label_selector={"zone": "!in(b, lost)"}, num_cpus=0).remote()
    assert world.names([ref], timeout=60)[0] != "b"
    assert len(lost) == 1
