"""Virtual clusters on a real Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, line_of, run_driver, waits

import remora
from remora import FixedSizeNode, FixedSizeNodes, In, VirtualCluster
from remora.errors import InvalidInputError, InvalidVirtualClusterError
from remora.live.adapter.ray_port import RayPort
from remora.live.clusters import entering, scopes
from remora.live.link import link
from remora.wire.calls import GetClusters
from remora.wire.keys import CLUSTERS, HOLDS
from remora.wire.tokens import counts_for, is_part, share_of_token


def controller() -> Any:
    return ray.get_actor("remora-controller", namespace="remora")


def tree() -> dict[str, dict[str, Any]]:
    return {row["cluster_id"]: row for row in link.ask(GetClusters())}


def used(cluster_id: str, resource: str = "CPU", port: Any = None) -> float:
    """What Ray itself says is taken of a share, over all nodes, without what the controller holds of it: by tasks, actors and
    placement groups."""
    port = port or RayPort()
    records = {CLUSTERS.parts(key)[0]: CLUSTERS.read(data) for key in port.keys(CLUSTERS.prefix) if (data := port.get(key))}
    groups = {name for name, record in records.items() if record["group"] and record["parent"] == cluster_id}

    def counts(name: str) -> bool:
        share = share_of_token(name)
        return (
            share is not None
            and not is_part(share[0])
            and counts_for(share[0]) in {cluster_id, *groups}
            and share[1] == resource
        )

    views = port.observe().nodes
    taken = sum(total - view.available.get(name, 0.0) for view in views for name, total in view.total.items() if counts(name))
    holds = [HOLDS.read(data) for key in port.keys(HOLDS.prefix) if (data := port.get(key))]
    return round(taken - sum(amount for hold in holds for name, amount in hold.items() if counts(name)), 4)


def is_gone(cluster_id: str) -> bool:
    """Whether nothing of it is left on any node."""
    names = [name for view in RayPort().observe().nodes for name in view.total]
    return not any((found := share_of_token(name)) is not None and found[0] == cluster_id for name in names)


@contextlib.contextmanager
def inside(**spec: Any) -> Iterator[str]:
    with VirtualCluster(**{"timeout": 120, **spec}):  # what a test before has left behind holds up nobody for ever
        yield str(scopes.peek())


@ray.remote
def timed(seconds: float) -> tuple[float, float]:
    """When it ran; the nodes are on one machine, so that they have one clock."""
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()


def most_at_once(ran: list[tuple[float, float]]) -> int:
    """How many of them ran at the same time."""
    events = sorted([(began, 1) for began, _ in ran] + [(ended, -1) for _, ended in ran])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


@contextlib.contextmanager
def sampled(cluster_id: str) -> Iterator[list[float]]:
    """What Ray says is used of a share, twenty times a second."""
    seen: list[float] = []
    done = threading.Event()

    def sample() -> None:
        port = RayPort()
        while not done.wait(0.05):
            seen.append(used(cluster_id, port=port))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield seen
    finally:
        done.set()
        sampler.join()


@ray.remote
def nest(levels: int) -> int:
    return 1 if levels == 1 else 1 + ray.get(nest.remote(levels - 1))


@ray.remote
def which() -> str | None:
    return scopes.current()


class _Idler:
    def which(self) -> str | None:
        return scopes.current()

    def nested(self) -> str | None:
        found: str | None = ray.get(which.remote())
        return found

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


Idler: Any = ray.remote(num_cpus=0)(_Idler)


class _Flag:
    def __init__(self) -> None:
        self._raised, self._waited = threading.Event(), threading.Event()

    def wait(self) -> bool:
        self._waited.set()
        return self._raised.wait(60)

    def waited(self) -> bool:
        return self._waited.wait(60)

    def raise_it(self) -> None:
        self._raised.set()


Flag: Any = ray.remote(_Flag)


@ray.remote
def waits_and_works(flag: Any, seconds: float) -> float:
    assert ray.get(flag.wait.remote())
    time.sleep(seconds)
    return time.monotonic()


@ray.remote
def raises_and_works(flag: Any, seconds: float) -> bool:
    ray.get(flag.raise_it.remote())
    time.sleep(seconds)
    return True


class _Newcomer:
    def __init__(self) -> None:
        self._born_at = time.monotonic()

    def born_at(self) -> float:
        return self._born_at


Newcomer: Any = ray.remote(num_cpus=1)(_Newcomer)


@pytest.mark.core
def test_it_never_uses_more_than_its_maximum(world: World):
    with inside(flexible_resource_max={"CPU": 3}) as vc, sampled(vc) as seen:
        ran = ray.get([timed.remote(0.03) for _ in range(200)], timeout=60)
    assert most_at_once(ran) == 3
    assert len(seen) > 20
    assert max(seen) == 3
    eventually(lambda: is_gone(vc))


def test_ten_levels_finish_in_one_cpu(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}) as vc:
        assert ray.get(nest.remote(10), timeout=60) == 10
    eventually(lambda: is_gone(vc))


@pytest.mark.deep
def test_several_deep_chains_at_once_finish_in_one_cpu(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
        assert ray.get([nest.remote(3) for _ in range(4)], timeout=60) == [3] * 4


@ray.remote
def nest_and_wait(depth: int) -> int:
    if not depth:
        return 0
    there, _ = ray.wait([nest_and_wait.remote(depth - 1)], timeout=20)
    return 1 + sum(ray.get(there))


@pytest.mark.core
def test_a_task_that_calls_tasks_and_waits_for_them_with_ray_wait_does_not_block_a_full_cluster(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
        assert ray.get([nest_and_wait.remote(3) for _ in range(4)], timeout=120) == [3] * 4


def test_nothing_new_starts_before_what_came_back_is_repaid(world: World):
    """One that waits comes back while another runs in its place: an actor that is next in the raylet's queue is not started."""
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
        flag = Flag.options(num_cpus=0, max_concurrency=4).remote()
        outer = waits_and_works.remote(flag, 2.0)
        assert ray.get(flag.waited.remote(), timeout=60)
        inner = raises_and_works.remote(flag, 0.5)
        ray.get(flag.wait.remote(), timeout=60)
        newcomer = Newcomer.remote()
        assert ray.get(inner, timeout=60)
        assert ray.get(newcomer.born_at.remote(), timeout=60) >= ray.get(outer, timeout=60)
        ray.kill(newcomer)


