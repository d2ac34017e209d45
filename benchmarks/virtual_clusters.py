"""Virtual clusters next to stock Ray: one run on one cluster, ratios printed.

    python benchmarks/virtual_clusters.py              about two minutes

Tasks per second of a driver in a virtual cluster of all CPUs, next to those of a stock one; they take turns. Making and ending
a gang of two nodes, next to the same as a placement group: one after the other, and with many in flight; and placement groups
inside a virtual cluster, next to those of stock Ray. And how soon the first
task of an empty cluster starts, and the whole cluster is as large as its maximum, where its parent has room.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from side_by_side import Driver, head, in_turns, report, serve, start

import remora
from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.ray_seam import raw

BATCH = 500
WARM = 50
GANGS = 10
CPUS = 4

GANG = VirtualCluster(
    fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")]
)


def per_second(task: Any) -> float:
    ray.get([task.remote() for _ in range(WARM)])  # until it has the workers that the other driver had
    began = time.perf_counter()
    ray.get([task.remote() for _ in range(BATCH)])
    return BATCH / (time.perf_counter() - began)


def groups_one_by_one() -> float:
    began = time.perf_counter()
    for _ in range(GANGS):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
        group.wait(30)
        remove_placement_group(group)
    return GANGS / (time.perf_counter() - began)


def clusters_one_by_one() -> float:
    began = time.perf_counter()
    for _ in range(GANGS):
        with VirtualCluster(fixed_size_nodes=GANG.fixed_size_nodes):
            pass
    return GANGS / (time.perf_counter() - began)


def groups_in_flight() -> float:
    """Two fit at once: the next is asked for before the last is removed."""
    began = time.perf_counter()
    last = None
    for _ in range(GANGS):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
        group.wait(30)
        if last is not None:
            remove_placement_group(last)
        last = group
    remove_placement_group(last)
    return GANGS / (time.perf_counter() - began)


def clusters_in_flight(controller: Any, job_id: str) -> float:
    began = time.perf_counter()
    text = json.dumps(GANG.to_dict())
    last = None
    for _ in range(GANGS):
        made = controller.create_cluster.remote(text, None, job_id, 0, [], 5.0)
        if last is not None:
            controller.close_cluster.remote(last, True)
        look = ray.get(made)
        while look["state"] == "QUEUED":
            look = ray.get(controller.look_cluster.remote(look["cluster_id"]))
        last = look["cluster_id"]
    ray.get(controller.close_cluster.remote(last, True))
    return GANGS / (time.perf_counter() - began)


def bounds() -> tuple[float, float]:
    """Milliseconds of Ray's own that a gang takes at least: its tokens given and taken on two nodes, and remembered twice."""
    gcs = ray._private.worker.global_worker.gcs_client
    nodes = [node["NodeID"] for node in raw.nodes()]
    resizes, writes = [], []
    for _ in range(20):
        began = time.perf_counter()
        for amount in (1.0, 0.0):
            for node_id in nodes:
                gcs.resize_raylet_resource_instances(node_id, {"bench/gang": amount})
        resizes.append(time.perf_counter() - began)
        began = time.perf_counter()
        gcs.internal_kv_put(b"gang", b"", True, b"bench")
        gcs.internal_kv_del(b"gang", False, b"bench")
        writes.append(time.perf_counter() - began)
    return statistics.median(resizes) * 1e3, statistics.median(writes) * 1e3


def growth(task: Any, controller: Any) -> tuple[float, float]:
    """Milliseconds from the first submission to the first task that runs, and to the maximum."""
    while len(ray.get(controller.look_clusters.remote())) > 1:  # until the last one has given everything back
        time.sleep(0.1)
    with VirtualCluster(flexible_resource_max={"CPU": CPUS}):
        began = time.perf_counter()
        refs = [task.remote() for _ in range(200)]
        first = 0.0
        while True:
            total = ray.get(controller.look_clusters.remote())[-1]["total"].get("CPU", 0)
            first = first or (time.perf_counter() - began if total else 0.0)
            if total >= CPUS:
                break
        full = time.perf_counter() - began
        ray.get(refs)
    return first * 1e3, full * 1e3


def drive(name: str, address: str) -> None:
    given: dict[str, Any] = {"address": address, "logging_level": "ERROR", "log_to_driver": False}
    if name == "stock":
        ray.init(**given)
    else:
        remora.init(**given, virtual_cluster=VirtualCluster(flexible_resource_max={"CPU": CPUS}, idle_seconds=60))
    serve({"tasks/s": partial(per_second, ray.remote(lambda: None))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(arguments.driver, arguments.address)
        return
    rounds = arguments.rounds
    cluster = start([2, 2])
    stock, inside = (Driver(__file__, name, cluster.address) for name in ("stock", "inside"))
    head("inside")
    report("tasks/s", in_turns(partial(stock.ask, "tasks/s"), partial(inside.ask, "tasks/s"), 3 * rounds))
    stock.end()
    inside.end()
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    found: dict[str, list[float]] = {}
    controller = ray.get_actor("remora-controller", namespace="remora")
    for _ in range(rounds):
        remora.detach()
        found.setdefault("groups", []).append(groups_one_by_one())
        found.setdefault("groups in flight", []).append(groups_in_flight())
        remora.attach()
        found.setdefault("clusters", []).append(clusters_one_by_one())
        job_id = ray.get_runtime_context().get_job_id()
        found.setdefault("clusters in flight", []).append(clusters_in_flight(controller, job_id))
        with VirtualCluster(flexible_resource_max={"CPU": CPUS}):
            found.setdefault("groups inside", []).append(groups_one_by_one())
    middle = {name: statistics.median(values) for name, values in found.items()}
    for how in ("", " in flight"):
        groups, clusters = middle[f"groups{how}"], middle[f"clusters{how}"]
        print(
            f"gangs of two made and ended a second{how}: placement groups {groups:.0f}, virtual clusters {clusters:.0f}, "
            f"ratio {clusters / groups:.2f}"
        )
    print(
        f"placement groups inside a virtual cluster: {middle['groups inside']:.1f} a second, ratio "
        f"{middle['groups inside'] / middle['groups']:.2f}"
    )
    resizes, writes = bounds()
    print(
        f"of the {1e3 / middle['clusters']:.1f} ms of a gang, its four resizes take {resizes:.1f} and its two writes into GCS "
        f"{writes:.1f}; the rest is two calls of the controller and what it decides"
    )
    work = ray.remote(lambda: time.sleep(0.02))
    grown = [growth(work, controller) for _ in range(rounds)]
    first, full = (statistics.median(values) for values in zip(*grown, strict=True))
    print(f"growth where the parent has room: first share after {first:.0f} ms, all {CPUS} CPUs after {full:.0f} ms")
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
