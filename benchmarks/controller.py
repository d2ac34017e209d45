"""What the controller itself costs, over a cluster in memory of 10 to 10,000 nodes: rounds, decisions, taints, new classes.

The cluster has 100 classes, and 40,000 actors of which 4,000 have leases (a tenth of that with --quick). Times are medians in
milliseconds of one core; the cost of Ray's own report is in ``benchmarks/reports.py``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from remora.controller.commands import begin
from remora.controller.controller import Controller
from remora.controller.effects import Resize, perform
from remora.controller.recovery import recover
from remora.model.node_types import parse_node_types
from remora.model.strategies import ACTOR
from remora.port.contract import ACTOR as ACTOR_WORK
from remora.port.contract import JOB, RUNNING, Observation, Work
from remora.port.memory_port import MemoryPort
from remora.port.memory_scaler import MemoryScaler
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL, REQUEST_LABEL, encode_ask
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.tokens import TAKEN, class_token

CLASSES = 100
ZONES = 50
TYPES = {"web": {"resources": {"CPU": 16}, "max_workers": 4_000}, "large": {"resources": {"CPU": 64}, "max_workers": 4_000}}


class Bench:
    def __init__(self, nodes: int, actors: int, leases: int, *, grows: bool = False) -> None:
        self.time = 1_000.0
        self.port = MemoryPort()
        if grows:
            self.port.scaler = MemoryScaler(self.port, parse_node_types({"node_types": TYPES}))
        for number in range(nodes):
            name = "web" if grows else ""
            self.port.join(f"n{number}", {"CPU": 16, "memory": 64e9}, {"zone": f"z{number % ZONES}"}, name)
        self.port.submit(Work(JOB, "j1", "", "j1", RUNNING, "", ()))
        self.controller: Controller = recover(self.port, lambda: self.time)
        self.pump()
        for number in range(CLASSES):
            self.ask(calls.EnsureClass(_class(number)))
        self.lease(leases, nodes)
        for number in range(actors - leases):
            self.controller.tell(_actor(f"plain-{number}", f"n{number % nodes}", {}))
        for _ in range(4):
            self.time += 1
            self.round()

    def lease(self, count: int, nodes: int) -> None:
        """Actors with labels, placed by the kernel and running."""
        for number in range(count):
            slot, node_id = self.ask(self.place(number))
            labels = {LEASE_LABEL: slot, REQUEST_LABEL: ""}
            actor_id = f"leased-{number}"
            begin(self.controller, calls.Claim(slot, actor_id))
            self.controller.tell(_actor(actor_id, node_id or "n0", labels))
            if number % 200 == 199:
                self.time += 0.1
                self.pump()

    def place(self, number: int | str) -> calls.Place:
        return calls.Place(f"q{number}", _ASK, "j1", "w1")

    def ask(self, call: calls.Call) -> Any:
        pending = begin(self.controller, call)
        reply = pending.poll()
        if reply is None:  # it is answered when what follows from it is there
            self.pump()
            reply = pending.poll()
        assert reply is not None
        return reply.result()

    def round(self) -> None:
        self.controller.report(self.port.observe())
        self.controller.round()
        self.pump()

    def pump(self) -> int:
        count = 0
        while effects := self.controller.plan():
            count += len(effects)
            for effect in effects:
                self.controller.done(perform(self.port, effect))
        return count


def _class(number: int) -> bytes:
    options: dict[str, Any] = {"label_selector": {"zone": f"z{number % ZONES}"}} if number % 2 else {}
    tolerations = {f"k{number}": "exists()"}
    return rewrite({**options, "tolerations": tolerations}, Defaults()).spec.encode()


def _ask() -> str:
    asked = rewrite({"labels": {"svc": "web"}}, Defaults())
    return encode_ask(asked.ask(ACTOR, {"CPU": 0.001}, {"CPU": 0.001}, "ns", []))


_ASK = _ask()


def _actor(actor_id: str, node_id: str, labels: dict[str, str]) -> Work:
    return Work(ACTOR_WORK, actor_id, "", "j1", RUNNING, "ALIVE", ({},), (node_id,), namespace="ns", labels=labels)


def median_ms(action: Callable[[], None], times: int) -> float:
    return statistics.median(_timed(action) for _ in range(times))


def _timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e3


def rows(bench: Bench, nodes: int) -> Iterator[tuple[str, str]]:
    observation = bench.port.observe()

    def idle() -> None:
        bench.time += 1
        bench.controller.report(observation)
        bench.controller.round()
        assert not [each for each in bench.controller.plan() if isinstance(each, Resize)] or bench.pump() >= 0

    yield "a round in which nothing changed", f"{median_ms(idle, 15):.2f} ms"

    def one_changed() -> None:
        bench.port.take("n1", {"CPU": 0.5})
        bench.controller.report(bench.port.observe())
        bench.controller.round()
        bench.controller.plan()
        bench.port.give("n1", {"CPU": 0.5})

    def observe() -> None:
        bench.port.observe()

    changed = median_ms(one_changed, 15) - median_ms(observe, 15)
    yield "one node changed", f"{changed:.2f} ms"
    bench.round()

    count, placed = 4_000, 0
    began = time.perf_counter()
    for number in range(count):
        placed += bench.ask(bench.place(f"more-{number}"))[1] is not None
        if number % 100 == 99:
            bench.time += 0.02
    seconds = time.perf_counter() - began
    yield "place, pipelined", f"{count / seconds:,.0f} decisions/s ({placed / count:.0%} placed)"
    bench.pump()

    taints: list[float] = []
    for number in range(7):
        call = calls.TaintNode(f"n{number % nodes}", (("k", "v"),), [])
        began = time.perf_counter()
        begin(bench.controller, call)
        planned = bench.controller.plan()
        taints.append((time.perf_counter() - began) * 1e3)
        for effect in planned:
            bench.controller.done(perform(bench.port, effect))
        bench.pump()
    yield "a taint, until its writes are known", f"{statistics.median(taints):.1f} ms"

    wide = rewrite({"label_selector": {"zone": "!z0"}}, Defaults()).spec.encode()
    began = time.perf_counter()
    begin(bench.controller, calls.EnsureClass(wide))
    writes: list[Resize] = []
    while effects := bench.controller.plan():  # it is remembered first
        writes += [each for each in effects if isinstance(each, Resize)]
        for effect in effects:
            if not isinstance(effect, Resize):
                bench.controller.done(perform(bench.port, effect))
    took = (time.perf_counter() - began) * 1e3
    yield "a new class", f"{len(writes)} writes in flight together after {took:.1f} ms"


def growing_rows(quick: bool) -> Iterator[tuple[str, str]]:
    """Rounds at 2,000 nodes without an autoscaler and with one; then with 10,000 tasks that wait, which are planned for."""
    nodes, (actors, leases) = 2_000, (400, 40) if quick else (4_000, 400)
    idle: dict[bool, float] = {}
    for grows in (False, True):
        bench = Bench(nodes, actors, leases, grows=grows)
        observation = bench.port.observe()

        def quiet(bench: Bench = bench, observation: Observation = observation) -> None:
            bench.time += 1
            bench.controller.report(observation)
            bench.controller.round()
            bench.pump()

        idle[grows] = median_ms(quiet, 31)
    yield "a quiet round without an autoscaler", f"{idle[False]:.2f} ms"
    yield "a quiet round with one", f"{idle[True]:.2f} ms ({idle[True] / idle[False]:.2f} times as long)"

    for number in range(nodes):
        bench.port.take(f"n{number}", {"CPU": 16})
    for number in range(20):
        shape = {"CPU": 1.0 + number, class_token(rewrite({}, Defaults()).spec.class_id): TAKEN}
        bench.ask(calls.EnsureClass(rewrite({}, Defaults()).spec.encode()))
        bench.port.wait(shape, 500)
    took = []
    bench.time += 1
    bench.round()  # the first has what others have from then on
    for number in range(30):
        bench.time += 0.3
        if number % 5 == 0:
            bench.port.take("n0", {"memory": 1.0})  # something changes, so that a plan is made anew
        observed = bench.port.observe()
        began = time.process_time()
        bench.controller.report(observed)
        bench.controller.round()
        took.append((time.process_time() - began) * 1e3)
        bench.pump()
    asked = sum(bench.controller.scaling.machines.wanted.values())
    yield (
        "10,000 tasks of 20 kinds wait",
        f"{statistics.median(took):.1f} ms, the longest with a plan {max(took):.1f} ms; {asked} asked for",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1_000, 4_000, 10_000])
    parser.add_argument("--quick", action="store_true", help="a tenth of the actors")
    args = parser.parse_args()
    actors, leases = (4_000, 400) if args.quick else (40_000, 4_000)
    for nodes in args.nodes:
        began = time.perf_counter()
        bench = Bench(nodes, actors, leases)
        took = time.perf_counter() - began
        print(f"\n{nodes:,} nodes, {CLASSES} classes, {actors:,} actors, {leases:,} leases ({took:.0f} s to set up)")
        for what, cost in rows(bench, nodes):
            print(f"  {what:40} {cost}")
    print("\nan autoscaler, 2,000 nodes")
    for what, cost in growing_rows(args.quick):
        print(f"  {what:40} {cost}")


if __name__ == "__main__":
    main()