@ray.remote
def pid_then_waits(flag: Any, told: Any) -> None:
    ray.get(told.put.remote(os.getpid()))
    ray.get(flag.wait.remote())


class _Box:
    def __init__(self) -> None:
        self._given = threading.Event()
        self._value: Any = None

    def put(self, value: Any) -> None:
        self._value = value
        self._given.set()

    def get(self) -> Any:
        assert self._given.wait(60)
        return self._value


Box: Any = ray.remote(num_cpus=0, max_concurrency=2)(_Box)


@ray.remote
def waits_tells_and_works(flag: Any, told: Any, seconds: float) -> float:
    assert ray.get(flag.wait.remote())
    told.put.remote(True)
    time.sleep(seconds)
    return time.monotonic()


@contextlib.contextmanager
def one_back_beside_a_group() -> Iterator[tuple[str, Any, Any]]:
    """In a cluster of one CPU: a group that has reserved what a worker lent, and that worker, which runs again; its result."""
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}) as vc:
        flag, box = Flag.options(num_cpus=0, max_concurrency=4).remote(), Box.remote()
        outer = waits_tells_and_works.remote(flag, box, 2.0)
        assert ray.get(flag.waited.remote(), timeout=60)
        group = placement_group([{"CPU": 1}])
        ray.get(group.ready(), timeout=60)
        ray.get(flag.raise_it.remote(), timeout=60)
        assert ray.get(box.get.remote(), timeout=60)
        yield vc, PlacementGroupSchedulingStrategy(group), outer
        remove_placement_group(group)


