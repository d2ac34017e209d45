"""The figures of stock Ray that the design stands on, measured on this machine: compare them as ratios.

    python benchmarks/facts.py              about a minute

A real local Ray of a head and one node, and a driver that is not attached. Rows that are compared alternate within one run,
because the machine is never equally busy twice; each figure is the median over the rounds. What is yes or no is in tests/live.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.cluster_utils import Cluster

from remora.live.adapter.gcs_calls import GcsCalls
from remora.live.adapter.ray_port import RayPort
from remora.live.adapter.reports import Reports
from remora.live.adapter.tables import Lookup

BATCH = 400
SINGLES = 60
CALLS = 200
WRITES = 64
REPORTED = 3_000
Row = tuple[str, float, str]


def gcs() -> Any:
    return ray._private.worker.global_worker.gcs_client


def milliseconds(call: Callable[[], Any], times: int) -> float:
    """The median time of one call."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e3


def per_second(task: Any) -> float:
    start = time.perf_counter()
    ray.get([task.remote() for _ in range(BATCH)])
    return BATCH / (time.perf_counter() - start)


def resizing(node_id: str) -> list[Row]:
    rows = []
    for count, times in ((1, 50), (1_000, 5)):
        on = {f"bench/{number}": 1.0 for number in range(count)}
        both = (on, dict.fromkeys(on, 0.0))
        turns = iter(both * times)
        took = milliseconds(lambda turns=turns: gcs().resize_raylet_resource_instances(node_id, next(turns)), times * 2)  # type: ignore[misc]
        rows.append((f"resize of {count:,} names", took, "ms"))
    return rows


def together(node_id: str, rounds: int) -> list[Row]:
    """As many resizes as a class on 64 nodes needs, one after the other and at the same time."""
    turns = itertools.count()

    def resize(_: int) -> Any:
        return gcs().resize_raylet_resource_instances(node_id, {"bench/together": next(turns) % 2 + 1.0})

    rows = []
    for threads in (1, 4, 16, 64):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(resize, range(threads)))
            took = milliseconds(lambda pool=pool: list(pool.map(resize, range(WRITES))), rounds)  # type: ignore[misc]
        rows.append((f"{WRITES} resizes, {threads} at the same time", took, "ms"))
    gcs().resize_raylet_resource_instances(node_id, {"bench/together": 0.0})
    return rows


def reporting(node_id: str, rounds: int) -> list[Row]:
    """What GCS takes for a reply about all nodes, which grows with the tokens on them; and what the autoscaler's takes."""
    names = {f"bench/report/{number:024x}": 1000.0 for number in range(REPORTED)}
    gcs().resize_raylet_resource_instances(node_id, names)
    time.sleep(2)  # the autoscaler is told once a second
    reports = Reports(GcsCalls(gcs().address))
    reports.observe()
    rows = [
        (f"report of {REPORTED:,} tokens, as bytes", milliseconds(reports.fetch, rounds), "ms"),
        ("the same, read: nothing changed", milliseconds(reports.observe, rounds), "ms"),
        ("the same from Ray's own client", milliseconds(lambda: gcs().get_all_resource_usage(timeout=10), rounds), "ms"),
        ("the state that the autoscaler reads", milliseconds(gcs().get_cluster_resource_state, rounds), "ms"),
    ]
    gcs().resize_raylet_resource_instances(node_id, dict.fromkeys(names, 0.0))
    return rows


def holding(node_id: str, rounds: int) -> list[Row]:
    """A placement group found by its name, beside all tables that a name may be in."""
    gcs().resize_raylet_resource_instances(node_id, {"bench/held": 1000.0})
    port, lookup = RayPort(), Lookup(gcs().address)
    name = "remora-hold-bench"
    while not port.hold(name, node_id, {"bench/held": 0.5}):
        time.sleep(0.1)
    rows = [
        ("a hold by its name", milliseconds(lambda: lookup.find(name), rounds), "ms"),
        ("the same in all tables", milliseconds(lambda: lookup._named(name), rounds), "ms"),
    ]
    port.let_go(name)
    gcs().resize_raylet_resource_instances(node_id, {"bench/held": 0.0})
    return rows


