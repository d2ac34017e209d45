"""The stories of the proposals that Remora makes true, each on the same four nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from examples.demo.stage import Stage

import remora
from remora import Exists, actor_affinity, affinity, label_in, label_not_in

_PROGRAM = Path(__file__).with_name("job.py")
_SHARE = json.dumps({"flexible_resource_min": {"CPU": 3}, "flexible_resource_max": {"CPU": 3}})


def spread_and_join(stage: Stage) -> None:
    """Spread a service, and keep its caches next to it"""
    apart = actor_affinity(label_not_in("app", ["web"], False))
    copies = [stage.seat(f"web-{i}", labels={"app": "web"}, scheduling_strategy=apart) for i in (1, 2, 3)]
    stage.show("Each copy keeps away from nodes that have one. The node gpu is tainted, and they do not tolerate that.")
    for i in (1, 2, 3):
        stage.seat(f"cache-{i}", scheduling_strategy=actor_affinity(affinity(copies[1], False)))
    stage.show("The caches were told to be where web-2 is, by its handle. Nobody named a node.")


def cats_and_dogs(stage: Stage) -> None:
    """One cat a node, and three dogs with each cat"""
    lonely = actor_affinity(label_not_in("type", ["cat"], False))
    for cat in (1, 2, 3, 4):
        stage.seat(f"cat-{cat}", labels={"type": "cat", "id": f"cat-{cat}"}, scheduling_strategy=lonely)
    for cat in (1, 2, 3):
        with_it = actor_affinity(label_in("id", [f"cat-{cat}"], False))
        for dog in "abc":
            stage.seat(f"dog-{cat}{dog}", labels={"type": "dog"}, scheduling_strategy=with_it)
    stage.show("Cats spread by label, and each dog found the node of its cat.", waiting=["cat-4"])
    stage.say(f"cat-4 waits, and can say why: {stage.why('cat-4')}.")


def isolate_gpus(stage: Stage) -> None:
    """Keep a GPU node for GPU work, and take a node out of service while it runs"""
    stage.seat("train", num_gpus=1, tolerations={"gpu_node": Exists()})
    ran = stage.run([f"t{i}" for i in range(1, 7)])
    stage.show("Six plain tasks found the nodes without a taint; train tolerates the taint and has the GPU.", ran)
    name = "worker-1"
    remora.taint_node(stage.ids[name], {"memory": "low"})
    ran = stage.run([f"t{i}" for i in range(7, 13)])
    stage.show(f"A late taint: from the moment that taint_node returned, nothing new starts on {name}.", ran)
    remora.untaint_node(stage.ids[name], ["memory"])


def two_jobs(stage: Stage) -> None:
    """Two jobs that need three CPUs each, where only five are for everybody"""
    with ExitStack() as stack:
        red = stack.enter_context(_job(stage, "red"))
        seats = _seats(red)
        blue = stack.enter_context(_job(stage, "blue"))
        reason = _line(blue, " waits: ").partition(" waits: ")[2]
        stage.show(f"red has its three CPUs, reserved at once. blue waits in the queue: {reason}.", seats)
        red.communicate()
        stage.show("red ended and gave everything back, so blue has its three CPUs and runs.", _seats(blue))
        blue.communicate()


STORIES = (spread_and_join, cats_and_dogs, isolate_gpus, two_jobs)


@contextmanager
def _job(stage: Stage, name: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a virtual cluster of its own; it ends when its input does."""
    command = [sys.executable, "-m", "remora", "run", "--address", stage.address, "--virtual-cluster", _SHARE, "--"]
    job = subprocess.Popen(
        [*command, sys.executable, str(_PROGRAM), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield job
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            job.communicate()


def _seats(job: subprocess.Popen[str]) -> list[tuple[str, str]]:
    return [(name, node_id) for name, node_id in json.loads(_line(job, "["))]


def _line(job: subprocess.Popen[str], part: str) -> str:
    assert job.stdout is not None
    said = []
    for line in job.stdout:
        if part in line:
            return line.strip()
        said.append(line)
    raise RuntimeError("a job of the demo ended early: " + "".join(said))