def test_nothing_starts_in_a_placement_group_before_what_came_back_is_repaid(world: World):
    """A group has no guard and may take what was lent; but what starts in it has one."""
    with one_back_beside_a_group() as (vc, there, outer):
        eventually(lambda: used(vc) == 2)
        task = timed.options(scheduling_strategy=there).remote(0.1)
        left = ray.get(outer, timeout=60)
        assert ray.get(task, timeout=60)[0] >= left


@pytest.mark.deep
def test_an_actor_in_a_placement_group_waits_until_what_came_back_is_repaid(world: World):
    with one_back_beside_a_group() as (_, there, outer):
        late = placement_group([{"CPU": 1}])  # while more is used than may be none is created
        assert "came back" in remora.explain(late).reason
        actor = Newcomer.options(scheduling_strategy=there).remote()
        left = ray.get(outer, timeout=60)
        assert ray.get(actor.born_at.remote(), timeout=60) >= left
        ray.kill(actor)
        remove_placement_group(there.placement_group)
        ray.get(late.ready(), timeout=60)
        remove_placement_group(late)


class _Owner:
    def work(self, seconds: list[float]) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = ray.get([timed.remote(each) for each in seconds])
        return found


Owner: Any = ray.remote(num_cpus=0)(_Owner)
"""What it submits is queued on its own node, whose raylet gives what comes back to the next at once."""


@pytest.mark.core
def test_nothing_starts_in_place_of_one_that_was_killed_while_it_waited(world: World):
    """Its raylet gives its token to the next in the queue, but its share has been lent."""
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
        flag, box = Flag.options(num_cpus=0, max_concurrency=4).remote(), Box.remote()
        waiting = pid_then_waits.options(max_retries=0).remote(flag, box)
        pid = ray.get(box.get.remote(), timeout=60)
        assert ray.get(flag.waited.remote(), timeout=60)
        others = Owner.remote().work.remote([2.5] + 3 * [0.1])
        assert waits(others, 2)  # by now the first of them runs, and the rest is queued
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ray.exceptions.WorkerCrashedError):
            ray.get(waiting, timeout=60)
        assert most_at_once(ray.get(others, timeout=60)) == 1


@pytest.mark.deep
def test_what_comes_back_on_one_node_holds_up_what_starts_on_others(world: World):
    """Two nodes of one CPU each. While one more than that runs, nothing new starts on either."""
    nodes = [FixedSizeNode({"CPU": 1}, labels={"side": side}) for side in "lr"]
    with inside(fixed_size_nodes=[FixedSizeNodes(nodes, "STRICT_SPREAD")]):
        flag = Flag.options(num_cpus=0, max_concurrency=4).remote()
        outer = waits_and_works.remote(flag, 2.0)
        assert ray.get(flag.waited.remote(), timeout=60)
        owners = [Owner.options(node_labels={"side": In(side)}).remote() for side in "lr"]
        others = [owner.work.remote(5 * [0.9]) for owner in owners]
        assert waits(others[0], 3)  # both sides have a queue
        ray.get(flag.raise_it.remote(), timeout=60)
        left = ray.get(outer, timeout=60)
        ran = [each for side in ray.get(others, timeout=60) for each in side]
    back = left - 2.0
    assert most_at_once(ran) == 2
    new = [began for began, _ in ran if back <= began < left]
    assert new
    assert all(sum(began <= start < ended for began, ended in ran) == 1 for start in new)


def test_an_actor_keeps_its_share_while_it_waits_as_it_keeps_its_cpu(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}) as vc:
        actor = Idler.options(num_cpus=1).remote()
        assert ray.get(actor.which.remote(), timeout=60) == vc
        eventually(lambda: used(vc) == 1)  # the actor answers sooner than its node reports
        with sampled(vc) as seen:
            assert waits(actor.nested.remote(), 1.5)
        assert set(seen) == {1}
        ray.kill(actor)


def test_everything_that_is_nested_is_confined(world: World):
    with inside(flexible_resource_max={"CPU": 2}) as vc:
        idler = Idler.remote()
        assert ray.get([which.remote(), idler.which.remote(), idler.nested.remote()], timeout=60) == [vc, vc, vc]
        outside = scopes.current()
    assert outside == vc
    assert scopes.current() is None
    assert ray.get(which.remote(), timeout=60) is None