def tasks(node_id: str, rounds: int) -> list[Row]:
    """Rates and latencies with tokens in the request, beside plain ones."""
    gcs().resize_raylet_resource_instances(node_id, {"bench/class": 1000, "bench/share": 2})
    nothing = ray.remote(lambda: None)  # it can only run on this node: the head has no CPU
    kinds = {
        "plain": nothing,
        "class token": nothing.options(resources={"bench/class": 0.0001}),
        "class and share tokens": nothing.options(resources={"bench/class": 0.0001, "bench/share": 1}),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for round_ in range(rounds + 1):
        turn = round_ % len(kinds)  # nobody is always first
        for name in (*list(kinds)[turn:], *list(kinds)[:turn]):
            task = kinds[name]
            rate, took = per_second(task), milliseconds(lambda task=task: ray.get(task.remote()), SINGLES)  # type: ignore[misc]
            if round_:  # the first round starts the workers
                rates[name].append(rate)
                times[name].append(took)
    rows = [(f"tasks, {name}", statistics.median(found), "a second") for name, found in rates.items()]
    rows += [(f"latency, {name}", statistics.median(found), "ms") for name, found in times.items()]
    return rows


def crowded(node_id: str, rounds: int) -> list[Row]:
    """Latency on a node with many tokens, alternating with the same node without."""
    task = ray.remote(resources={"bench/class": 0.0001})(lambda: None)
    found: dict[int, list[float]] = {0: [], 1_000: []}
    for _ in range(rounds):
        for count, times in found.items():
            names = {f"bench/crowd/{number}": 1.0 for number in range(count)}
            if names:
                gcs().resize_raylet_resource_instances(node_id, names)
            time.sleep(0.3)  # until it has been reported around
            times.append(milliseconds(lambda: ray.get(task.remote()), SINGLES))
            if names:
                gcs().resize_raylet_resource_instances(node_id, dict.fromkeys(names, 0.0))
    return [(f"latency, {count:,} tokens on the node", statistics.median(times), "ms") for count, times in found.items()]


def controlling() -> list[Row]:
    class Keeper:
        async def call(self) -> None:
            pass

    keeper = ray.remote(num_cpus=0)(Keeper).options(name="bench-keeper", lifetime="detached").remote()
    ray.get(keeper.call.remote())
    single = milliseconds(lambda: ray.get(keeper.call.remote()), CALLS)
    start = time.perf_counter()
    ray.get([keeper.call.remote() for _ in range(CALLS * 5)])
    piped = CALLS * 5 / (time.perf_counter() - start)
    ray.kill(keeper)
    put = milliseconds(lambda: gcs().internal_kv_put(b"bench", b"x" * 100, True, b"bench"), CALLS)
    get = milliseconds(lambda: gcs().internal_kv_get(b"bench", b"bench"), CALLS)
    gcs().internal_kv_del(b"bench", False, b"bench")
    return [
        ("call of a detached async actor", single, "ms"),
        ("the same, pipelined", piped, "a second"),
        ("internal KV put", put, "ms"),
        ("internal KV get", get, "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2, labels={"zone": "a"})
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False, namespace="bench")
    node_id = next(node["NodeID"] for node in ray.nodes() if node["Labels"].get("zone") == "a")
    print(f"Ray {ray.__version__}")
    for measure in (
        lambda: resizing(node_id),
        lambda: together(node_id, rounds),
        lambda: reporting(node_id, rounds),
        lambda: tasks(node_id, rounds),
        lambda: crowded(node_id, rounds),
        lambda: holding(node_id, rounds),
        controlling,
    ):
        rows = measure()
        units = {unit: amount for _, amount, unit in reversed(rows)}  # the first of each unit is what the rest is held against
        for name, amount, unit in rows:
            print(f"{name:42} {amount:10.2f} {unit:9} {amount / units[unit]:7.2f}")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
