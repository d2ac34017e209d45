"""The work that everything here is done to: a bit of each feature, chosen at random, whose results and places are checked.

Every step submits something, awaits it, and compares what comes back with what must. What is forbidden (a tainted node, two
that keep apart on one node, more of a virtual cluster than it may have) is looked for afterwards in what the work wrote down.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.chaos import tally
from tests.chaos.breakable import SEED, Breakable, part, say
from tests.chaos.checker import Checker

import remora
from remora import VirtualCluster, actor_affinity, label_not_in
from remora.errors import RemoraError
from remora.live.clusters import scopes

MOST_CPUS = 2
PATIENCE = 150.0
GOES_ON = 0.5
"""A worker that has just read that it may begin a task may take so long to its first line, on a machine that is this busy."""

INSIDE, OUTSIDE, COUNTERS, BUNDLES, RESIZED = "inside", "outside", "counters", "bundles", "resized"


@ray.remote(max_retries=-1)
def work(path: str, group: str, name: str, seconds: float) -> str:
    tally.write(path, tally.BEGAN, group, name)
    time.sleep(seconds)
    tally.write(path, tally.ENDED, group, name)
    return name


class _Counting:
    def __init__(self, path: str, group: str, name: str) -> None:
        self._path, self._group, self._name = path, group, name
        tally.write(path, tally.BEGAN, group, name)

    def count(self, number: int) -> int:
        tally.write(self._path, f"count {number}", self._group, self._name)
        return number


Counting: Any = ray.remote(max_restarts=-1, max_task_retries=-1)(_Counting)


class Load:
    """Steps of work, one after the other. ``during`` is told what is just being done, in the middle of it."""

    def __init__(self, rig: Breakable, checker: Checker, during: Callable[[str], None] = lambda _: None) -> None:
        self.path = str(checker.path)
        self.done: Counter[str] = Counter()
        self._rig = rig
        self._checker = checker
        self._chance = random.Random(f"{SEED} {checker.path.stem}")
        self._during = during
        self._names: set[str] = set()
        self._forbidden: list[tuple[str, float, float, set[str]]] = []  # node, from, until, what may not start there
        self._pending: dict[Any, str] = {}
        self._counted: dict[str, int] = {}
        self._resized: dict[str, float] = {}
        self.steps: dict[str, Callable[[], None]] = {
            "tasks by label": self.by_label,
            "tasks in a cluster": self.in_a_cluster,
            "counters that keep apart": self.counters,
            "a placement group": self.group,
            "a group in a cluster": self.group_in_a_cluster,
            "a taint": self.taint,
            "a label": self.label,
            "a resize": self.resize,
        }

    def run(self, seconds: float, enough: Callable[[], bool] = lambda: True) -> None:
        """Do steps at random for so long, and until it is enough; each at least once, or in a part of a run some of them."""
        order = self._chance.sample(list(self.steps), min(len(self.steps), part(2 * len(self.steps))))
        until = time.monotonic() + seconds
        while order or time.monotonic() < until or not enough():
            name = order.pop() if order else self._chance.choice(list(self.steps))
            self.steps[name]()
            self.done[name] += 1
            say(f"done: {name}")
        self._collect(list(self._pending))

    # Steps

    def by_label(self) -> None:
        refs = self._submit(self._chance.randint(4, 10), OUTSIDE, label_selector={"zone": "in(a, b, again)"}, num_cpus=0.5)
        self._collect(refs[: len(refs) // 2])

    def in_a_cluster(self) -> None:
        most = {"CPU": MOST_CPUS}
        least = {"CPU": 1} if self._chance.random() < 0.5 else {}
        spec = VirtualCluster(flexible_resource_min=least, flexible_resource_max=most, timeout=PATIENCE)
        group = self._name(INSIDE)
        with spec:
            refs = self._submit(self._chance.randint(6, 12), group, num_cpus=1)
            self._collect(refs[:2])
            self._during("closing")
        if self._chance.random() < 0.5:
            self._collect(refs)

    def counters(self) -> None:
        group = self._name(COUNTERS)
        apart = actor_affinity(label_not_in("kind", [group], False))
        made = {}
        for number in range(2):
            name = f"{group}-{number}"
            made[name] = Counting.options(labels={"kind": group}, scheduling_strategy=apart, num_cpus=0.5).remote(
                self.path, group, name
            )
            self._during("placing")
        calls = {name: [each.count.remote(number) for number in range(10)] for name, each in made.items()}
        for name, refs in calls.items():
            assert ray.get(refs, timeout=PATIENCE) == list(range(10)), name
            self._counted[name] = 10
        for each in made.values():
            ray.kill(each)

    def group(self) -> None:
        group = placement_group([{"CPU": 0.5}] * 2, strategy=self._chance.choice(["PACK", "SPREAD"]))
        self._during("group")
        try:
            self._in_group(group)
        finally:
            remove_placement_group(group)

    def group_in_a_cluster(self) -> None:
        least, most = {"CPU": 1}, {"CPU": MOST_CPUS}
        with VirtualCluster(flexible_resource_min=least, flexible_resource_max=most, timeout=PATIENCE):
            self.group()

    def taint(self) -> None:
        """From when a taint was answered until it is asked to go, nothing starts there."""
        with self._rig.lock:  # the node that is tainted is not killed meanwhile
            name = self._chance.choice([each for each in ("a", "b") if each in self._rig.nodes] or ["head"])
            node_id = self._rig.node_id(name)
            before = self._submit(6, OUTSIDE, num_cpus=0.5)
            try:
                remora.taint_node(node_id, {"busy": "true"})
            except RemoraError:
                return  # the node has died, and nobody has noticed
            began = time.monotonic()
            self._during("tainted")
            after = self._submit(6, OUTSIDE, num_cpus=0.5)
            self._collect(after)
            self._forbidden.append((node_id, began, time.monotonic(), set(self._names)))
            remora.untaint_node(node_id, ["busy"])
        self._collect(before)

    def label(self) -> None:
        """On the head node, which nobody kills."""
        node_id = self._rig.node_id("head")
        refs = self._submit(2, OUTSIDE, label_selector={"team": "green"}, num_cpus=0.5)
        remora.label_node(node_id, {"team": "green"})
        self._collect(refs)
        remora.label_node(node_id, {"team": None})

    def resize(self) -> None:
        """From when a lower maximum was answered, no more than that begin beside each other."""
        group = self._name(RESIZED)
        with VirtualCluster(flexible_resource_max={"CPU": MOST_CPUS}, timeout=PATIENCE):
            refs = self._submit(8, group, num_cpus=1)
            self._collect(refs[:1])
            remora.resize_cluster(str(scopes.peek()), {"CPU": 1})
            self._resized[group] = time.monotonic()
            self._collect(refs)

    # What came of it

    def check(self, *, once: bool) -> None:
        """Nothing lost, nothing where it must not be. ``once``: nobody was killed, so everything began a single time."""
        assert not self._pending
        lines = self._checker.lines()
        began = Counter(tally.names(lines, tally.BEGAN))
        lost = {*self._names, *self._counted} - set(began)
        assert not lost, f"never began: {sorted(lost)}"
        if once:
            twice = [name for name, times in began.items() if times > 1]
            assert not twice, f"began more than once: {twice}"
        for name, count in self._counted.items():
            counted = {line.what for line in lines if line.name == name and line.what.startswith("count ")}
            assert len(counted) == count, f"{name} counted {sorted(counted)}"
        groups = {line.group for line in lines}
        for group in sorted(groups):
            spans = tally.spans(lines, group)
            if group.startswith(COUNTERS):
                assert not list(tally.together(spans)), f"they keep apart: {list(tally.together(spans))}"
            elif group.startswith(RESIZED):
                later = [span for span in spans if span.began > self._resized[group] + GOES_ON]
                assert tally.most_at_once(later) <= 1, f"{group}: {tally.most_at_once(later)} began at once after the resize"
            elif group.startswith(INSIDE):
                assert tally.most_at_once(spans) <= MOST_CPUS, f"{group}: {tally.most_at_once(spans)} ran at once"
        kept_out = self._rig.tainted_ids
        for line in lines:
            assert line.node_id not in kept_out, f"{line.name} was on the tainted node"
            if line.what != tally.BEGAN:
                continue
            for node_id, since, until, names in self._forbidden:
                wrong = line.node_id == node_id and since + GOES_ON < line.at < until and line.name in names
                assert not wrong, f"{line.name} ({line.group}) began on {node_id[:12]} {line.at - since:.3f} s into its taint"

    def figures(self) -> dict[str, int]:
        lines = self._checker.lines()
        return {
            "steps": sum(self.done.values()),
            "results": len(self._names) + sum(self._counted.values()),
            "begun anew": len(tally.names(lines, tally.BEGAN)) - len(set(tally.names(lines, tally.BEGAN))),
        }

    # The rest

    def _name(self, group: str) -> str:
        return f"{group}-{self._chance.randrange(10**9)}"

    def _submit(self, count: int, group: str, **options: Any) -> list[Any]:
        found = []
        for _ in range(count):
            name = self._name("task")
            ref = work.options(**options).remote(self.path, group, name, self._chance.uniform(0.02, 0.1))
            self._names.add(name)
            self._pending[ref] = name
            found.append(ref)
        return found

    def _collect(self, refs: list[Any]) -> None:
        refs = [ref for ref in refs if ref in self._pending]
        for ref, name in zip(refs, ray.get(refs, timeout=PATIENCE), strict=True):
            assert name == self._pending.pop(ref)

    def _in_group(self, group: Any) -> None:
        assert group.wait(PATIENCE), "a placement group was not created in time"
        there = PlacementGroupSchedulingStrategy(group)
        self._collect(self._submit(2, BUNDLES, num_cpus=0.5, scheduling_strategy=there))


def twins(
    rig: Breakable,
    checker_of: Callable[[str], Checker],
    life: Callable[[Load, bool], None],
    during: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Live a life without faults, and with them; everything that must hold holds for both. Return the figures of the second."""
    found: dict[str, int] = {}
    for faults in (False, True):
        checker = checker_of("faults" if faults else "calm")
        load = Load(rig, checker, during if faults else lambda _: None)
        with checker.watching():
            life(load, faults)
        say("all work is over")
        checker.settled()
        say("nothing is left")
        load.check(once=not faults)
        found = load.figures()
    return found