def test_a_zero_cpu_actor_stays_where_its_cluster_is(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}) as vc:
        (lies,) = {node["node_id"] for node in tree()[vc]["nodes"]}
        actors = [Idler.remote() for _ in range(3)]
        assert {*ray.get([actor.node.remote() for actor in actors], timeout=60)} == {lies}


def test_fixed_size_nodes_are_spread_and_selected_by_their_labels(world: World):
    nodes = [FixedSizeNode({"CPU": 1}, labels={"bundle_index": str(i)}) for i in range(2)]
    with inside(fixed_size_nodes=[FixedSizeNodes(nodes, "STRICT_SPREAD")]) as vc:
        lies = {node["labels"]["bundle_index"]: node["node_id"] for node in tree()[vc]["nodes"]}
        assert len({*lies.values()}) == 2
        actors = [Idler.options(num_cpus=1, node_labels={"bundle_index": In(str(i))}).remote() for i in range(2)]
        assert ray.get([actor.node.remote() for actor in actors], timeout=60) == [lies["0"], lies["1"]]
        third = which.options(label_selector={"bundle_index": "0"}).remote()
        assert waits(third)
        ray.kill(actors[0])
        assert ray.get(third, timeout=60) == vc


@pytest.mark.core
def test_a_placement_group_lies_in_its_cluster(world: World):
    with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as vc:
        group = placement_group([{"CPU": 1}, {"CPU": 1}])
        ray.get(group.ready(), timeout=60)
        eventually(lambda: used(vc) == 2)
        assert ray.get(which.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote(), timeout=60) == vc
        late = which.remote()
        assert waits(late)
        remove_placement_group(group)
        assert ray.get(late, timeout=60) == vc


def test_nested_clusters_share_what_their_parent_has(world: World):
    with inside(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 3}) as outer:
        with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as middle:
            with inside(flexible_resource_min={"CPU": 1}) as inner:
                rows = tree()
                assert (rows[inner]["parent"], rows[middle]["parent"]) == (middle, outer)
                assert ray.get(which.remote(), timeout=60) == inner
                with pytest.raises(InvalidVirtualClusterError, match="can never fit"), VirtualCluster({"CPU": 3}):
                    pass
                assert ray.get(nest.remote(3), timeout=60) == 3
            assert ray.get(which.remote(), timeout=60) == middle
        assert ray.get(which.remote(), timeout=60) == outer
    eventually(lambda: all(map(is_gone, (outer, middle, inner))))


def test_two_siblings_have_their_parts_under_load(world: World):
    with inside(flexible_resource_min={"CPU": 5}, flexible_resource_max={"CPU": 5}):
        with inside(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4}):
            many = [timed.remote(0.2) for _ in range(40)]
        with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
            few = [timed.remote(0.2) for _ in range(10)]
        assert most_at_once(ray.get(many, timeout=60)) == 4
        assert most_at_once(ray.get(few, timeout=60)) == 1


def test_the_second_job_waits_for_its_minimum_and_then_runs(world: World):
    code = """
        import remora, time
        from remora import VirtualCluster
        remora.init(address=address, logging_level="ERROR", log_to_driver=False,
                    virtual_cluster=VirtualCluster(flexible_resource_min={"CPU": 3}))
        print("in", flush=True)
    """
    first = run_driver(world, code.rstrip() + "\n        time.sleep(600)\n")
    assert line_of(first) == "in\n"
    second = run_driver(world, code)
    queued = eventually(lambda: [row for row in tree().values() if row["state"] == "QUEUED"])
    assert queued[0]["position"] == 1
    assert "3 CPU" in queued[0]["reason"]
    began = time.monotonic()
    first.kill()  # as with kill -9: nothing is tidied up
    first.communicate()
    out, _ = second.communicate(timeout=60)
    assert out == "in\n"
    eventually(lambda: not tree(), timeout=5)
    assert time.monotonic() - began < 30


