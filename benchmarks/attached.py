"""Tasks and actors of an attached driver, next to those of a stock one: in turns on one cluster, ratios printed.

    python benchmarks/attached.py              about four minutes

A real local Ray of four raylets and two drivers, one of which is attached. They take turns of a fraction of a second, because
the machine is never equally busy twice; the ratio is the median over the pairs. Actors need new processes, which a driver might
find left over by the other: they are started by one that is attached every second time.
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
from side_by_side import Driver, head, in_turns, report, serve, start

import remora

BATCH = 500
WARM = 50
SINGLES = 60
ACTORS = 4

OPTIONS: dict[str, dict[str, Any]] = {
    "no option": {},
    "a selector": {"label_selector": {"zone": "!nowhere"}},
    "a toleration": {"tolerations": {"nothing": "exists()"}},
}


def per_second(task: Any) -> float:
    ray.get([task.remote() for _ in range(WARM)])  # until it has the workers that the other driver had
    began = time.perf_counter()
    ray.get([task.remote() for _ in range(BATCH)])
    return BATCH / (time.perf_counter() - began)


def latency(task: Any) -> float:
    times = []
    for _ in range(SINGLES):
        began = time.perf_counter()
        ray.get(task.remote())
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def actor_start(*, attached: bool) -> float:
    (remora.attach if attached else remora.detach)()
    actor = ray.remote(type("Plain", (), {"ping": lambda self: None}))
    began = time.perf_counter()
    made = [actor.remote() for _ in range(ACTORS)]
    ray.get([each.ping.remote() for each in made])
    elapsed = (time.perf_counter() - began) / ACTORS * 1e3
    for each in made:
        ray.kill(each)
    time.sleep(1)  # until their processes are gone
    return elapsed


def cases(attached: bool) -> dict[str, Callable[[], float]]:
    """A stock driver does the same without the options."""
    nothing = ray.remote(lambda: None)
    found: dict[str, Callable[[], float]] = {}
    for name, given in OPTIONS.items():
        task = nothing.options(**given) if attached and given else nothing
        found[f"tasks/s, {name}"] = partial(per_second, task)
        found[f"latency ms, {name}"] = partial(latency, task)
    return found


def drive(name: str, address: str) -> None:
    connect = remora.init if name == "attached" else ray.init
    connect(address=address, logging_level="ERROR", log_to_driver=False)
    serve(cases(name == "attached"))


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
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(arguments.driver, arguments.address)
        return
    cluster = start([1, 1, 1, 1], zone=["a", "b", "c"])
    stock, attached = (Driver(__file__, name, cluster.address) for name in ("stock", "attached"))
    rounds = arguments.rounds
    head("attached")
    for case in cases(False):
        report(case, in_turns(partial(stock.ask, case), partial(attached.ask, case), rounds))
    stock.end()
    attached.end()
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    report("actor start ms", in_turns(partial(actor_start, attached=False), partial(actor_start, attached=True), rounds))
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
