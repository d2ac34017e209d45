"""A node cut off from all others for a while, and back: its link goes down, nothing of it dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from tests.chaos import tally
from tests.chaos.breakable import Breakable, alive, breakable
from tests.chaos.checker import Checker
from tests.chaos.load import Counting
from tests.live.conftest import eventually

from remora import VirtualCluster, actor_affinity, label_not_in

AWAY_SECONDS = 20
SPACE, HERE, THERE = "remora-chaos", "rmr-here", "rmr-there"
OUR_ADDRESS, ITS_ADDRESS = "198.18.77.1", "198.18.77.2"


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def network_namespace() -> Iterator[None]:
    """A network of one machine, joined to this one by a cable that can be pulled."""
    if shutil.which("ip") is None:
        pytest.skip("no ip: apt-get install iproute2")
    if subprocess.run(["ip", "netns", "add", SPACE], check=False, capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here: run as root")
    try:
        run("ip", "link", "add", HERE, "type", "veth", "peer", "name", THERE, "netns", SPACE)
        run("ip", "address", "add", f"{OUR_ADDRESS}/30", "dev", HERE)
        run("ip", "link", "set", HERE, "up")
        for words in ("address add 127.0.0.1/8 dev lo", "link set lo up", f"address add {ITS_ADDRESS}/30 dev {THERE}"):
            subprocess.run(["ip", "-n", SPACE, *words.split()], check=False, capture_output=True)
        run("ip", "-n", SPACE, "link", "set", THERE, "up")
        run("ip", "-n", SPACE, "route", "add", "default", "via", OUR_ADDRESS)
        yield
    finally:
        subprocess.run(["ip", "link", "delete", HERE], check=False, capture_output=True)
        run("ip", "netns", "delete", SPACE)


@contextlib.contextmanager
def far_node(rig: Breakable) -> Iterator[str]:
    """A node in that network; its id."""
    known = alive()
    ray_command = Path(sys.executable).with_name("ray")
    start = f"start --address {rig.address} --node-ip-address {ITS_ADDRESS} --num-cpus 2 --block --labels zone=far"
    command = ["ip", "netns", "exec", SPACE, str(ray_command), *start.split(), "--object-store-memory", "100000000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        (node_id,) = eventually(lambda: alive() - known, 60)
        yield node_id
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        eventually(lambda: node_id not in alive(), 90)


@pytest.mark.parametrize("is_missed", [False, True], ids=["comes back in time", "is given up"])
def test_a_node_cut_off_and_back(is_missed: bool, checker_of: Callable[[str], Checker], survived: Any) -> None:
    """Whether Ray gives it up in that time or not: two that keep apart are never on one node, each counts to the end, and what
    was in a virtual cluster there goes on, there or elsewhere."""
    environment = {} if is_missed else {"RAY_health_check_failure_threshold": "60"}
    figures: dict[str, int] = {}
    with network_namespace(), breakable("cut off", environment=environment) as rig, far_node(rig) as far:
        for faults in (False, True):
            checker = checker_of("faults" if faults else "calm")
            with checker.watching():
                figures = _life(rig, checker, far, faults, is_missed)
            checker.settled()
    survived(seconds_away=AWAY_SECONDS, **figures)


def _life(rig: Breakable, checker: Checker, far: str, faults: bool, is_missed: bool) -> dict[str, int]:
    path = str(checker.path)
    apart = actor_affinity(label_not_in("kind", ["far"], False))
    prefer = {"label_selector": {"zone": "far"}, "fallback_strategy": [{"label_selector": {"zone": "in(a, b)"}}]}
    made = [
        Counting.options(labels={"kind": "far"}, scheduling_strategy=apart, num_cpus=1, **options).remote(
            path, "counters", name
        )
        for name, options in (("near", {"label_selector": {"zone": "a"}}), ("far", prefer))
    ]
    with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2}, timeout=60):
        inside = Counting.options(num_cpus=1).remote(path, "inside", "inside")
        assert ray.get(inside.count.remote(0), timeout=60) == 0
        assert ray.get([each.count.remote(0) for each in made], timeout=60) == [0, 0]
        assert any(line.node_id == far for line in checker.lines())
        if faults:
            run("ip", "link", "set", HERE, "down")
            time.sleep(AWAY_SECONDS / 2)
            assert (far not in alive()) == is_missed
            # Both ends go on being asked, and one more that keeps apart comes.
            calls = [each.count.remote(1) for each in (*made, inside)]
            third = Counting.options(
                labels={"kind": "far"}, scheduling_strategy=apart, num_cpus=0.5, label_selector={"zone": "head"}
            )
            made.append(third.remote(path, "counters", "third"))
            time.sleep(AWAY_SECONDS / 2)
            run("ip", "link", "set", HERE, "up")
            assert ray.get(calls, timeout=120) == [1, 1, 1]
            assert ray.get(made[-1].count.remote(0), timeout=60) == 0
        assert ray.get([each.count.remote(2) for each in (*made, inside)], timeout=60) == [2] * (len(made) + 1)
    lines = checker.lines()
    counters = tally.spans(lines, "counters")
    assert not list(tally.together(counters)), counters
    began = tally.names(lines, tally.BEGAN)
    on_it = {line.name for line in lines if line.node_id == far}
    assert len(began) - len(set(began)) == (len(on_it) if faults and is_missed else 0)
    for each in (*made, inside):
        ray.kill(each)
    return {"counters": len(set(began)), "begun anew": len(began) - len(set(began))}
