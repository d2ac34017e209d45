"""Placements per second of the kernel, beside a brute-force reference in the same run. One core, no Ray.

    python benchmarks/kernel.py                     all sizes (about three minutes)
    python benchmarks/kernel.py --nodes 100 5000    some sizes

For every size: nodes with zones, tiers and taints, ten workloads placed on each; then requests of six kinds are decided
and placed. (a) a selector and tolerations, (b) affinity to labels, (c) anti-affinity, (d) soft rules, (e) anti-affinity by
one of 50 zones, (f) spread over them with a skew of 1. A decision includes
placing it: taking the resources and keeping every index up to date. What is placed is taken away again in between, not
timed, so that every kind sees the same cluster. The reference decides a few of the same requests; its answers must agree.

Then what a controller of 4,000 nodes and 100 classes asks between two decisions, and ``SimCluster.submit`` with equal options.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from remora import Exists, actor_affinity, label_in, label_not_in, node_affinity, spread
from remora.kernel.explaining.explain import explain
from remora.kernel.placing.class_nodes import offered
from remora.kernel.placing.group_fit import attempt
from remora.kernel.placing.placement import decide
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.validate import validate
from remora.kernel.state.workloads import Group, Host, Workload
from remora.model.groups import parse_group
from remora.model.labels import Labels
from remora.model.requests import Request, parse_request
from remora.model.resources import Resources
from remora.sim import SimCluster
from remora.testing.reference import decide_by_brute_force

SIZES = (100, 1_000, 5_000, 10_000, 100_000)
PER_NODE = 10
CELLS = 50
ROUND = 2_000
CONTROLLED = 4_000
CLASSES = 100
ROUNDS = 7

Case = tuple[str, Callable[[int], tuple[Request, Labels]]]


def build(size: int) -> Cluster:
    """Nodes of 16 CPUs in four zones, a tenth tainted, ten half-CPU workloads each: a cat on every other node, else dogs."""
    cluster = Cluster(seed=0)
    total = Resources.parse({"CPU": 16, "memory": 64})
    for number in range(size):
        tier = "spot" if number % 3 else "reserved"
        labels = (("cell", f"c{number % CELLS}"), ("id", f"node-{number}"), ("tier", tier), ("zone", f"z{number % 4}"))
        taints = (("gpu_node", "true"),) if number % 10 == 9 else ()
        cluster.add_node(f"n{number}", total, labels, taints)
    request = parse_request("actor", resources={"CPU": 0.5})
    ids = count()
    for node in cluster.nodes.by_id.values():
        for index in range(PER_NODE):
            serial = next(ids)
            kind = "cat" if index == 0 and node.number % 2 == 0 else "dog"
            own: Labels = (("id", f"{kind}-{serial}"), ("type", kind)) if index == 0 else (("type", kind),)
            workload = Workload(f"w{serial}", request, own, serial)
            cluster.place(workload, Host(None, node.number, None))
    return cluster


def cases(size: int) -> Iterator[Case]:
    plain: dict[str, Any] = {"resources": {"CPU": 0.25}}
    selectors = [
        parse_request(
            "actor",
            **plain,
            label_selector={"zone": f"in(z{zone}, z{(zone + 1) % 4})", "tier": "!reserved"},
            tolerations={"gpu_node": "exists()"} if zone % 2 else None,
        )
        for zone in range(4)
    ]
    near = [
        parse_request("actor", **plain, scheduling_strategy=actor_affinity([label_in("id", [f"cat-{cat * PER_NODE}"], False)]))
        for cat in range(0, min(size, 2_000), 2)
    ]
    with_dogs = parse_request("actor", **plain, scheduling_strategy=actor_affinity(label_in("type", ["dog"], False)))
    catless = parse_request("actor", **plain, scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)))
    replicas = [
        parse_request("actor", **plain, scheduling_strategy=actor_affinity(label_not_in("app", [f"app-{app}"], False)))
        for app in range(20)
    ]
    wishful = parse_request(
        "actor",
        **plain,
        scheduling_strategy=actor_affinity([label_not_in("type", ["cat"], True), label_in("type", ["dog"], True)]),
        affinity=node_affinity(label_in("zone", ["z1"], True)),
    )
    apart = [
        parse_request(
            "actor", **plain, scheduling_strategy=actor_affinity(label_not_in("svc", [f"svc-{app}"], False, topology="cell"))
        )
        for app in range(ROUND // 40)
    ]
    even = [
        parse_request("actor", **plain, scheduling_strategy=spread(over="cell", labels={"svc": f"svc-{app}"})).of(
            (("svc", f"svc-{app}"),)
        )
        for app in range(20)
    ]
    yield "(a) selector and taints", lambda i: (selectors[i % 4], ())
    yield "(b) affinity", lambda i: (near[i // 2 % len(near)], ()) if i % 2 else (with_dogs, (("type", "dog"),))
    yield "(c) anti-affinity", lambda i: (replicas[i // 2 % 20], (("app", f"app-{i // 2 % 20}"),)) if i % 2 else (catless, ())
    yield "(d) soft rules", lambda i: (wishful, ())
    yield "(e) anti-affinity by zone", lambda i: (apart[i % len(apart)], (("svc", f"svc-{i % len(apart)}"),))
    yield "(f) spread over zones", lambda i: (even[i % 20], (("svc", f"svc-{i % 20}"),))


def measure(cluster: Cluster, make: Callable[[int], tuple[Request, Labels]], ids: Iterator[int]) -> float:
    """Microseconds of processor time a decision, the best of several rounds: what else runs here only ever adds."""
    rounds = []
    for number in range(ROUNDS + 1):
        placed = []
        start = time.process_time()
        for index in range(ROUND):
            request, labels = make(index)
            host = decide(cluster, request, labels)
            if host is not None:
                workload = Workload(f"b{next(ids)}", request, labels)
                cluster.place(workload, host)
                placed.append(workload)
        elapsed = time.process_time() - start
        if len(placed) < ROUND // 4:
            raise SystemExit(f"only {len(placed)} of {ROUND} were placed: the benchmark would measure waiting")
        if number:  # the first round warms the caches
            rounds.append(elapsed / ROUND * 1e6)
        for workload in placed:
            cluster.release(workload)
    return min(rounds)


def measure_reference(cluster: Cluster, make: Callable[[int], tuple[Request, Labels]]) -> float:
    """Microseconds a decision of the brute-force reference; its answers must be the kernel's."""
    times = []
    for index in range(3):
        request, labels = make(index)
        start = time.process_time()
        want = decide_by_brute_force(cluster, request, labels)
        times.append(time.process_time() - start)
        host = decide(cluster, request, labels)
        got = cluster.nodes.at(host.node).node_id if host else None
        if got != want:
            raise SystemExit(f"the kernel says {got}, the reference {want}, for {request}")
    return min(times) * 1e6


