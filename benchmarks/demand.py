"""Which machines to start: Remora's plan beside Ray's own ``ResourceDemandScheduler`` (autoscaler v2), in the same process.

    python benchmarks/demand.py                all of it (about two minutes)
    python benchmarks/demand.py --quick        one load of each size

Both get the same node types, limits and demands with label selectors, and nothing is there yet. Times are processor time: of
Ray's one run, of ours the best of several, from the demands to the answer for each of them. Then plans on a cluster of 2,000
nodes, also of what Ray has no notion of. What misses its goal is marked, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from remora import actor_affinity, label_not_in
from remora.kernel.provisioning.demands import Demand, Waiting, waiting_of
from remora.kernel.provisioning.planning import plan
from remora.kernel.provisioning.plans import Plan
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.type_table import TypeTable
from remora.model.node_types import NodeTypes, parse_node_types
from remora.model.requests import parse_request
from remora.sim import SimCluster

ROUNDS = 7
NODES = 2_000

MIXED = {
    "small": {"resources": {"CPU": 4, "memory": 16}, "labels": {"zone": "a"}},
    "medium": {"resources": {"CPU": 16, "memory": 64}, "labels": {"zone": "a"}},
    "large": {"resources": {"CPU": 64, "memory": 256}, "labels": {"zone": "b"}},
    "gpu": {"resources": {"CPU": 16, "memory": 128, "GPU": 4}, "labels": {"zone": "b"}},
    "gpus": {"resources": {"CPU": 96, "memory": 768, "GPU": 8}, "labels": {"zone": "c"}},
}
PLAIN = {
    "two": {"resources": {"CPU": 8, "memory": 32}},
    "four": {"resources": {"CPU": 32, "memory": 128}},
    "highmem": {"resources": {"CPU": 16, "memory": 256}},
    "gpu": {"resources": {"CPU": 32, "memory": 256, "GPU": 8}},
    "huge": {"resources": {"CPU": 128, "memory": 512}},
}

Kinds = list[tuple[dict[str, float], dict[str, str], int]]
"""What each needs, its selector, how many there are."""


class Row(NamedTuple):
    """One size, and how many times faster than Ray it has to be."""

    demands: int
    kinds: int
    times: int


ROWS = (Row(1_000, 25, 20), Row(10_000, 25, 30), Row(10_000, 100, 30))


def make_load(demands: int, kinds: int, seed: int, zones: bool) -> Kinds:
    dice = random.Random(seed)
    shapes: dict[tuple[Any, ...], int] = {}
    while len(shapes) < kinds:
        gpus = dice.choice([0, 0, 0, 0, 1, 2])
        zone = dice.choice([None, None, None, "a", "b"]) if zones else None
        if gpus and zone == "a":
            zone = "b"
        shape = (dice.choice([0.5, 1, 1, 2, 2, 3, 4, 5, 6, 8, 12]), dice.choice([0, 1, 2, 4, 8, 16, 24]), gpus, zone)
        shapes.setdefault(shape, 0)
    listed = sorted(shapes, key=str)
    for _ in range(demands):
        shapes[dice.choice(listed)] += 1
    found: Kinds = []
    for (cpus, memory, gpus, zone), count in shapes.items():
        need = {name: amount for name, amount in (("CPU", cpus), ("memory", memory), ("GPU", gpus)) if amount}
        if count:
            found.append((need, {"zone": zone} if zone else {}, count))
    return found


def run_ray(types: NodeTypes, kinds: Kinds) -> tuple[float, int, int]:
    """Return the seconds that Ray takes, the machines that it starts, and what it leaves without one."""
    from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil
    from ray.core.generated.autoscaler_pb2 import ResourceRequestByCount
    from ray.core.generated.common_pb2 import LabelSelectorOperator

    configs = {
        each.name: NodeTypeConfig(
            name=each.name,
            min_worker_nodes=0,
            max_worker_nodes=each.most or 10**9,
            resources=each.resources.to_dict(),
            labels=dict(each.labels),
        )
        for each in types
    }
    requests = []
    for need, selector, count in kinds:
        terms = [(key, LabelSelectorOperator.LABEL_OPERATOR_IN, [value]) for key, value in selector.items()]
        request = ResourceRequestUtil.make(need, label_selectors=[terms] if terms else None)
        requests.append(ResourceRequestByCount(request=request, count=count))
    asked = SchedulingRequest(
        disable_launch_config_check=True, node_type_configs=configs, max_num_nodes=types.most, resource_requests=requests
    )
    scheduler = ResourceDemandScheduler()
    start = time.process_time()
    reply = scheduler.schedule(asked)
    seconds = time.process_time() - start
    return seconds, sum(launch.count for launch in reply.to_launch), len(reply.infeasible_resource_requests)


def demands_of(kinds: Kinds) -> Waiting:
    return Waiting(
        work=tuple(
            Demand(number, f"kind {number}", parse_request("task", resources=need, label_selector=selector or None), count)
            for number, (need, selector, count) in enumerate(kinds)
        )
    )


def best_of(run: Callable[[], Plan]) -> tuple[float, Plan]:
    """Return the seconds of the fastest of several runs, and its plan: what else runs here only ever adds."""
    seconds, found = [], Plan()
    for _ in range(ROUNDS):
        start = time.process_time()
        found = run()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def run_ours(types: NodeTypes, kinds: Kinds) -> tuple[float, int, int]:
    waiting = demands_of(kinds)
    seconds, found = best_of(lambda: plan(Cluster(), waiting, TypeTable(types)))
    return seconds, sum(found.add.values()), sum(answer.count - answer.served for answer in found.answers)


def compare(row: Row, seed: int, declared: dict[str, Any], name: str) -> bool:
    types = parse_node_types({"node_types": declared})
    kinds = make_load(row.demands, row.kinds, seed, zones=name == "mixed")
    ours, machines, left = run_ours(types, kinds)
    rays, rays_machines, rays_left = run_ray(types, kinds)
    good = rays >= row.times * ours and (left, machines) <= (rays_left, rays_machines)
    print(
        f"{row.demands:>7,} {len(kinds):>5}  {name:<6} {ours * 1e3:>8.2f} ms {machines:>6,}  {rays * 1e3:>8.0f} ms "
        f"{rays_machines:>6,}  {rays / ours:>5.0f}x (goal {row.times}x){'' if good else '   MISSED'}"
    )
    return good


def measure_many() -> bool:
    types = parse_node_types({"node_types": MIXED})
    seconds, machines, _ = run_ours(types, make_load(100_000, 100, 3, zones=True))
    good = seconds < 0.150
    print(f"100,000   100  mixed  {seconds * 1e3:>8.2f} ms {machines:>6,}  (goal under 150 ms){'' if good else '   MISSED'}")
    return good


def full_cluster(nodes: int, *, ragged: bool = False) -> SimCluster:
    """Return a cluster in which every node is full but for a little, with an elastic virtual cluster on some of them; or
    (``ragged``) no two nodes have the same left."""
    c = SimCluster()
    c.offer_node_types({"node_types": {name: {**each, "max_workers": 10 * nodes} for name, each in MIXED.items()}})
    c.scheduler.offer_types(None)
    for number in range(nodes):
        c.add_node(
            f"n{number}", {"CPU": 16, "memory": 64}, {"zone": "ab"[number % 2], "rack": f"r{number // 40}"}, node_type="medium"
        )
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 16 * nodes // 10}, "flexible_resource_max": {"CPU": 16 * nodes}})
    for number in range(nodes - nodes // 10):
        cpus, memory = (8 + number % 80 / 10, 30 + number / nodes) if ragged else (15 + (number % 2) * 0.5, 60)
        c.submit("actor", resources={"CPU": cpus, "memory": round(memory, 4)}, labels={"app": f"a{number % 50}"})
    c.offer_node_types({"node_types": {name: {**each, "max_workers": 10 * nodes} for name, each in MIXED.items()}})
    return c


def measure_live(nodes: int) -> bool:
    """Plans on a cluster that is there, of things that Ray's autoscaler knows nothing of."""

    def kinds(c: SimCluster) -> None:
        for number in range(10_000):
            c.submit("task", resources={"CPU": 1 + number % 10, "memory": 1 + number % 10 * 4})

    def cats(c: SimCluster) -> None:
        apart = actor_affinity(label_not_in("type", ["cat"], False))
        for _ in range(500):
            c.submit("actor", resources={"CPU": 2}, labels={"type": "cat"}, scheduling_strategy=apart)

    def wholes(c: SimCluster) -> None:
        for number in range(10):
            c.placement_group([{"CPU": 4}] * (5 + number), "STRICT_SPREAD")
        for _ in range(5):
            c.create_virtual_cluster({"flexible_resource_min": {"CPU": 200}})

    def elastic(c: SimCluster) -> None:
        for _ in range(4 * nodes):
            c.submit("task", resources={"CPU": 2}, virtual_cluster="vc-1")

    good = True
    print(f"\non {nodes:,} full nodes                                        plan  machines")
    for words, submit, goal in (
        ("10,000 tasks of 10 kinds", kinds, 0.050),
        ("the same, every node with another room", kinds, 0.200),
        ("500 actors that keep apart", cats, 0.200),
        ("10 gangs apart, 5 queued virtual clusters", wholes, 0.500),
        (f"{4 * nodes:,} tasks in an elastic virtual cluster", elastic, 0.200),
    ):
        c = full_cluster(nodes, ragged="another room" in words)
        if "another room" in words:  # what is not submitted yet: nothing has been tried on the nodes
            also = [
                Demand(n, f"k{n}", parse_request("task", resources={"CPU": 1 + n, "memory": 1 + n * 4}), 1_000)
                for n in range(10)
            ]
        else:
            also = []
            submit(c)
        table = c.scheduler.cluster.types
        assert table is not None
        seconds, found = best_of(
            lambda c=c, table=table, also=also: plan(c.scheduler.cluster, waiting_of(c.scheduler, also), table)  # type: ignore[misc]
        )
        fine = seconds < goal and sum(found.add.values()) > 0
        good &= fine
        print(
            f"  {words:<45} {seconds * 1e3:>8.1f} ms  {sum(found.add.values()):>6,}  (goal {goal * 1e3:.0f} ms)"
            f"{'' if fine else '   MISSED'}"
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one load of each size")
    quick = parser.parse_args().quick
    logging.disable(logging.CRITICAL)
    print("demands kinds  types      remora  nodes       Ray v2  nodes")
    good = True
    for row in ROWS:
        for seed in (1,) if quick else (1, 2, 3):
            for name, declared in (("mixed", MIXED), ("plain", PLAIN)):
                good &= compare(row, seed, declared, name)
    good &= measure_many()
    good &= measure_live(NODES)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
