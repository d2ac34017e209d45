"""Scripts from seeds: every feature beside every other, and faults in the middle of it."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from tests.world import script, situations
from tests.world.faults import KINDS, OF_MACHINES, ControllerDies, ProcessDies, Weather
from tests.world.script import (
    Action,
    Actor,
    ClosesCluster,
    Creates,
    CreatesGroup,
    EndsActor,
    HasAutoscaler,
    JobBegins,
    JobEnds,
    Labels,
    Machine,
    MachineDies,
    NodeDies,
    NodeJoins,
    OpensCluster,
    Options,
    Pairs,
    Prioritizes,
    PutsObject,
    RemovesGroup,
    Resizes,
    Rule,
    Submits,
    Taints,
    Task,
)

from remora.model.strategies import ACTOR, FOLLOW, OBJECT, STAY, TASK, TOGETHER

ZONES = ("a", "b")
TAINT = "spot"
TAINT_LABEL = "taint.remora.io/spot"
ANIMALS = ("cat", "dog")
_SITUATIONS = 0.7
"""So many lives are about one situation, with little else in it."""


class Writer:
    """One life. Its ``length`` is how many things people and programs do."""

    def __init__(self, seed: int, length: int | None = None) -> None:
        self.chance = Random(f"script {seed}")
        # Dice of their own, so that lives without domains are what they were before there were any.
        self.domains = Random(f"domains {seed}") if seed % 4 == 3 else None
        self.operates = Random(f"operators {seed}")
        self.length = length or self.chance.choice((4, 8, 8, 14))
        self.seconds = self.chance.choice((3.0, 6.0, 12.0))
        self.actions: list[Action] = []
        self.nodes: list[str] = []
        self.jobs: list[str] = []
        self.clusters: list[tuple[str, str, float]] = []  # name, job, when it was opened
        self.actors: list[str] = []
        self.groups: list[tuple[str, str, str, float]] = []
        self.names = 0
        self.scales = False  # whether machines may be started
        self.parts = False  # whether virtual nodes have labels of their own
        self.objects = 0
        # Some lives are about few things: there these meet more often.
        weights = {name: self.chance.choice((0.0, 1.0, 1.0, 3.0)) for name in _WORK}
        weights["puts"] = self.chance.choice((0.0, 0.0, 0.5))
        self.weights = weights if any(weights.values()) else dict.fromkeys(_WORK, 1.0)

    def write(self) -> script.Script:
        chance = self.chance
        if chance.random() < _SITUATIONS:
            self.length = chance.choice((0, 0, 1, 3))
            self.seconds = 8.0
            chance.choice(situations.ALL)(situations.Stage(self))
        else:
            self.begin()
        names = list(self.weights)
        for _ in range(self.length):
            what = chance.choices(names, [self.weights[name] for name in names])[0]
            getattr(self, what)(self.when())
        for _ in range(chance.choice((0, 0, 1, 2))):
            self.changes(self.when())
        for _ in range(chance.choice((0, 1, 2, 4))):
            self.goes_wrong(self.when())
        return tuple(sorted(self.actions, key=lambda action: action.at))

    def begin(self) -> None:
        chance = self.chance
        if chance.random() < 0.1:
            self.machines()
        for _ in range(chance.choice((1, 2, 2, 3))):
            self.node(0.0)
        for _ in range(chance.choice((1, 1, 2))):
            self.job(0.1)
        if chance.random() < 0.6:
            self.opens(0.2)

    def when(self, after: float = 0.3) -> float:
        return round(self.chance.uniform(after, max(self.seconds, after + 0.5)), 3)

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    # Nodes and jobs

    def machines(self) -> None:
        """There is an autoscaler, with a few types of machines."""
        chance = self.chance
        self.scales = True
        found = []
        for number in range(chance.choice((1, 1, 2, 3))):
            labels: list[tuple[str, str]] = [("zone", chance.choice(ZONES))] if chance.random() < 0.4 else []
            if chance.random() < 0.2:
                labels.append((TAINT_LABEL, "true"))
            cpus, gpus = float(chance.choice((1, 2, 2, 4))), 1.0 if chance.random() < 0.2 else 0.0
            least, most = chance.choice((0, 0, 0, 1)), chance.choice((1, 2, 3, None))
            found.append(Machine(f"m{number}-", cpus, gpus, tuple(labels), least, most))
        self.actions.append(HasAutoscaler(-1.0, tuple(found), chance.choice((None, None, 2, 4))))

    def node(self, at: float) -> None:
        chance = self.chance
        name = f"n{len(self.nodes)}"
        self.nodes.append(name)
        labels: list[tuple[str, str]] = [("zone", chance.choice(ZONES))] if chance.random() < 0.7 else []
        if len(self.nodes) > 1 and chance.random() < 0.2:
            labels.append((TAINT_LABEL, "true"))
        resources: list[tuple[str, float]] = [("CPU", float(chance.choice((1, 2, 2, 4))))]
        if chance.random() < 0.2:
            resources.append(("GPU", 1.0))
        self.actions.append(NodeJoins(at, name, tuple(resources), tuple(labels)))

    def job(self, at: float) -> None:
        name = f"job{len(self.jobs) + 1}"
        self.jobs.append(name)
        self.actions.append(
            JobBegins(at, name, self.nodes[0] if self.chance.random() < 0.8 else self.chance.choice(self.nodes))
        )

    # Work

    def where(self, at: float) -> tuple[str, str]:
        """A job, and one of its virtual clusters or none."""
        open_by_then = [(name, job) for name, job, opened in self.clusters if opened < at]
        if open_by_then and self.chance.random() < 0.75:
            name, job = self.chance.choice(open_by_then)
            return job, name
        return self.chance.choice(self.jobs), ""

    def options(self, *, is_actor: bool, size: float | None = None) -> Options:
        chance = self.chance
        cpus: float | None = size if size is not None else chance.choice((1.0, 1.0, 1.0, 0.5, 2.0, None))
        selector: Pairs = (("zone", chance.choice((*ZONES, "in(a, b)", "!a"))),) if chance.random() < 0.25 else ()
        if self.parts and chance.random() < 0.2:
            selector = (("part", chance.choice(("0", "1"))),)
        fallbacks: tuple[Pairs, ...] = (chance.choice(((), (("zone", "b"),))),) if selector and chance.random() < 0.4 else ()
        tolerations: Pairs = ((TAINT, "exists()"),) if chance.random() < 0.3 else ()
        labels: Pairs = ()
        rules: list[Rule] = []
        if chance.random() < (0.6 if is_actor else 0.25):
            labels = (("type", chance.choice(ANIMALS)),)
        if chance.random() < (0.4 if is_actor else 0.2):
            rules.append(self.within_a_domain(self.rule()))
        spread = "zone" if self.domains is not None and labels and self.domains.random() < 0.2 else ""
        gpus = 1.0 if chance.random() < 0.05 else 0.0
        return Options(cpus, gpus, selector, fallbacks, tolerations, labels, tuple(rules), spread)

    def within_a_domain(self, rule: Rule) -> Rule:
        """The rule, or in some lives often the same about a zone instead of a node."""
        return replace(rule, within="zone") if self.domains is not None and self.domains.random() < 0.6 else rule

    def rule(self) -> Rule:
        chance = self.chance
        near, soft = chance.random() < 0.4, chance.random() < 0.2
        owner = ACTOR if chance.random() < 0.8 else TASK
        failover = chance.choice((STAY, FOLLOW, TOGETHER)) if owner == ACTOR else STAY
        if owner == ACTOR and self.actors and chance.random() < 0.3:
            return Rule(near=near, soft=soft, on_failover=failover, handle=chance.choice(self.actors))
        if self.objects and chance.random() < 0.3:
            return Rule(OBJECT, "type", (chance.choice(ANIMALS),), near, soft)
        symmetric = not near and chance.random() < 0.2
        return Rule(owner, "type", (chance.choice(ANIMALS),), near, soft, failover, symmetric=symmetric)

    def task(self, depth: int = 0, *, cpus: float | None = None) -> Task:
        chance = self.chance
        children: tuple[Task | Actor, ...] = ()
        if chance.random() < (0.4, 0.3, 0.0)[depth]:
            children = tuple(self.child(depth + 1) for _ in range(chance.choice((1, 1, 2, 3))))
        return Task(
            self.name("t"),
            self.options(is_actor=False, size=cpus),
            round(chance.choice((0.05, 0.2, 0.5, 2.0)), 2),
            children,
            gets=chance.random() < 0.85,
            timeout=chance.choice((None, None, 0.5)),
            retries=chance.choice((0, 3)),
            inside=self.spec() if children and chance.random() < 0.1 else "",
        )

    def child(self, depth: int) -> Task | Actor:
        return self.task(depth) if self.chance.random() < 0.8 else self.actor()

    def actor(self) -> Actor:
        chance = self.chance
        actor = Actor(
            self.name("a"),
            self.options(is_actor=True),
            chance.choice((0, 1, 3)),
            chance.random() < 0.15,
            chance.choice((None, 0.5, 2.0)),
            chance.choice((0.02, 0.02, 0.5)),
        )
        self.actors.append(actor.name)
        return actor

    def submits(self, at: float) -> None:
        job, cluster = self.where(at)
        count = self.chance.choice((1, 1, 2, 4))
        first = self.task()
        for number in range(count):
            # Equal ones wait in one line, and get each other's workers.
            task = first if number == 0 else Task(self.name("t"), first.options, first.seconds, retries=first.retries)
            self.actions.append(Submits(round(at + 0.001 * number, 3), job, cluster, task))

    def creates(self, at: float) -> None:
        job, cluster = self.where(at)
        actor = self.actor()
        self.actions.append(Creates(at, job, cluster, actor))
        if self.chance.random() < 0.2:
            self.actions.append(EndsActor(self.when(at), actor.name))

    def puts(self, at: float) -> None:
        self.objects += 1
        labels: Pairs = (("type", self.chance.choice(ANIMALS)),)
        seconds = self.chance.choice((0.5, 3.0, 100.0))
        self.actions.append(PutsObject(at, self.name("o"), self.chance.choice(self.jobs), labels, seconds))

    # Virtual clusters

    def spec(self) -> str:
        chance = self.chance
        least, more = chance.choice((0, 0, 1, 2)), chance.choice((0, 1, 2))
        kind = chance.random()
        if kind < 0.6:
            return json.dumps(
                {"flexible_resource_min": {"CPU": least}, "flexible_resource_max": {"CPU": max(least + more, 1)}}
                if least
                else {"flexible_resource_max": {"CPU": max(more, 1)}}
            )
        nodes: list[dict[str, object]] = [
            {"resources": {"CPU": chance.choice((1, 1, 2))}} for _ in range(chance.choice((1, 2)))
        ]
        if chance.random() < 0.25:
            self.parts = True
            for number, node in enumerate(nodes):
                node["labels"] = {"part": str(number)}
        fixed = [{"nodes": nodes, "scheduling_policy": chance.choice(("PACK", "SPREAD", "STRICT_SPREAD"))}]
        if kind < 0.85:
            return json.dumps({"fixed_size_nodes": fixed})
        return json.dumps({"fixed_size_nodes": fixed, "flexible_resource_max": {"CPU": more}})

    def opens(self, at: float) -> None:
        chance = self.chance
        inside = [(name, job) for name, job, opened in self.clusters if opened < at]
        parent, job = "", chance.choice(self.jobs)
        if inside and chance.random() < 0.4:
            parent, job = chance.choice(inside)
        name = self.name("c")
        self.clusters.append((name, job, at))
        timeout, idle = chance.choice((None, None, 2.0)), chance.choice((0.0, 1.0, 5.0))
        self.actions.append(OpensCluster(at, name, job, parent, self.spec(), chance.choice((0, 0, 1)), timeout, idle))
        if chance.random() < 0.5:
            self.actions.append(ClosesCluster(self.when(at + 0.2), name))
        if self.operates.random() < 0.25:  # dice of their own, or every life would be another
            cpus = float(self.operates.choice((1, 2, 3, 4, 6)))
            self.actions.append(Resizes(round(self.operates.uniform(at + 0.3, at + self.seconds), 3), name, cpus))
        if self.operates.random() < 0.1:
            when = round(self.operates.uniform(at + 0.1, at + self.seconds), 3)
            self.actions.append(Prioritizes(when, name, self.operates.choice((-1, 5))))

    # Placement groups

    def groups_(self, at: float) -> None:
        chance = self.chance
        job, cluster = self.where(at)
        name = self.name("g")
        bundles = tuple(chance.choice((1.0, 1.0, 2.0)) for _ in range(chance.choice((1, 1, 2))))
        strategy = chance.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        selector: Pairs = (("zone", chance.choice(ZONES)),) if chance.random() < 0.2 else ()
        tolerations: Pairs = ((TAINT, "exists()"),) if chance.random() < 0.2 else ()
        fallback = (0.5,) if chance.random() < 0.15 else ()
        topology: Pairs = ()
        if self.domains is not None and self.domains.random() < 0.6:
            topology = (("zone", self.domains.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))),)
        made = CreatesGroup(at, name, job, cluster, bundles, strategy, selector, tolerations, fallback, topology)
        self.actions.append(made)
        if chance.random() < 0.6:
            self.actions.append(RemovesGroup(self.when(at), name))
        if chance.random() < 0.7:
            task = Task(self.name("t"), Options(1.0), 0.3, group=name)
            self.actions.append(Submits(self.when(at + 0.5), job, cluster, task))
        if chance.random() < 0.3:
            actor = Actor(self.name("a"), Options(1.0), chance.choice((0, 1)), group=name)
            self.actions.append(Creates(self.when(at + 0.5), job, cluster, actor))

    # Changes and faults

    def changes(self, at: float) -> None:
        chance = self.chance
        node = chance.choice(self.nodes)
        if chance.random() < 0.6:
            self.actions.append(Taints(at, node, ((TAINT, "true"),)))
            if chance.random() < 0.7:
                self.actions.append(Taints(self.when(at), node, (), (TAINT,)))
        else:
            self.actions.append(Labels(at, node, (("zone", chance.choice(ZONES)),)))

    def goes_wrong(self, at: float) -> None:
        chance = self.chance
        if self.scales and chance.random() < 0.5:
            if chance.random() < 0.5:
                self.actions.append(MachineDies(at, round(chance.random(), 3)))
            else:
                self.actions.append(Weather(at, chance.choice(OF_MACHINES), round(chance.uniform(2.0, 8.0), 1)))
            return
        kind = chance.random()
        if kind < 0.35:
            self.actions.append(ControllerDies(at, chance.choice((0, 1, 1, 2, 3, 5)), chance.random() < 0.5))
        elif kind < 0.55:
            whose = [*self.jobs, *(a.task.name for a in self.actions if isinstance(a, Submits)), *self.actors]
            self.actions.append(ProcessDies(at, chance.choice(whose), chance.choice((0, 0, 1, 2, 4, 8))))
        elif kind < 0.65 and len(self.nodes) > 1:
            self.actions.append(NodeDies(at, chance.choice(self.nodes[1:])))
        elif kind < 0.75:
            self.node(at)
        elif kind < 0.8:
            self.actions.append(JobEnds(at, chance.choice(self.jobs)))
        else:
            self.actions.append(Weather(at, chance.choice(KINDS), round(chance.uniform(0.5, 4.0), 1)))


_WORK = ("submits", "creates", "opens", "groups_", "puts")


def write(seed: int, length: int | None = None) -> script.Script:
    """The life of a seed."""
    return Writer(seed, length).write()
