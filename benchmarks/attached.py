"""Tasks and actors on an attached driver, next to stock Ray: alternating in one run on one cluster, ratios printed.

    python benchmarks/attached.py              about six minutes

A real local Ray of four raylets. Stock and attached rounds alternate, because the machine is never equally busy twice; the
ratio is the median over the rounds, each attached round against the stock rounds around it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import remora

BATCH = 500
WARM = 150
SINGLES = 60
ACTORS = 4


def per_second(task: Any) -> float:
    start = time.perf_counter()
    ray.get([task.remote() for _ in range(BATCH)])
    return BATCH / (time.perf_counter() - start)


def latency(task: Any) -> float:
    times = []
    for _ in range(SINGLES):
        start = time.perf_counter()
        ray.get(task.remote())
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def actor_start(actor: Any) -> float:
    start = time.perf_counter()
    made = [actor.remote() for _ in range(ACTORS)]
    ray.get([each.ping.remote() for each in made])
    elapsed = (time.perf_counter() - start) / ACTORS * 1e3
    for each in made:
        ray.kill(each)
    return elapsed


def measured(how: Callable[[Any], float], what: Any, options: dict[str, Any], attached: bool) -> float:
    return how(what.options(**options) if attached and options else what)


def warm_up(task: Any) -> None:
    """Whoever switches exports its functions anew, and every worker loads them once."""
    ray.get([task.remote() for _ in range(WARM)])


def wrong_starts(node_id: str) -> tuple[float, int]:
    """Seconds that ``taint_node`` took with 200 tasks queued, and how many started on the node after it had returned."""

    def work() -> tuple[str, float]:
        time.sleep(0.05)
        return str(ray.get_runtime_context().get_node_id()), time.monotonic()

    run = ray.remote(work)
    refs = [run.remote() for _ in range(200)]
    ray.wait(refs, num_returns=30)
    before = time.perf_counter()
    remora.taint_node(node_id, {"bench": "x"})
    took, returned = time.perf_counter() - before, time.monotonic()
    late = sum(1 for node, ended in ray.get(refs) if node == node_id and ended - 0.05 > returned)
    remora.untaint_node(node_id, ["bench"])
    return took, late


def idle_controller() -> float:
    """The share of one core that the controller uses when nothing happens."""
    pid = ray.get(ray.get_actor("remora-controller", namespace="remora").pid.remote())

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    start = used()
    time.sleep(10)
    return (used() - start) / 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24)
    rounds = parser.parse_args().rounds
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for zone in ("a", "b", "c"):
        cluster.add_node(num_cpus=1, labels={"zone": zone})
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)

    nothing = ray.remote(lambda: None)
    plain = ray.remote(type("Plain", (), {"ping": lambda self: None}))
    options: dict[str, dict[str, Any]] = {
        "no option": {},
        "a selector": {"label_selector": {"zone": "!nowhere"}},
        "a toleration": {"tolerations": {"nothing": "exists()"}},
    }
    cases: list[tuple[str, Callable[[bool], float]]] = []
    for name, given in options.items():
        cases.append((f"tasks/s, {name}", partial(measured, per_second, nothing, given)))
        cases.append((f"latency ms, {name}", partial(measured, latency, nothing, given)))
    cases.append(("actor start ms", partial(measured, actor_start, plain, {})))

    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name, _ in cases}
    for turn in range(2 * rounds + 2):
        attached = bool(turn % 2)
        (remora.attach if attached else remora.detach)()
        for given in options.values():
            warm_up(nothing.options(**given) if attached and given else nothing)
        first = turn // 2 % len(cases)  # whoever comes first after a switch is not always the same
        for name, measure in [*cases[first:], *cases[:first]]:
            value = measure(attached)
            if turn > 1:  # the first two turns start the workers
                found[name][attached].append(value)
    print(f"{'':28} {'stock':>10} {'attached':>10} {'ratio':>7}   {'middle half of the ratios':>26}")
    for name, (stock, on) in found.items():
        # Each attached turn against the stock turns before and after it: what the machine did to all three cancels out.
        beside = [*zip(stock, [*stock[1:], stock[-1]], strict=True)]
        ratios = sorted(value / statistics.mean(pair) for value, pair in zip(on, beside, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        middle = statistics.median(ratios)
        before, after = statistics.median(stock), statistics.median(on)
        print(f"{name:28} {before:10.2f} {after:10.2f} {middle:7.2f}   {low:12.2f} to {high:.2f}")
    remora.attach()
    node_id = next(node["NodeID"] for node in ray.nodes() if node["Labels"].get("zone") == "b")
    took, late = wrong_starts(node_id)
    print(f"taint_node with 200 tasks queued: {took * 1e3:.0f} ms, wrong starts after it returned: {late}")
    print(f"idle controller: {idle_controller():.1%} of a core")
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
