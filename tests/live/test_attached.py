"""Plain ``import ray`` code on an attached driver: selectors, tolerations and taints, enforced by the raylets."""

from __future__ import annotations

import os
import signal
import sys
from types import ModuleType
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, run_driver, waits

import remora
from remora import Exists, In, label_in, node_affinity
from remora.live import releases
from remora.live.adapter.ray_port import RayPort
from remora.wire.tokens import is_token


@pytest.mark.core
def test_a_selector_in_any_spelling_is_obeyed(world: World, where: Any) -> None:
    spellings: list[dict[str, Any]] = [
        {"label_selector": {"zone": "b"}},
        {"label_selector": {"zone": "IN(b, nowhere)"}},
        {"label_selector": {"zone": In("b")}},
        {"node_labels": {"zone": In("b")}},
        {"label_selector": [label_in("zone", ["b"])]},
        {"scheduling_strategy": node_affinity(label_in("zone", ["b"], False))},
    ]
    assert world.names([where.options(**spelling).remote() for spelling in spellings]) == ["b"] * len(spellings)


def test_a_decorator_takes_the_options_too(world: World) -> None:
    @ray.remote(label_selector={"zone": "!in(a, b)"}, tolerations={"gpu_node": "true"}, num_cpus=0)
    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    assert set(world.names([where.remote() for _ in range(3)])) <= {"head", "gpu"}


@pytest.mark.core
def test_an_actor_obeys_and_still_holds_no_cpu_by_default(world: World) -> None:
    class Spy:
        def look(self) -> tuple[str, dict[str, float]]:
            context = ray.get_runtime_context()
            return str(context.get_node_id()), dict(context.get_assigned_resources())

    spy = ray.remote(Spy).options(label_selector={"zone": "b"}).remote()
    node, held = ray.get(spy.look.remote())
    assert world.name(node) == "b"
    assert [name for name in held if not is_token(name)] == []
    ray.kill(spy)


def test_actors_that_hold_nothing_are_not_piled_onto_one_node(world: World) -> None:
    class Spy:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    spies = [ray.remote(Spy).remote() for _ in range(6)]
    assert len(set(world.names([spy.node.remote() for spy in spies]))) > 1
    for spy in spies:
        ray.kill(spy)


@pytest.mark.core
def test_what_tasks_and_actors_submit_obeys_too(world: World, where: Any) -> None:
    def outer() -> list[str]:
        return list(ray.get([where.options(label_selector={"zone": zone}).remote() for zone in ("a", "b")]))

    class Outer:
        def run(self) -> list[str]:
            return list(ray.get([where.options(label_selector={"zone": zone}).remote() for zone in ("b", "a")]))

    assert [world.name(node) for node in ray.get(ray.remote(num_cpus=0)(outer).remote())] == ["a", "b"]
    actor = ray.remote(num_cpus=0)(Outer).remote()
    assert [world.name(node) for node in ray.get(actor.run.remote())] == ["b", "a"]
    ray.kill(actor)


def test_a_fallback_is_taken_only_when_nothing_could_ever_match(world: World, where: Any) -> None:
    chain = [{"label_selector": {"zone": "nowhere"}}, {"label_selector": {"zone": "b"}}]
    assert world.names([where.options(label_selector={"zone": "no"}, fallback_strategy=chain).remote()]) == ["b"]
    busy = [where.options(label_selector={"zone": "a"}).remote(1.0) for _ in range(2)]
    late = where.options(label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}]).remote()
    assert world.names([late]) == ["a"]
    ray.get(busy)


@pytest.mark.core
def test_what_no_node_matches_waits_and_starts_when_a_node_gets_the_label(world: World, where: Any) -> None:
    ref = where.options(label_selector={"team": "blue"}).remote()
    assert waits(ref)
    remora.label_node(world.ids["b"], {"team": "blue"})
    assert world.names([ref]) == ["b"]
    remora.label_node(world.ids["b"], {"team": None})


def test_a_tainted_node_takes_only_what_tolerates_it(world: World, where: Any) -> None:
    assert "gpu" not in world.names([where.remote(0.05) for _ in range(20)])
    assert "gpu" not in world.names([where.options(scheduling_strategy="SPREAD", num_cpus=0).remote() for _ in range(12)])
    for tolerations in ({"gpu_node": Exists()}, {"gpu_node": In("true")}):
        assert world.names([where.options(tolerations=tolerations, resources={"accel": 1}).remote()]) == ["gpu"]
    pinned = NodeAffinitySchedulingStrategy(world.ids["gpu"], soft=False)
    refused = where.options(scheduling_strategy=pinned).remote()
    assert waits(refused)
    assert world.names([where.options(scheduling_strategy=pinned, tolerations={"gpu_node": "true"}).remote()]) == ["gpu"]
    ray.cancel(refused)