@pytest.mark.core
def test_a_driver_that_is_killed_gives_everything_back(world: World):
    code = """
        import remora, time
        from remora import VirtualCluster
        remora.init(address=address, logging_level="ERROR", log_to_driver=False,
                    virtual_cluster=VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 3}))
        @ray.remote
        def work():
            time.sleep(600)
        refs = [work.remote() for _ in range(10)]
        print("in", flush=True)
        time.sleep(600)
    """
    driver = run_driver(world, code)
    assert line_of(driver) == "in\n"
    (vc,) = tree()
    eventually(lambda: used(vc) == 3)
    driver.kill()
    eventually(lambda: is_gone(vc), timeout=5)
    driver.communicate()


def test_a_driver_whose_node_is_lost_gives_everything_back(world: World):
    """Its raylet cannot tell of it any more, nor of the driver."""
    code = """
        import remora, time
        from remora import VirtualCluster
        remora.init(address=address, logging_level="ERROR", log_to_driver=False, _node_ip_address="127.0.0.2",
                    virtual_cluster=VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}))
        @ray.remote
        def work():
            time.sleep(600)
        refs = [work.remote() for _ in range(10)]
        print(ray.get_runtime_context().get_node_id(), flush=True)
        time.sleep(600)
    """
    with world.extra("mortal", num_cpus=0, labels={"zone": "mortal"}, node_ip_address="127.0.0.2") as kill:
        driver = run_driver(world, code)
        assert line_of(driver) == world.ids["mortal"] + "\n"
        (vc,) = tree()
        eventually(lambda: used(vc) == 2)
        os.kill(driver.pid, signal.SIGSTOP)  # a machine that is lost says nothing
        kill()
        eventually(lambda: is_gone(vc), timeout=30)
        driver.kill()
        driver.communicate()


def test_a_detached_actor_keeps_what_it_uses(world: World):
    code = """
        import remora
        from remora import VirtualCluster
        remora.init(address=address, logging_level="ERROR", log_to_driver=False, namespace="tests",
                    virtual_cluster=VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}))
        @ray.remote(num_cpus=1)
        class Keeper:
            def ping(self):
                return 1
        keeper = Keeper.options(name="keeper", lifetime="detached").remote()
        print(ray.get(keeper.ping.remote()), flush=True)
    """
    driver = run_driver(world, code)
    assert driver.communicate(timeout=60)[0] == "1\n"
    (vc,) = tree()
    eventually(lambda: tree()[vc]["total"] == {"CPU": 1.0})
    assert used(vc) == 1
    ray.kill(ray.get_actor("keeper", namespace="tests"))
    eventually(lambda: is_gone(vc))


def test_a_borrower_gives_back_for_a_minimum_and_nothing_is_killed(world: World):
    with inside():
        long = [timed.remote(0.2) for _ in range(400)]
        ray.wait(long, num_returns=5, timeout=60)
        code = """
            import remora, time
            from remora import VirtualCluster
            remora.init(address=address, logging_level="ERROR", log_to_driver=False,
                        virtual_cluster=VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}))
            @ray.remote
            def work():
                return 1
            print(sum(ray.get([work.remote() for _ in range(4)])), flush=True)
        """
        driver = run_driver(world, code)
        assert line_of(driver) == "4\n"
        assert ray.wait(long, num_returns=400, timeout=0)[1]  # it ran while there was still plenty to do for the borrower
        ray.get(long, timeout=120)
        driver.communicate(timeout=30)


@pytest.mark.deep
def test_plain_work_makes_room_for_a_minimum(world: World):
    plain = [timed.remote(0.2) for _ in range(80)]
    ray.wait(plain, num_returns=5, timeout=60)
    with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as vc:
        assert ray.get([which.remote() for _ in range(4)], timeout=60) == [vc] * 4
        assert ray.wait(plain, num_returns=80, timeout=0)[1]
    ray.get(plain, timeout=60)


