"""Virtual clusters next to stock Ray: one run on one machine, ratios printed.

    python benchmarks/virtual_clusters.py              about three minutes

Tasks per second of a driver in a virtual cluster of all CPUs, next to those of a stock one; they take turns. How soon the first
task of an empty cluster has a share, and the whole cluster is as large as its maximum, where its parent has room. And gangs,
made and ended as virtual clusters, next to the same made, waited for and removed as placement groups: two nodes and sixteen on
a cluster with room, where stock Ray is at its best, as a rate and as the median of one; by four threads at once; and on a
cluster that is full until the gang before has ended, where GCS tries again only after a second. Placement groups inside of a
virtual cluster, next to those of stock Ray.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from side_by_side import Driver, head, in_turns, report, serve, start

import remora
from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.live.adapter import unpatched
from remora.live.link import link
from remora.wire.calls import GetClusters

BATCH = 500
WARM = 50
GANGS = 100
FULL_GANGS = 3  # each takes stock Ray a second
CPUS = 4
ROOMY = 1_000  # as much as a hundred gangs take: GCS hears a tenth of a second later what was given back

Bundles = list[dict[str, float]]


def per_second(task: Any) -> float:
    ray.get([task.remote() for _ in range(WARM)])  # until it has the workers that the other driver had
    began = time.perf_counter()
    ray.get([task.remote() for _ in range(BATCH)])
    return BATCH / (time.perf_counter() - began)


def groups(bundles: Bundles, strategy: str, count: int = GANGS) -> float:
    """Placement groups made, waited for and removed in a second, one after the other."""
    began = time.perf_counter()
    for _ in range(count):
        group = placement_group(bundles, strategy=strategy)
        assert group.wait(30)
        remove_placement_group(group)
    return count / (time.perf_counter() - began)


def clusters(bundles: Bundles, strategy: str, count: int = GANGS) -> float:
    """The same as virtual clusters."""
    began = time.perf_counter()
    for _ in range(count):
        with VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode(each) for each in bundles], strategy)]):
            pass
    return count / (time.perf_counter() - began)


def in_flight(make: Callable[[], float], threads: int = 4) -> float:
    """The same by several threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: make(), range(threads)))
        return GANGS / (time.perf_counter() - began)


def milliseconds(make_one: Callable[[], float]) -> float:
    """The median of one: what is rare, as a second that GCS waits before it tries again, does not show."""
    return statistics.median(1e3 / make_one() for _ in range(50))


def bounds() -> tuple[float, float]:
    """Milliseconds of Ray's own that a gang takes at least: its tokens given and taken on two nodes, and remembered twice."""
    gcs = ray._private.worker.global_worker.gcs_client
    nodes = [node["NodeID"] for node in unpatched.nodes()]
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


def growth(task: Any) -> tuple[float, float]:
    """Milliseconds from the first submission to the first share, and to the maximum."""
    while link.ask(GetClusters()):  # until the last one has given everything back
        time.sleep(0.1)
    with VirtualCluster(flexible_resource_max={"CPU": CPUS}):
        began = time.perf_counter()
        refs = [task.remote() for _ in range(200)]
        first = 0.0
        while True:
            total = link.ask(GetClusters())[-1]["total"].get("CPU", 0)
            first = first or (time.perf_counter() - began if total else 0.0)
            if total >= CPUS:
                break
        full = time.perf_counter() - began
        ray.get(refs)
    return first * 1e3, full * 1e3


TWO, SIXTEEN = [{"CPU": 1.0}] * 2, [{"CPU": 1.0}] * 16
FULL = [{"CPU": float(ROOMY)}] * 2
GANG_CASES = {
    "gangs of 2, with room": (TWO, "STRICT_SPREAD", GANGS),
    "gangs of 16, with room": (SIXTEEN, "PACK", GANGS // 10),
    "gangs of 2 on a full cluster": (FULL, "STRICT_SPREAD", FULL_GANGS),
}


def drive(name: str, address: str) -> None:
    given: dict[str, Any] = {"address": address, "logging_level": "ERROR", "log_to_driver": False}
    if name == "tasks":
        remora.init(**given, virtual_cluster=VirtualCluster(flexible_resource_max={"CPU": CPUS}, idle_seconds=60))
    elif name == "inside":
        remora.init(**given, virtual_cluster=VirtualCluster(flexible_resource_max={"CPU": 2 * ROOMY}))
    elif name == "gangs":
        remora.init(**given)
    else:
        ray.init(**given)
    make = clusters if name == "gangs" else groups
    cases = {case: partial(make, *arguments) for case, arguments in GANG_CASES.items()}
    few = partial(make, TWO, "STRICT_SPREAD", GANGS // 10)
    serve(
        {
            "tasks/s": partial(per_second, ray.remote(lambda: None)),
            "gangs of 2, four threads": partial(in_flight, partial(make, TWO, "STRICT_SPREAD", GANGS // 4)),
            "groups of 2": few,
            "one gang of 2 (ms)": partial(milliseconds, partial(make, TWO, "STRICT_SPREAD", 1)),
            **cases,
        }
    )


def tasks_inside(rounds: int) -> None:
    cluster = start([2, 2])
    stock, inside = (Driver(__file__, name, cluster.address) for name in ("stock", "tasks"))
    report("tasks/s", in_turns(partial(stock.ask, "tasks/s"), partial(inside.ask, "tasks/s"), 3 * rounds))
    stock.end()
    inside.end()
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    work = ray.remote(lambda: time.sleep(0.02))
    grown = [growth(work) for _ in range(rounds)]
    first, full = (statistics.median(values) for values in zip(*grown, strict=True))
    print(f"growth where the parent has room: first share after {first:.0f} ms, all {CPUS} CPUs after {full:.0f} ms")
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


def gangs(rounds: int) -> None:
    cluster = start([ROOMY, ROOMY])
    stock, ours, inside = (Driver(__file__, name, cluster.address) for name in ("stock", "gangs", "inside"))
    for case in ("gangs of 2, with room", "gangs of 16, with room", "gangs of 2, four threads", "gangs of 2 on a full cluster"):
        report(f"{case}/s", in_turns(partial(stock.ask, case), partial(ours.ask, case), rounds))
    case = "groups of 2"
    report(f"{case}, inside a cluster/s", in_turns(partial(stock.ask, case), partial(inside.ask, case), rounds))
    case = "one gang of 2 (ms)"
    report(case, in_turns(partial(stock.ask, case), partial(ours.ask, case), rounds))
    for driver in (stock, ours, inside):
        driver.end()
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    resizes, writes = bounds()
    print(f"Ray's own part of a gang of 2: its four resizes take {resizes:.1f} ms, its two writes into GCS {writes:.1f} ms")
    ray.shutdown()
    cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=("tasks", "gangs"))
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(arguments.driver, arguments.address)
        return
    head("remora")
    if arguments.only != "gangs":
        tasks_inside(arguments.rounds)
    if arguments.only != "tasks":
        gangs(arguments.rounds)


if __name__ == "__main__":
    main()