@pytest.mark.core
def test_a_taint_bites_on_a_full_node_and_every_result_is_right_and_made_once(world: World) -> None:
    class Tally:
        def __init__(self) -> None:
            self.starts: list[tuple[int, str]] = []

        def note(self, number: int, node: str) -> None:
            self.starts.append((number, node))

        def read(self) -> list[tuple[int, str]]:
            return self.starts

    def work(number: int, tally: Any) -> tuple[int, int]:
        import time

        ray.get(tally.note.remote(number, ray.get_runtime_context().get_node_id()))
        time.sleep(0.05)
        return number, number * number

    tally = ray.remote(num_cpus=0)(Tally).options(label_selector={"zone": "head"}).remote()
    refs = [ray.remote(work).options(num_returns=2, max_retries=0).remote(number, tally) for number in range(150)]
    on_b = world.ids["b"]
    eventually(lambda: sum(node == on_b for _, node in ray.get(tally.read.remote())) > 10)
    remora.taint_node(on_b, {"pressure": "high"})
    before = len([node for _, node in ray.get(tally.read.remote()) if node == on_b])
    assert ray.get([ref for pair in refs for ref in pair]) == [part for n in range(150) for part in (n, n * n)]
    starts = ray.get(tally.read.remote())
    assert len([node for _, node in starts if node == on_b]) == before, "something started there after the taint"
    assert sorted(number for number, _ in starts) == list(range(150))
    remora.untaint_node(on_b, ["pressure"])
    ray.kill(tally)


@pytest.mark.core
def test_generators_and_errors_come_through_when_they_are_handed_on(world: World) -> None:
    def count(number: int) -> Any:
        import time

        for value in range(number):
            time.sleep(0.02)
            yield value

    def fail(number: int) -> None:
        import time

        time.sleep(0.05)
        raise KeyError(number)

    def returns(number: int) -> Any:
        return count(number)  # three results, though the function does not look so

    streams = [ray.remote(count).remote(3) for _ in range(20)]
    streams += [ray.remote(returns).options(num_returns=3).remote(3) for _ in range(20)]
    failures = [ray.remote(fail).options(max_retries=0).remote(number) for number in range(40)]
    remora.taint_node(world.ids["b"], {"pressure": "high"})
    assert [[ray.get(ref) for ref in stream] for stream in streams] == [[0, 1, 2]] * 40
    for number, ref in enumerate(failures):
        with pytest.raises(KeyError, match=str(number)):
            ray.get(ref)
    remora.untaint_node(world.ids["b"], ["pressure"])