def test_a_lost_node_is_made_again_elsewhere_and_actors_follow(world: World):
    roomy = {"num_cpus": 2, "resources": {"Roomy": 1}}
    spec = {"fixed_size_nodes": [FixedSizeNodes([FixedSizeNode({"CPU": 2, "Roomy": 0.5})])]}
    with world.extra("first", **roomy) as kill, inside(**spec) as vc, world.extra("second", **roomy):
        assert [world.name(node["node_id"]) for node in tree()[vc]["nodes"]] == ["first"]
        actor = Idler.options(num_cpus=1, max_restarts=-1, max_task_retries=-1).remote()
        assert world.name(ray.get(actor.node.remote(), timeout=60)) == "first"
        kill()
        eventually(lambda: not world.alive("first"))
        assert world.name(ray.get(actor.node.remote(), timeout=90)) == "second"
        assert [world.name(node["node_id"]) for node in tree()[vc]["nodes"]] == ["second"]
        ray.kill(actor)


def test_waiting_for_a_minimum_has_an_end_and_leaves_nothing(world: World):
    with inside(flexible_resource_min={"CPU": 4}) as vc:
        with pytest.raises(TimeoutError, match="left the queue"):
            entering.open_now(VirtualCluster({"CPU": 4}, timeout=1.5), None)
        assert list(tree()) == [vc]
    eventually(lambda: not tree())


def test_a_controller_that_is_killed_keeps_every_limit(world: World):
    with inside(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2}) as vc, sampled(vc) as seen:
        refs = [timed.remote(0.05) for _ in range(150)]
        for part in (20, 60):
            ray.wait(refs, num_returns=part, timeout=60)
            ray.kill(controller(), no_restart=False)
            eventually(lambda: ray.get(controller().pid.remote()))
        assert most_at_once(ray.get(refs, timeout=60)) == 2
    assert max(seen) == 2


@pytest.mark.core
def test_with_cancel_its_work_is_stopped_at_the_end(world: World):
    with inside(flexible_resource_max={"CPU": 2}, cancel=True) as vc:
        refs = [timed.remote(60) for _ in range(4)]
        actor = Idler.options(num_cpus=0).remote()
        ray.get(actor.node.remote(), timeout=60)
        eventually(lambda: used(vc) == 2)
    for ref in refs:
        with pytest.raises(ray.exceptions.RayError):
            ray.get(ref, timeout=30)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.node.remote(), timeout=30)
    eventually(lambda: is_gone(vc))


BAD = [
    ({"flexible_resource_min": {"CPU": -1}}, "negative"),
    ({"flexible_resource_min": {"CPU": "many"}}, "not a number"),
    ({"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 1}}, "above"),
    ({"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 64}}]}]}, "can never fit"),
    ({"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 1}}], "scheduling_policy": "TIGHT"}]}, "TIGHT"),
    ({"minimum": {"CPU": 1}}, "minimum"),
]


@pytest.mark.parametrize(("spec", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_input_is_refused_and_reserves_nothing(world: World, spec: dict[str, Any], said: str):
    before = {*tree()}
    with pytest.raises(InvalidInputError, match=said), VirtualCluster.parse(spec):
        pass
    assert {*tree()} <= before


def test_one_that_is_in_use_cannot_be_entered_again(world: World):
    spec = VirtualCluster({"CPU": 1})
    with spec, pytest.raises(InvalidVirtualClusterError, match="in use already"), spec:
        pass
    eventually(lambda: not tree())


class _Looker:
    def look(self) -> str:
        found: str = ray.get_runtime_context().current_cluster().cluster_id()
        return found


def test_a_worker_finds_a_controller_that_was_started_anew(world: World):
    """It has spoken to the one before; what is sent to that is lost without a word."""
    looker = ray.remote(num_cpus=0)(_Looker).remote()
    assert ray.get(looker.look.remote(), timeout=60) == "root"
    remora.shutdown_controller()
    remora.attach()

    def answers() -> bool:
        with contextlib.suppress(ray.exceptions.RayTaskError):
            return bool(ray.get(looker.look.remote(), timeout=60) == "root")
        return False

    eventually(answers, timeout=10)
    ray.kill(looker)
