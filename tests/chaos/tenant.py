"""A driver of its own, to be killed: ``python -m tests.chaos.tenant ADDRESS FILE STATE NUMBER``.

It comes into a state, says so, and goes on in it until it has done what it had to, or is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from tests.chaos.load import Counting, work

import remora
from remora import VirtualCluster, actor_affinity, label_not_in
from remora.live.link import link
from remora.wire.calls import Place

ROUNDS = 3
SHORT = 0.05


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def queued(path: str, number: str) -> None:
    """Waits for a minimum that somebody else has."""
    say("there")
    with VirtualCluster(flexible_resource_min={"CPU": 5}, flexible_resource_max={"CPU": 5}, timeout=60):
        ray.get(_tasks(path, number, 3))


def growing(path: str, number: str) -> None:
    with VirtualCluster(flexible_resource_max={"CPU": 3}, timeout=60):
        refs = _tasks(path, number, 40)
        say("there")
        ray.get(refs)


def closing(path: str, number: str) -> None:
    """Its clusters end while their work runs."""
    refs = []
    for turn in range(ROUNDS):
        with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2}, timeout=60):
            refs += _tasks(path, f"{number}-{turn}", 12)
            ray.get(refs[-12])
        if turn == 0:
            say("there")
    ray.get(refs)


def handing_on(path: str, number: str) -> None:
    """What is queued at nodes that are tainted goes to others, and comes back."""
    nodes = {node["Labels"]["zone"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    refs = _tasks(path, number, 40, label_selector={"zone": "in(a, b)"})
    ray.get(refs[0])
    say("there")
    for turn in range(ROUNDS):
        name = "ab"[turn % 2]
        remora.taint_node(nodes[name], {f"tenant-{number}": "true"})
        time.sleep(0.2)
        remora.untaint_node(nodes[name], [f"tenant-{number}"])
    ray.get(refs)


def placing(path: str, number: str) -> None:
    """Actors that keep apart come and go."""
    kind = f"tenant-{number}"
    apart = actor_affinity(label_not_in("kind", [kind], False))
    for turn in range(2 * ROUNDS):
        made = [
            Counting.options(labels={"kind": kind}, scheduling_strategy=apart, num_cpus=0.2).remote(
                path, kind, f"{kind}-{turn}-{n}"
            )
            for n in range(2)
        ]
        if turn == 0:
            say("there")
        ray.get([each.count.remote(0) for each in made])
        for each in made:
            ray.kill(each)


def grouping(path: str, number: str) -> None:
    with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2}, timeout=60):
        for turn in range(4 * ROUNDS):
            group = placement_group([{"CPU": 0.5}] * 2)
            if turn == 0:
                say("there")
            assert group.wait(60)
            remove_placement_group(group)


def late(path: str, number: str) -> None:
    """Is stopped between the answer that names its slot and the creation of its actor: as long as whoever looks wants."""
    ask = link.ask
    seen: list[str] = []

    def stop_then(call: Any) -> Any:
        answer = ask(call)
        if isinstance(call, Place) and not seen:
            seen.append(answer[0])
            say(f"there {answer[0]}")
            os.kill(os.getpid(), signal.SIGSTOP)
        return answer

    link.ask = stop_then  # type: ignore[method-assign]
    kind = f"tenant-{number}"
    actor = Counting.options(labels={"kind": kind}, num_cpus=0.2).remote(path, kind, f"{kind}-0")
    assert ray.get(actor.count.remote(0)) == 0
    say(str(actor._actor_id.hex()))
    ray.kill(actor)


def sharing(path: str, number: str) -> None:
    """Does work when it is told to, in a cluster of two CPUs, and says how long each time took."""
    both = {"CPU": 2}
    with VirtualCluster(flexible_resource_min=both, flexible_resource_max=both, timeout=60):
        say("there")
        for turn, line in enumerate(sys.stdin):
            if line.strip() == "end":
                break
            began = time.monotonic()
            ray.get(_tasks(path, f"{number}-{turn}", 20, seconds=0.2))
            say(f"{time.monotonic() - began:.3f}")


STATES = {each.__name__: each for each in (queued, growing, closing, handing_on, placing, grouping, late, sharing)}


def _tasks(path: str, number: str, count: int, *, seconds: float = SHORT, **options: Any) -> list[Any]:
    group = f"tenant {number}"
    return [work.options(num_cpus=1, **options).remote(path, group, f"{group} {n}", seconds) for n in range(count)]


def main(address: str, path: str, state: str, number: str) -> None:
    remora.init(address=address, logging_level="ERROR", log_to_driver=False, namespace=f"tenant-{number}")
    STATES[state](path, number)
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