def measure_explain(cluster: Cluster) -> float:
    """Milliseconds to explain a request that nothing can take, with a selector, taints and affinity."""
    request = parse_request(
        "actor",
        resources={"CPU": 16, "memory": 1},
        label_selector={"zone": "in(z0, z1)"},
        scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)),
    )
    if decide(cluster, request) is not None:
        raise SystemExit("the request to explain was placed")
    times = []
    for _ in range(6):
        start = time.process_time()
        explain(cluster, request)
        times.append(time.process_time() - start)
    return min(times[1:]) * 1e3


def best_of(rounds: int, run: Callable[[int], object]) -> float:
    """Seconds of processor time of the fastest round; the first only warms the caches."""
    times = []
    for number in range(rounds + 1):
        start = time.process_time()
        run(number)
        times.append(time.process_time() - start)
    return min(times[1:])


def measure_controller() -> None:
    """What one change costs that a controller hears of."""
    cluster = build(CONTROLLED)
    for node in cluster.nodes.by_id.values():  # on a live cluster every node has a resource of its own, named after its address
        own = {f"node:10.0.{node.number}": 1}
        free = Resources({**cluster.available.amounts(node.number), **own})
        cluster.observe_node(node, Resources({**node.total, **own}), free)
    nodes = list(cluster.nodes.by_id.values())
    classes = [
        parse_request(
            resources={"CPU": 1 + index % 8},
            label_selector={"zone": f"in(z{index % 4}, z{(index + 1) % 4})", "app": f"!{index}"},
            fallback_strategy=[{"label_selector": {}}] if index % 5 == 0 else None,
            tolerations={"gpu_node": "exists()"} if index % 3 == 0 else None,
        )
        for index in range(CLASSES)
    ]

    def retaint(number: int) -> None:
        cluster.nodes.retaint(nodes[number], (("maintenance", str(number)),), ())
        for request in classes:
            offered(cluster, request.choices, request.demand)

    def observe(_: int) -> None:
        for node, (total, free) in zip(nodes, reports, strict=True):
            cluster.observe_node(node, total, free)

    def decide_simple(_: int) -> None:
        placed = []
        for index in range(ROUND):
            host = decide(cluster, simple)
            assert host is not None
            workload = Workload(f"s{index}", simple)
            cluster.place(workload, host)
            placed.append(workload)
        for workload in placed:
            cluster.release(workload)

    simple = parse_request("actor", resources={"CPU": 0.25})
    print(f"\n{CONTROLLED:,} nodes, {CLASSES} classes, {len(cluster.placed):,} workloads:")
    print(f"  one taint, then where all classes are offered {best_of(9, retaint) * 1e3:9.2f} ms")
    print(f"  a simple actor decided, placed and released   {ROUND / best_of(5, decide_simple):9,.0f} a second")
    reports = [(node.total, Resources(dict(cluster.available.amounts(node.number)))) for node in nodes]
    print(f"  a report that says what is known already      {best_of(5, observe) / len(nodes) * 1e6:9.2f} us a node")


