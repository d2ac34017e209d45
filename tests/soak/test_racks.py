"""Six raylets in three zones and two racks each: affinity, spreading and gangs by them, with taints, shares and deaths."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import LEAN, QUICK, eventually, waits

import remora
from remora import (
    FixedSizeNode,
    FixedSizeNodes,
    VirtualCluster,
    actor_affinity,
    affinity,
    label_in,
    label_not_in,
    spread,
)
from remora.live.adapter import unpatched

RACKS = ("a1", "a2", "b1", "b2", "c1", "c2")


class Six:
    """The cluster, with its raylets by rack."""

    def __init__(self) -> None:
        os.environ.update(QUICK)
        self.raylets: dict[str, Any] = {}
        head = {"num_cpus": 2, "include_dashboard": False, "labels": {"zone": "a", "rack": "a1"}}
        self.cluster = Cluster(initialize_head=True, head_node_args={**LEAN, **head})
        for rack in RACKS[1:]:
            self.start(rack)
        remora.init(address=self.cluster.address, logging_level="ERROR", log_to_driver=False)
        self.ids = eventually(self._ids)

    def start(self, rack: str) -> None:
        labels = {"zone": rack[0], "rack": rack}
        self.raylets[rack] = self.cluster.add_node(**LEAN, num_cpus=2, labels=labels, wait=False)

    def _ids(self) -> dict[str, str] | None:
        found = {node["Labels"].get("rack"): node["NodeID"] for node in unpatched.nodes() if node["Alive"]}
        return {rack: found[rack] for rack in RACKS} if found.keys() >= {*RACKS} else None

    def kill(self, rack: str) -> None:
        self.cluster.remove_node(self.raylets.pop(rack), allow_graceful=False)

    def restart(self, rack: str) -> None:
        self.start(rack)
        self.ids = eventually(self._ids)

    def rack(self, node_id: str) -> str:
        return next(rack for rack, known in self.ids.items() if known == node_id)

    def racks(self, refs: list[Any], timeout: float = 120) -> list[str]:
        return [self.rack(node_id) for node_id in ray.get(refs, timeout=timeout)]


@pytest.fixture(scope="module")
def six() -> Iterator[Six]:
    made = Six()
    yield made
    remora.detach()
    ray.shutdown()
    made.cluster.shutdown()


class Guest:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def make(**options: Any) -> Any:
    return ray.remote(Guest).options(**{"num_cpus": 0, **options}).remote()


def nodes(actors: list[Any]) -> list[Any]:
    return [actor.node.remote() for actor in actors]


class Crowd:
    def __init__(self) -> None:
        self.made: list[Any] = []

    def make(self, count: int) -> None:
        apart = actor_affinity(label_not_in("svc", ["crowd"], soft=False, topology="zone"))
        self.made += [make(labels={"svc": "crowd"}, scheduling_strategy=apart) for _ in range(count)]

    def placed(self) -> list[str]:
        started, _ = ray.wait([each.node.remote() for each in self.made], num_returns=len(self.made), timeout=0.3)
        return list(ray.get(started))


def test_fifty_from_five_processes_give_exactly_one_in_each_zone(six: Six) -> None:
    crowds: list[Any] = [ray.remote(Crowd).options(num_cpus=0).remote() for _ in range(5)]
    ray.get([crowd.make.remote(10) for crowd in crowds], timeout=120)

    def placed() -> list[str]:
        return sorted(six.rack(node)[0] for found in ray.get([each.placed.remote() for each in crowds]) for node in found)

    eventually(lambda: len(placed()) >= 3)
    assert placed() == ["a", "b", "c"]
    extra = make(labels={"svc": "crowd"}, affinity=actor_affinity("svc not in [crowd] within zone"))
    reason = remora.explain(extra).reason
    assert reason == "0/6 nodes fit: 6 are in zones a, b, c that already host an actor with svc in (crowd)"
    for crowd in crowds:
        ray.kill(crowd)


def test_spread_and_near_with_a_tainted_zone(six: Six) -> None:
    even = [make(labels={"app": "even"}, scheduling_strategy=spread(over="zone")) for _ in range(6)]
    assert Counter(rack[0] for rack in six.racks(nodes(even))) == {"a": 2, "b": 2, "c": 2}
    near = make(scheduling_strategy=actor_affinity(affinity(even[0], topology="zone")))
    mate = make(scheduling_strategy=actor_affinity(label_in("app", ["even"], topology="rack")))
    assert six.racks(nodes([near]))[0][0] == six.racks(nodes([even[0]]))[0][0]
    assert six.racks(nodes([mate]))
    for rack in ("c1", "c2"):
        remora.taint_node(six.ids[rack], {"broken": "true"})
    try:
        two = [make(labels={"app": "two"}, scheduling_strategy=spread(over="zone")) for _ in range(4)]
        assert Counter(rack[0] for rack in six.racks(nodes(two))) == {"a": 2, "b": 2}
    finally:
        for rack in ("c1", "c2"):
            remora.untaint_node(six.ids[rack], ["broken"])


def _where(group: Any, count: int) -> list[Any]:
    places = [make(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)) for index in range(count)]
    return nodes(places)


GROUPS = {
    "in one rack": ([{"rack": "STRICT_PACK"}], 2, [2]),
    "in Ray's own form": ({"rack": "STRICT_PACK"}, 2, [2]),
    "in different zones": ([{"zone": "STRICT_SPREAD"}], 3, [1, 1, 1]),
    "spread over zones, each in one rack": ([{"zone": "SPREAD"}, {"rack": "STRICT_PACK"}], 6, [2, 2, 2]),
    "packed into a zone": ([{"zone": "PACK"}], 4, [2, 2]),
}


@pytest.mark.parametrize(("topology", "count", "want"), list(GROUPS.values()), ids=list(GROUPS))
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in a virtual cluster"])
def test_a_group_lies_as_its_topology_says(six: Six, topology: Any, count: int, want: list[int], inside: bool) -> None:
    def check() -> None:
        group = placement_group([{"CPU": 1}] * count, topology_strategy=topology)
        assert group.wait(60)
        assert sorted(Counter(six.racks(_where(group, count))).values()) == want
        remove_placement_group(group)

    if not inside:
        check()
        return
    with VirtualCluster(flexible_resource_min={"CPU": 12}, cancel=True):
        check()


def test_fixed_size_nodes_lie_over_racks(six: Six) -> None:
    share = FixedSizeNodes([FixedSizeNode({"CPU": 1})] * 2, topology=[{"rack": "STRICT_PACK"}])
    with VirtualCluster(fixed_size_nodes=[share], cancel=True):
        where = ray.remote(num_cpus=1)(lambda: ray.get_runtime_context().get_node_id())
        assert len({*six.racks([where.remote() for _ in range(4)])}) == 1


def test_a_zone_that_is_killed_restarts_elsewhere_and_a_gang_moves_to_another_rack_as_one(six: Six) -> None:
    even = [
        make(labels={"app": "lives"}, scheduling_strategy=spread(over="zone"), max_restarts=-1, max_task_retries=-1)
        for _ in range(3)
    ]
    assert sorted(rack[0] for rack in six.racks(nodes(even))) == ["a", "b", "c"]
    group = placement_group(
        [{"CPU": 1}] * 2, topology_strategy=[{"rack": "STRICT_PACK"}], bundle_label_selector=[{"zone": "in(b, c)"}] * 2
    )
    assert group.wait(60)
    places = PlacementGroupSchedulingStrategy
    members = [
        make(num_cpus=1, scheduling_strategy=places(group, index), max_restarts=-1, max_task_retries=-1) for index in range(2)
    ]
    (rack,) = {*six.racks(nodes(members))}
    zone = [each for each in RACKS if each[0] == rack[0]]
    for each in zone:
        six.kill(each)
    try:
        eventually(lambda: not {six.ids[each] for each in zone} & {n["NodeID"] for n in unpatched.nodes() if n["Alive"]})
        moved = {*six.racks(nodes(members), timeout=120)}
        assert len(moved) == 1
        assert moved != {rack}
        assert rack[0] not in {each[0] for each in six.racks(nodes(even), timeout=120)}
    finally:
        remove_placement_group(group)
        for each in zone:
            six.restart(each)


def test_serve_spreads_its_replicas_over_zones_by_the_default_of_the_job(six: Six) -> None:
    serve: Any = pytest.importorskip("ray.serve")
    remora.init(spread=spread(over="zone"))

    @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1})
    class Here:
        def __call__(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    deployed: Any = Here
    try:
        handle = serve.run(deployed.bind(), name="zones", route_prefix=None)
        seen: set[str] = set()

        def both() -> bool:
            seen.update(handle.remote().result(timeout_s=60) for _ in range(10))
            return len({six.rack(node)[0] for node in seen}) == 2

        eventually(both)
    finally:
        serve.shutdown()


def test_what_waits_for_a_further_zone_waits(six: Six) -> None:
    rule = spread(over="zone", min_domains=4)
    made = [make(labels={"app": "floor"}, scheduling_strategy=rule) for _ in range(4)]
    started, left = ray.wait(nodes(made), num_returns=3, timeout=60)
    assert sorted(rack[0] for rack in six.racks(started)) == ["a", "b", "c"]
    assert waits(left[0], 1)
    assert "at least 4 zones" in remora.explain(made[3]).reason
