"""Affinity next to placement groups and to stock Ray: one run on one cluster, ratios printed.

    python benchmarks/affinity.py              about three minutes

Four cats, one on a node, and three dogs with each: by affinity, and the same by placement groups, from the first call to the
last answer. Once with as many worker processes waiting on each node as will be needed, which shows what placing them costs; and
once with none, where each of the sixteen starts a process, which costs about a second of CPU. The start of one actor by
affinity next to a stock one that is pinned to a node. And how many decisions the controller makes in a second when one driver
keeps many in flight.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

import remora
from remora import actor_affinity, label_in, label_not_in
from remora.wire.leases import encode_ask
from remora.wire.options import Defaults, rewrite

MOST = 4  # idle workers on a node


class Animal:
    def ping(self) -> None:
        pass


def by_affinity() -> list[Any]:
    make = ray.remote(Animal)
    lonely = actor_affinity(label_not_in("type", ["cat"], False))
    made = [
        make.options(num_cpus=0.1, labels={"type": "cat", "id": f"cat-{i}"}, scheduling_strategy=lonely).remote()
        for i in range(4)
    ]
    for i in range(4):
        near = actor_affinity(label_in("id", [f"cat-{i}"], False))
        made += [make.options(num_cpus=0.1, labels={"type": "dog"}, scheduling_strategy=near).remote() for _ in range(3)]
    return made


def by_groups() -> tuple[list[Any], Any]:
    make = ray.remote(Animal)
    group = placement_group([{"CPU": 0.4}] * 4, strategy="STRICT_SPREAD")
    made = []
    for i in range(4):
        inside = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)
        made += [make.options(num_cpus=0.1, scheduling_strategy=inside).remote() for _ in range(4)]
    return made, group


def ready_workers(count: int) -> None:
    """So many idle worker processes on each node, neither more nor fewer."""

    def hold() -> int:
        time.sleep(0.5)
        return os.getpid()

    task = ray.remote(hold)
    for node in ray.nodes():
        here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        pids = set(ray.get([task.options(num_cpus=0.1, scheduling_strategy=here).remote() for _ in range(MOST)]))
        for pid in sorted(pids)[count:]:
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)  # until the raylets have noticed


def timed(start: Any) -> float:
    began = time.perf_counter()
    found = start()
    actors, group = found if isinstance(found, tuple) else (found, None)
    ray.get([actor.ping.remote() for actor in actors])
    elapsed = time.perf_counter() - began
    for actor in actors:
        ray.kill(actor)
    if group is not None:
        remove_placement_group(group)
    time.sleep(2)  # until the workers are gone
    return elapsed


def one(options: dict[str, Any]) -> float:
    began = time.perf_counter()
    actor = ray.remote(Animal).options(num_cpus=0.1, **options).remote()
    ray.get(actor.ping.remote())
    elapsed = time.perf_counter() - began
    ray.kill(actor)
    time.sleep(0.5)
    return elapsed


def decisions_per_second(count: int) -> float:
    controller = ray.get_actor("remora-controller", namespace="remora")
    asked = rewrite({"labels": {"type": "bench"}}, Defaults()).ask("actor", {"CPU": 0.0001}, {"CPU": 0.0001}, "bench", [])
    job = ray.get_runtime_context().get_job_id()
    text = encode_ask(asked)
    began = time.perf_counter()
    given = ray.get([controller.place.remote(text, job) for _ in range(count)])
    elapsed = time.perf_counter() - began
    ray.get([controller.give_up.remote(slot) for slot, _ in given])
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ.update(RAY_num_workers_soft_limit=str(MOST))  # idle workers beyond this end after a second
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    for zone in ("a", "b", "c"):
        cluster.add_node(num_cpus=2, labels={"zone": zone})
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    node_id = next(node["NodeID"] for node in ray.nodes() if node["Labels"].get("zone") == "a")
    pinned = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
    chosen = {"labels": {"type": "one"}, "label_selector": {"zone": "a"}}
    cases: dict[str, tuple[int, Callable[[], float], Callable[[], float]]] = {
        "16 animals, 4 workers wait on each node": (4, lambda: timed(by_groups), lambda: timed(by_affinity)),
        "16 animals, each starts a worker": (0, lambda: timed(by_groups), lambda: timed(by_affinity)),
        "one actor, a worker waits": (1, lambda: one(pinned), lambda: one(chosen)),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for round_ in range(rounds + 1):
        for name, (workers, theirs, ours) in cases.items():
            remora.detach()
            ready_workers(workers)
            stock = theirs()
            ready_workers(workers)
            remora.attach()
            value = ours()
            if round_:  # the first loads code
                found[name].append((stock, value))
    for name, pairs in found.items():
        ratio = statistics.median(value / stock for stock, value in pairs)
        was, is_ = (statistics.median(each) for each in zip(*pairs, strict=True))
        print(f"{name:40} stock {was:6.2f} s   affinity {is_:6.2f} s   ratio {ratio:.2f}")
    print(f"decisions through the controller, pipelined: {decisions_per_second(2_000):.0f}/s")
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