def measure_gang() -> None:
    """A gang of 72 into one of 100 racks of 18 nodes, most of which have no room for it."""
    cluster = Cluster()
    for rack in range(100):
        for node in range(18):
            free = 4 if rack == 99 or node % 2 else 3
            total = Resources.parse({"CPU": 64, "GPU": free})
            cluster.add_node(f"r{rack}n{node}", total, (("rack", f"r{rack}"),))
    request = parse_group([{"GPU": 1, "CPU": 1}] * 72, topology_strategy=[{"rack": "STRICT_PACK"}])
    group = Group("gang", request)

    def place(_: int) -> None:
        hosts = attempt(cluster, None, group, 0, [None] * 72).place()
        assert hosts is not None
        assert {cluster.nodes.at(host.node).labels["rack"] for host in hosts} == {"r99"}

    print(f"\na gang of 72 bundles into the one of 100 racks that has room: {best_of(9, place) * 1e3:.2f} ms")


def measure_submit() -> None:
    """``SimCluster.submit``, from the options that a user writes, made anew for every call."""
    options: dict[str, Callable[[], dict[str, Any]]] = {
        "resources": lambda: {"resources": {"CPU": 0.01}},
        "selector, labels, tolerations": lambda: {
            "resources": {"CPU": 0.01},
            "labels": {"type": "cat"},
            "label_selector": {"zone": "in(a, b)"},
            "tolerations": {"gpu_node": Exists()},
        },
        "anti-affinity": lambda: {
            "resources": {"CPU": 0.01},
            "labels": {"type": "cat"},
            "scheduling_strategy": actor_affinity(label_not_in("type", ["dog"], False)),
        },
    }
    print("\nSimCluster.submit with equal options, 1,000 nodes:")
    for name, make in options.items():
        sim = SimCluster()
        for number in range(1_000):
            sim.add_node(f"n{number}", {"CPU": 64}, labels={"zone": "abc"[number % 3]})

        def submit(_: int, sim: SimCluster = sim, make: Callable[[], dict[str, Any]] = make) -> None:
            for _ in range(ROUND):
                sim.submit("actor", **make())

        print(f"  {name:45} {ROUND / best_of(5, submit):9,.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(SIZES), help="cluster sizes")
    sizes = sorted(parser.parse_args().nodes)
    results: dict[str, dict[int, tuple[float, float]]] = {}
    print(f"{'nodes':>8} {'case':26} {'us/decision':>12} {'per second':>11} {'brute force us':>15} {'times faster':>13}")
    for size in sizes:
        cluster = build(size)
        ids = count()
        gc.collect()
        gc.freeze()  # a million workloads are not garbage; do not time the collector walking over them
        for name, make in cases(size):
            kernel = measure(cluster, make, ids)
            reference = measure_reference(cluster, make)
            results.setdefault(name, {})[size] = (kernel, reference)
            print(f"{size:8,} {name:26} {kernel:12.1f} {1e6 / kernel:11,.0f} {reference:15,.0f} {reference / kernel:13,.0f}")
        explained = measure_explain(cluster)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{size:8,} {'explain':26} {explained:9.2f} ms   {len(cluster.placed):,} workloads, peak memory {memory:,.0f} MB")
        validate(cluster)
        gc.unfreeze()
        del cluster
        gc.collect()
    measure_controller()
    measure_gang()
    measure_submit()
    if len(sizes) > 1:
        print(f"\ncost of a decision at {sizes[-1]:,} nodes, times that at {sizes[0]:,}:")
        for name, by_size in results.items():
            print(f"  {name:26} {by_size[sizes[-1]][0] / by_size[sizes[0]][0]:5.2f}")


if __name__ == "__main__":
    main()
