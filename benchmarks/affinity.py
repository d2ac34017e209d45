"""Affinity next to placement groups and to stock Ray: one run on one cluster, ratios printed.

    python benchmarks/affinity.py              about three minutes

Four cats, one on a node, and three dogs with each: by affinity, and the same by placement groups, from the first call to the
last answer. The start of one actor by affinity next to a stock one that is pinned to a node. And how many decisions the
controller makes in a second when one driver keeps many in flight.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

import remora
from remora import actor_affinity, label_in, label_not_in
from remora.live.link import link
from remora.wire.asks import encode_ask
from remora.wire.calls import GiveUp, Place, new_ask, read_answer
from remora.wire.rewrite import Defaults, rewrite


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
    return elapsed * 1e3


def decisions_per_second(count: int) -> float:
    asked = rewrite({"labels": {"type": "bench"}}, Defaults()).ask("actor", {"CPU": 0.0001}, {"CPU": 0.0001}, "bench", [])
    job = ray.get_runtime_context().get_job_id()
    text = encode_ask(asked)
    began = time.perf_counter()
    calls = [Place(new_ask(), text, job) for _ in range(count)]
    given = [read_answer(data) for data in ray.get([link.tell(call) for call in calls])]
    elapsed = time.perf_counter() - began
    ray.get([link.tell(GiveUp(slot, call.ask)) for (slot, _), call in zip(given, calls, strict=True)])
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    for zone in ("a", "b", "c"):
        cluster.add_node(num_cpus=2, labels={"zone": zone})
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    node_id = next(node["NodeID"] for node in ray.nodes() if node["Labels"].get("zone") == "a")

    affinity: list[float] = []
    groups: list[float] = []
    leased: list[float] = []
    pinned: list[float] = []
    for round_ in range(rounds + 1):
        for ours in (True, False) if round_ % 2 else (False, True):  # workers that one starts too many are found by the next
            if ours:
                remora.attach()
                value = timed(by_affinity), one({"labels": {"type": "one"}, "label_selector": {"zone": "a"}})
            else:
                remora.detach()
                value = timed(by_groups), one({"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)})
            if round_:  # the first starts workers and loads code
                (affinity if ours else groups).append(value[0])
                (leased if ours else pinned).append(value[1])
    remora.attach()
    for name, before, after, unit in (
        ("4 cats and 12 dogs", groups, affinity, "s"),
        ("start of one actor", pinned, leased, "ms"),
    ):
        ratio = statistics.median(after[i] / before[i] for i in range(rounds))
        was, is_ = statistics.median(before), statistics.median(after)
        print(f"{name:22} stock {was:8.2f} {unit}   affinity {is_:8.2f} {unit}   ratio {ratio:.2f}")
    print(f"decisions through the controller, pipelined: {decisions_per_second(2_000):.0f}/s")
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
