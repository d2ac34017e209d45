"""Two drivers on one cluster that take turns, one of them stock: what the machine does to one, it does to the other.

A benchmark starts itself once more for each driver (``serve`` answers there), asks them in turns, and compares each answer with
the one that came just before or after it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.cluster_utils import Cluster

_READY = "ready"


def start(cpus: Sequence[int], **labels: Sequence[str]) -> Any:
    """A cluster of one raylet for each of these; ``labels`` are those of the raylets after the first. Ray is told to keep as
    many idle workers as both drivers have and the controller: while one works, those of the other wait for their turn."""
    keep = {"num_workers_soft_limit": 2 * max(cpus) + 1}
    head = {"num_cpus": cpus[0], "include_dashboard": False, "_system_config": keep}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for index, count in enumerate(cpus[1:]):
        cluster.add_node(num_cpus=count, labels={key: values[index] for key, values in labels.items()})
    return cluster


def serve(cases: Mapping[str, Callable[[], float]]) -> None:
    """In a driver: answers what it is asked, until nobody asks any more."""
    print(_READY, flush=True)
    for line in sys.stdin:
        print(cases[line.strip()](), flush=True)
    ray.shutdown()


class Driver:
    """One of the two, in a process of its own."""

    def __init__(self, script: str, name: str, address: str) -> None:
        command = [sys.executable, script, "--driver", name, "--address", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self._line() != _READY:
            pass

    def ask(self, case: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        return float(self._line())

    def end(self) -> None:
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a driver has ended with exit code {self._process.wait()}")
        return line.strip()


def in_turns(stock: Callable[[], float], other: Callable[[], float], rounds: int) -> list[tuple[float, float]]:
    """Pairs of both, one just after the other, whoever comes first; what starts processes and loads code is left out."""
    stock()
    other()
    found = []
    for turn in range(rounds):
        if turn % 2:
            first = stock()
            found.append((first, other()))
        else:
            second = other()
            found.append((stock(), second))
    return found


def head(name: str) -> None:
    print(f"{'':32} {'stock':>10} {name:>10} {'ratio':>7}   middle half of the ratios")


def report(case: str, pairs: list[tuple[float, float]]) -> None:
    ratios = sorted(mine / theirs for theirs, mine in pairs)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    before, after = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"{case:32} {before:10.2f} {after:10.2f} {statistics.median(ratios):7.2f}   {low:.2f} to {high:.2f}", flush=True)