@pytest.mark.core
def test_a_placement_group_obeys_and_what_runs_in_it_takes_no_token(world: World, where: Any) -> None:
    selectors = [{"zone": "in(a)"}, {"zone": "in(b, c)"}]
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="SPREAD", bundle_label_selector=selectors)
    ray.get(group.ready(), timeout=180)
    inside = [PlacementGroupSchedulingStrategy(group, index) for index in (0, 1)]
    assert world.names([where.options(scheduling_strategy=strategy).remote() for strategy in inside]) == ["a", "b"]
    ray.util.remove_placement_group(group)
    tolerant = ray.util.placement_group([{"accel": 1}], tolerations={"gpu_node": Exists()})
    ray.get(tolerant.ready(), timeout=180)
    ray.util.remove_placement_group(tolerant)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown operator": ({"label_selector": {"zone": "near(a)"}}, "there is no operator"),
    "a bad label": ({"label_selector": {"zone": "a b c!"}}, "did you mean"),
    "a bad toleration": ({"tolerations": ["gpu"]}, "tolerations must map"),
    "a bad fallback": ({"fallback_strategy": [{"zone": "a"}]}, "must be a mapping with the one key"),
    "a reserved resource": ({"resources": {"remora/class/x": 1}}, "is reserved"),
    "a strange affinity": ({"affinity": 5}, "not a scheduling strategy"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_the_call(name: str, where: Any) -> None:
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        where.options(**options)


@pytest.mark.core
def test_gpus_are_made_visible_to_whom_they_are_given_and_to_nobody_else(world: World) -> None:
    def visible() -> tuple[str | None, list[Any]]:
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()

    task = ray.remote(visible)
    there: dict[str, Any] = {"tolerations": {"gpu_node": Exists()}, "label_selector": {"zone": "g"}}
    for _ in range(2):
        hidden = "" if releases.hides_accelerators() else None
        assert ray.get(task.options(**there).remote(), timeout=60) == (hidden, [])
        devices, ids = ray.get(task.options(**there, num_gpus=1).remote(), timeout=60)
        assert devices == ",".join(map(str, ids))
        assert len(ids) == 1


def test_a_selector_too_few_for_the_bundles_is_refused_at_the_call(world: World) -> None:
    with pytest.raises(ValueError, match="one selector a bundle"):
        ray.util.placement_group([{"CPU": 1}] * 2, bundle_label_selector=[{"zone": "a"}])


def test_a_node_that_is_not_there_is_named(world: World) -> None:
    with pytest.raises(remora.UnknownNameError, match="no node has the id 'nope'"):
        remora.taint_node("nope", {"k": "v"})
    with pytest.raises(remora.InvalidLabelError, match="can't be changed"):
        remora.label_node(world.ids["a"], {"ray.io/zone": "x"})


@pytest.mark.core
def test_a_killed_controller_comes_back_and_nothing_is_lost(world: World, where: Any) -> None:
    controller = ray.get_actor("remora-controller", namespace="remora")
    pid = ray.get(controller.pid.remote())
    refs = [where.remote() for _ in range(50)]
    os.kill(pid, signal.SIGKILL)
    refs += [where.options(label_selector={"zone": "!nowhere", "x": f"!v{n % 3}"}).remote() for n in range(50)]
    assert len(ray.get(refs, timeout=240)) == 100
    assert ray.get(controller.pid.remote()) != pid
    remora.taint_node(world.ids["a"], {"k": "v"})
    assert "a" not in world.names([where.remote(0.02) for _ in range(10)])
    remora.untaint_node(world.ids["a"], ["k"])


@pytest.mark.parametrize(
    "name", ["attach", "detach", "init", "label_node", "shutdown_controller", "taint_node", "untaint_node"]
)
def test_a_live_name_is_public_and_documented(name: str) -> None:
    assert getattr(remora, name).__doc__
    assert name in remora.__all__


def test_a_plain_job_runs_beside_an_attached_one(world: World) -> None:
    plain = run_driver(
        world,
        """
        ray.init(address, logging_level="ERROR")
        f = ray.remote(lambda: ray.get_runtime_context().get_assigned_resources())
        print(ray.get(f.remote()))
        """,
    )
    assert plain.communicate(timeout=240)[0].strip().endswith("{'CPU': 1.0}")


@pytest.mark.deep
def test_two_drivers_that_attach_at_once_share_one_controller(world: World) -> None:
    code = """
        import remora
        remora.init(address=address, logging_level="ERROR", tolerations={"gpu_node": "exists()"})
        f = ray.remote(resources={"accel": 0.1}, num_cpus=0)(lambda: 1)
        print(ray.get([f.remote() for _ in range(3)]), ray.get(ray.get_actor("remora-controller", "remora").pid.remote()))
        """
    drivers = [run_driver(world, code) for _ in range(2)]
    answers = {driver.communicate(timeout=240)[0].strip().splitlines()[-1] for driver in drivers}
    pid = ray.get(ray.get_actor("remora-controller", namespace="remora").pid.remote())
    assert answers == {f"[1, 1, 1] {pid}"}


def test_detaching_puts_back_what_was_imported_in_the_meantime(world: World) -> None:
    """A library that was imported while this process was attached works after it, and in the next cluster."""
    late = ModuleType("late")
    exec("from ray.util import placement_group, remove_placement_group\nfrom ray import wait", late.__dict__)
    sys.modules["late"] = late
    try:
        ours = late.placement_group
        remora.detach()
        assert (late.placement_group, late.wait) == (ray.util.placement_group, ray.wait)
        assert late.placement_group is not ours
        remora.attach()
        assert (late.placement_group, late.wait) == (ray.util.placement_group, ray.wait)
    finally:
        del sys.modules["late"]
        remora.attach()


@pytest.mark.core
def test_detaching_puts_back_everything_and_shutting_down_leaves_no_token(world: World, where: Any) -> None:
    import ray.remote_function

    attached = ray.remote_function.RemoteFunction._remote
    remora.detach()
    assert ray.remote_function.RemoteFunction._remote is not attached
    assert ray.remote_function.ray is ray
    with pytest.raises(ValueError, match="Invalid option keyword tolerations"):
        where.options(tolerations={})
    seen = ray.remote(lambda: list(ray.get_runtime_context().get_assigned_resources())).remote()
    assert ray.get(seen) == ["CPU"]
    remora.shutdown_controller()
    eventually(lambda: not [name for view in RayPort().observe().nodes for name in view.total if is_token(name)])
    remora.attach()
    assert world.names([where.options(label_selector={"zone": "b"}).remote()]) == ["b"]


def test_a_function_that_was_exported_stock_takes_the_layer_along_after_attaching(stock: World):
    """Workers keep a function that they have loaded: the one with the guard has to be another one."""
    add = ray.remote(num_cpus=1)(lambda x: x + 1)
    assert ray.get([add.remote(1) for _ in range(8)], timeout=60) == [2] * 8
    remora.attach()
    assert ray.get([add.options(max_retries=7).remote(1) for _ in range(8)], timeout=60) == [2] * 8
    remora.detach()
    assert ray.get([add.options(max_retries=7).remote(1) for _ in range(8)], timeout=60) == [2] * 8
