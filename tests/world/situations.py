"""Situations: few things in a tight place, where features meet that seldom do by chance alone.

Each is made of what people do and of what goes wrong, with numbers and times by chance. None says what should come of it: that
is for the checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from tests.world.faults import (
    CALLS_DOUBLE,
    CALLS_SLOW,
    EFFECTS_SLOW,
    FEEDS_LATE,
    KINDS,
    REPORTS,
    WORKERS_SLOW,
    ControllerDies,
    ProcessDies,
    ProcessStops,
    Weather,
)
from tests.world.script import (
    Actor,
    ClosesCluster,
    Creates,
    CreatesGroup,
    JobEnds,
    NodeDies,
    NodeJoins,
    OpensCluster,
    Options,
    Pairs,
    RemovesGroup,
    Rule,
    Streams,
    Submits,
    Taints,
    Task,
)

from remora.model.strategies import ACTOR, FOLLOW, STAY, TOGETHER

if TYPE_CHECKING:
    from tests.world.writing import Writer

ANIMALS = ("cat", "dog")
TAINT = "spot"
LONG = 200.0
"""Longer than a life: what takes so long is never seen to end."""


class Stage:
    """What situations are built with."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.chance: Random = writer.chance
        self.job = ""

    def nodes(self, *choices: tuple[int, ...]) -> list[str]:
        """Nodes with so many CPUs, and a job on the first of them."""
        sizes = self.chance.choice(choices)
        for size in sizes:
            name = f"n{len(self.writer.nodes)}"
            self.writer.nodes.append(name)
            self.writer.actions.append(NodeJoins(0.0, name, (("CPU", float(size)),)))
        self.writer.job(0.1)
        self.job = self.writer.jobs[-1]
        return list(self.writer.nodes)

    def another_job(self) -> str:
        self.writer.job(0.1)
        return self.writer.jobs[-1]

    def at(self, low: float, high: float) -> float:
        return round(self.chance.uniform(low, high), 3)

    def often(self, probability: float) -> bool:
        return self.chance.random() < probability

    def opens(
        self,
        spec: str,
        at: float = 0.2,
        parent: str = "",
        *,
        job: str = "",
        idle: tuple[float, ...] = (0.0, 1.0, 5.0),
        timeout: float | None = None,
    ) -> str:
        name, job = self.writer.name("c"), job or self.job
        self.writer.clusters.append((name, job, at))
        self.writer.actions.append(OpensCluster(at, name, job, parent, spec, 0, timeout, self.chance.choice(idle)))
        return name

    def closes(self, at: float, cluster: str) -> None:
        self.writer.actions.append(ClosesCluster(at, cluster))

    def submits(self, at: float, cluster: str, task: Task, *, job: str = "") -> str:
        self.writer.actions.append(Submits(at, job or self.job, cluster, task))
        return task.name

    def creates(self, at: float, cluster: str, actor: Actor, *, job: str = "") -> str:
        self.writer.actors.append(actor.name)
        self.writer.actions.append(Creates(at, job or self.job, cluster, actor))
        return actor.name

    def task(self, seconds: float, options: Options | None = None) -> Task:
        return Task(self.writer.name("t"), options or Options(), seconds, retries=self.chance.choice((0, 3)))

    def parent(
        self, seconds: float, options: Options | None = None, *, after: float | None = None, waits: tuple[float, ...] = ()
    ) -> Task:
        """One that waits in ``ray.get``, for about so long."""
        count = self.chance.choice((1, 1, 2))
        children = tuple(self.task(self.chance.choice(waits or (0.1, 0.5, 1.5)), options) for _ in range(count))
        timeout = self.chance.choice((None, None, 0.5))
        return replace(self.task(seconds, options), children=children, timeout=timeout, after=after)

    def dies(self, at: float, whose: str, *steps: int) -> None:
        self.writer.actions.append(ProcessDies(at, whose, self.chance.choice(steps or (0, 1, 2, 4))))

    def weather(self, at: float, *kinds: str, most: int = 2) -> None:
        for kind in self.chance.sample(kinds or KINDS, self.chance.randint(0, most)):
            self.writer.actions.append(Weather(at, kind, self.at(1.0, 5.0)))


def flexible(most: int, least: int = 0) -> str:
    spec = {"flexible_resource_max": {"CPU": most}}
    return json.dumps({"flexible_resource_min": {"CPU": least}, **spec} if least else spec)


def fixed(*sizes: int, policy: str = "PACK", labelled: bool = False, more: int = 0) -> str:
    nodes: list[dict[str, object]] = [{"resources": {"CPU": size}} for size in sizes]
    for number, node in enumerate(nodes if labelled else ()):
        node["labels"] = {"part": str(number)}
    spec: dict[str, object] = {"fixed_size_nodes": [{"nodes": nodes, "scheduling_policy": policy}]}
    return json.dumps({**spec, "flexible_resource_max": {"CPU": more}} if more else spec)


def pet(animal: str) -> Pairs:
    return (("type", animal),)


# The situations


def together(stage: Stage) -> None:
    """Actors in a virtual cluster that belong together lose their node, or the process of the one that the others joined."""
    chance = stage.chance
    nodes = stage.nodes((1, 2, 2), (1, 2, 2, 2), (2, 2, 2), (1, 4, 2, 2))
    spec = chance.choice((fixed(2), fixed(1, 1), flexible(2, 2), flexible(2), flexible(3, 1), fixed(3)))
    cluster = stage.opens(spec) if stage.often(0.85) else ""
    animal, failover = chance.choice(ANIMALS), chance.choice((TOGETHER, TOGETHER, FOLLOW, STAY))
    size = chance.choice((1.0, 1.0, 0.5, None))
    first = Actor(stage.writer.name("a"), Options(size, labels=pet(animal)), 3)
    stage.creates(stage.at(0.4, 1.0), cluster, first)
    for _ in range(chance.choice((1, 1, 2))):
        rule = Rule(ACTOR, "type", (animal,), True, on_failover=failover)
        other = Actor(stage.writer.name("a"), Options(size, labels=pet(chance.choice(ANIMALS)), rules=(rule,)), 3)
        stage.creates(stage.at(1.2, 2.0), cluster, other)
    for _ in range(chance.choice((0, 1, 3))):
        stage.submits(stage.at(0.5, 4.0), chance.choice(("", cluster)), stage.task(chance.choice((0.5, 3.0, LONG))))
    for node in chance.sample(nodes[1:], chance.choice((0, 1, 1, 2))):
        stage.writer.actions.append(NodeDies(stage.at(2.5, 4.0), node))
    if stage.often(0.4):
        stage.writer.actions.append(Taints(stage.at(2.0, 3.0), chance.choice(nodes), ((TAINT, "true"),)))
    if stage.often(0.4):
        stage.dies(stage.at(3.0, 5.0), first.name, 0)


def waiting(stage: Stage) -> None:
    """Workers that wait in ``ray.get`` in a small virtual cluster die, and what they say is late, doubled or both."""
    chance = stage.chance
    stage.nodes((1,), (2,), (2, 2), (1, 1), (4,))
    cluster = stage.opens(chance.choice((flexible(1), flexible(2), flexible(1, 1), flexible(2, 1), fixed(1), fixed(2))))
    inner = stage.opens(flexible(1), 0.3, cluster) if stage.often(0.2) else cluster
    is_long = stage.often(0.5)  # it says again and again that it waits
    often = CALLS_SLOW if is_long else CALLS_DOUBLE
    stage.weather(stage.at(1.5, 2.5) if is_long else 0.4, often, often, CALLS_SLOW, CALLS_DOUBLE, FEEDS_LATE)
    for _ in range(chance.choice((1, 2, 3))):
        begin = stage.at(0.5, 1.0 if is_long else 2.0)
        parent = stage.parent(chance.choice((0.1, 0.5, 1.5)), waits=(4.0, 6.0) if is_long else ())
        name = stage.submits(begin, chance.choice((cluster, inner)), parent)
        if stage.often(0.6):
            stage.dies(stage.at(begin + 2.0, begin + 5.0) if is_long else stage.at(begin + 0.1, begin + 1.5), name)
    for _ in range(chance.choice((2, 3, 5))):
        stage.submits(stage.at(0.5, 4.0), chance.choice((cluster, inner)), stage.task(chance.choice((0.2, 1.0, 2.0))))


def forgetting(stage: Stage) -> None:
    """The controller dies over what it has just heard or answered, while everything is full."""
    chance = stage.chance
    stage.nodes((1,), (2,), (1, 1), (2, 1))
    cluster = stage.opens(chance.choice((flexible(1), flexible(2), fixed(1)))) if stage.often(0.4) else ""
    for _ in range(chance.choice((1, 2, 3, 4))):
        stage.submits(stage.at(0.4, 0.8), chance.choice(("", "", cluster)), stage.task(chance.choice((2.0, 8.0, 8.0))))
    for _ in range(chance.choice((1, 2, 2, 3))):
        begin = stage.at(1.0, 6.0)
        labels = pet(chance.choice(ANIMALS)) if stage.often(0.4) else ()
        options = Options(1.0, tolerations=((f"t{begin}", "exists()"),) if not labels else (), labels=labels)
        call = "Place" if labels else "EnsureClass"
        kind = chance.random()
        if kind < 0.5:
            stage.submits(begin, cluster, stage.task(0.3, options))
        elif kind < 0.8:
            stage.creates(begin, cluster, Actor(stage.writer.name("a"), options, chance.choice((0, 2))))
        elif kind < 0.9:
            call = "CreateCluster"
            stage.submits(begin + 0.2, stage.opens(chance.choice((flexible(1), fixed(1))), begin), stage.task(0.3))
        else:
            call = "OfferGroup"
            stage.writer.actions.append(CreatesGroup(begin, stage.writer.name("g"), stage.job, cluster, (1.0,)))
        answers = call if stage.often(0.4) else ""
        effects = 0 if answers else chance.choice((0, 1, 1, 2, 3))
        begins = round(begin - 0.001 if answers else stage.at(begin, begin + 0.02), 3)
        stage.writer.actions.append(ControllerDies(begins, effects, stage.often(0.5), answers))
        if stage.often(0.6):
            stage.writer.actions.append(Weather(begins, chance.choice((CALLS_SLOW, CALLS_SLOW, EFFECTS_SLOW)), 3.0))


def borrowing(stage: Stage) -> None:
    """Work that never ends has what is somebody else's minimum, or gets it when that is lost with its node."""
    chance = stage.chance
    nodes = stage.nodes((2,), (4,), (2, 2), (2, 1), (1, 1))
    other = stage.another_job() if stage.often(0.5) else stage.job
    borrower = stage.opens(flexible(4)) if stage.often(0.8) else ""
    task = stage.task(chance.choice((0.3, 1.0, 2.0)))
    stage.writer.actions.append(Streams(stage.at(0.4, 1.0), stage.job, borrower, task, chance.choice((2, 3, 4))))
    for _ in range(chance.choice((1, 1, 2))):
        spec = chance.choice((flexible(1, 1), flexible(2, 1), flexible(2, 2), fixed(1), fixed(1, 1), flexible(2)))
        begin = stage.at(1.5, 4.0)
        owed = stage.opens(spec, begin, job=other)
        for _ in range(chance.choice((1, 2, 4))):
            stage.submits(stage.at(begin + 0.1, begin + 4.0), owed, stage.task(chance.choice((0.2, 1.0))), job=other)
    if len(nodes) > 1 and stage.often(0.5):
        stage.writer.actions.append(NodeDies(stage.at(3.0, 7.0), nodes[1]))
    stage.weather(1.0, REPORTS, WORKERS_SLOW, EFFECTS_SLOW)


def driven_off(stage: Stage) -> None:
    """Nodes are tainted while work in a virtual cluster stands in line there, or has just been sent on."""
    chance = stage.chance
    nodes = stage.nodes((1, 1), (2, 2), (2, 1), (1, 2, 1))
    cluster = stage.opens(chance.choice((flexible(1), flexible(1), flexible(2), flexible(1, 1), flexible(2, 2), fixed(1))))
    for _ in range(chance.choice((1, 2, 2))):
        parent = stage.parent(chance.choice((0.1, 0.5)), after=chance.choice((0.3, 2.0, 4.0)))
        stage.submits(stage.at(0.5, 1.5), cluster, parent)
    for _ in range(chance.choice((2, 3, 5))):
        stage.submits(stage.at(0.5, 4.0), cluster, stage.task(chance.choice((0.2, 1.0, 2.0))))
    for node in chance.sample(nodes, chance.choice((1, 1, len(nodes)))):
        begin = stage.at(1.0, 4.0)
        stage.writer.actions.append(Taints(begin, node, ((TAINT, "true"),)))
        if stage.often(0.3):
            stage.writer.actions.append(Taints(stage.at(begin + 0.5, begin + 3.0), node, (), (TAINT,)))
    stage.weather(0.8, WORKERS_SLOW, REPORTS, EFFECTS_SLOW)


def nested(stage: Stage) -> None:
    """Virtual clusters in each other: work comes and goes in each of them, and they are left in any order."""
    chance = stage.chance
    stage.nodes((2,), (4,), (2, 2), (1, 2))
    outer = stage.opens(chance.choice((flexible(2), flexible(3), flexible(2, 1), flexible(3, 2), fixed(2), fixed(1, 1))))
    inside = [outer]
    for _ in range(chance.choice((1, 1, 2))):
        spec = chance.choice((flexible(1), flexible(2), flexible(1, 1), flexible(2, 1), fixed(1)))
        inside.append(stage.opens(spec, stage.at(0.3, 2.0), chance.choice(inside), idle=(0.0, 0.0, 1.0, 5.0)))
    busy = inside[1:] if stage.often(0.4) else inside
    for _ in range(chance.choice((3, 5, 7))):
        task = stage.task(chance.choice((0.2, 0.5, 2.0)), Options(chance.choice((1.0, 1.0, 2.0, 0.5))))
        stage.submits(stage.at(0.5, 6.0), chance.choice(busy), task)
    for _ in range(chance.choice((0, 0, 1))):
        stage.submits(stage.at(0.5, 3.0), chance.choice(busy), stage.parent(0.5))
    for cluster in chance.sample(inside, chance.choice((0, 1, 1, 2))):
        stage.closes(stage.at(1.0, 6.0), cluster)


def parts(stage: Stage) -> None:
    """Work selects a part of its virtual cluster while others inside of it get that part, or it is left."""
    chance = stage.chance
    stage.writer.parts = True
    stage.nodes((2, 2), (4, 2), (4,), (2, 1, 2))
    spec = fixed(*chance.choice(((1, 1), (2, 1), (2, 2), (1, 2))), policy=chance.choice(("PACK", "SPREAD")), labelled=True)
    cluster = stage.opens(spec)
    for _ in range(chance.choice((3, 4, 6))):
        options = Options(chance.choice((1.0, 1.0, 2.0)), selector=(("part", chance.choice(("0", "1"))),))
        begin, seconds = stage.at(0.5, 4.0), chance.choice((0.3, 1.0, 3.0))
        stage.submits(begin, cluster, stage.parent(seconds, options) if stage.often(0.2) else stage.task(seconds, options))
    for _ in range(chance.choice((1, 1, 2))):
        begin = stage.at(0.8, 4.0)
        inner = stage.opens(chance.choice((fixed(1), flexible(1, 1), flexible(1), fixed(2), flexible(2, 2))), begin, cluster)
        stage.submits(begin + 0.1, inner, stage.task(chance.choice((0.3, 2.0))))
        if stage.often(0.6):
            stage.closes(stage.at(begin + 0.5, begin + 4.0), inner)
    if stage.often(0.4):
        stage.closes(stage.at(2.0, 5.0), cluster)


def crowded(stage: Stage) -> None:
    """Work outside comes back from ``ray.get`` to a node of which a virtual cluster has got a share meanwhile."""
    chance = stage.chance
    stage.nodes((1, 1), (1, 1), (2, 1), (2, 2), (1, 1, 1))
    for _ in range(chance.choice((1, 1, 2))):
        parent = stage.parent(0.1, after=chance.choice((1.0, LONG, LONG)), waits=(0.5, 1.5, 3.0))
        stage.submits(stage.at(0.4, 0.8), "", parent)
    for _ in range(chance.choice((0, 0, 1, 2))):
        stage.submits(stage.at(0.4, 1.5), "", stage.task(chance.choice((1.0, 3.0, LONG))))
    spec = chance.choice(
        (flexible(2, 1), flexible(2, 1), flexible(3, 1), flexible(1, 1), flexible(2), fixed(1), fixed(1, more=1))
    )
    begin = stage.at(0.6, 2.0)
    cluster = stage.opens(spec, begin)
    for _ in range(chance.choice((1, 2, 3))):
        options = Options(chance.choice((1.0, 1.0, None)), labels=pet(chance.choice(ANIMALS)))
        when = stage.at(begin + 0.1, begin + 6.0)
        if stage.often(0.5):
            stage.submits(when, cluster, stage.task(chance.choice((0.3, 2.0)), replace(options, cpus=1.0)))
        elif stage.often(0.8):
            stage.creates(when, cluster, Actor(stage.writer.name("a"), options, 1))
        else:
            stage.writer.actions.append(CreatesGroup(when, stage.writer.name("g"), stage.job, cluster, (1.0,)))


def displaced(stage: Stage) -> None:
    """What has a lease finds its node full when it comes, and has to go elsewhere; what is known of that is old."""
    chance = stage.chance
    nodes = stage.nodes((1, 1), (2, 1), (1, 1, 1), (1,))
    cluster = stage.opens(flexible(chance.choice((1, 2)))) if stage.often(0.3) else ""
    begin = stage.at(0.5, 1.5)
    for _ in range(chance.choice((1, 2, 3))):
        stage.submits(stage.at(begin - 0.1, begin + 0.1), "", stage.task(chance.choice((3.0, 6.0, 8.0, LONG))))
    for _ in range(chance.choice((1, 2, 3))):
        options = Options(1.0, labels=pet(chance.choice(ANIMALS)))
        when = stage.at(begin - 0.1, begin + 0.3)
        if stage.often(0.6):
            actor = Actor(stage.writer.name("a"), options, 1, seconds=chance.choice((None, 2.0, 5.0)))
            stage.creates(when, cluster, actor)
        else:
            stage.submits(when, cluster, stage.task(chance.choice((0.5, 3.0)), options))
    if stage.often(0.5):
        stage.writer.node(stage.at(2.0, 7.0))
    if stage.often(0.3):
        stage.writer.actions.append(Taints(stage.at(1.0, 4.0), chance.choice(nodes), ((TAINT, "true"),)))
    if stage.often(0.3):
        group = stage.writer.name("g")
        stage.writer.actions.append(CreatesGroup(begin, group, stage.job, "", (1.0,)))
        stage.writer.actions.append(RemovesGroup(stage.at(3.0, 9.0), group))
    for when in (begin, begin + 4.0, begin + 6.0):
        stage.weather(when, REPORTS, EFFECTS_SLOW)


def lasting(stage: Stage) -> None:
    """Ray's default actors, which need a CPU to start and none to live: in virtual clusters that shrink, are left and end."""
    chance = stage.chance
    stage.nodes((1,), (2,), (2, 2), (1, 1))
    cluster = stage.opens(
        chance.choice((flexible(1), flexible(2), flexible(1), flexible(2, 1), fixed(1))), idle=(0.0, 0.0, 1.0)
    )
    for _ in range(chance.choice((1, 2, 3))):
        labels = pet(chance.choice(ANIMALS)) if stage.often(0.8) else ()
        actor = Actor(stage.writer.name("a"), Options(None, labels=labels), chance.choice((1, 3)), stage.often(0.3))
        stage.creates(stage.at(0.4, 4.0), cluster, actor)
        for _ in range(chance.choice((0, 1, 2))):
            stage.dies(stage.at(2.0, 9.0), actor.name, 0)
    for _ in range(chance.choice((0, 2, 4))):
        stage.submits(stage.at(0.4, 6.0), chance.choice((cluster, cluster, "")), stage.task(chance.choice((0.3, 1.0, 3.0))))
    if stage.often(0.5):
        stage.closes(stage.at(2.0, 6.0), cluster)
    if stage.often(0.2):
        stage.writer.actions.append(JobEnds(stage.at(4.0, 7.0), stage.job))


def late(stage: Stage) -> None:
    """A driver that was given places stands still for longer than anybody waits for it, while another is given its own."""
    chance = stage.chance
    stage.nodes((1, 1), (2, 1), (2, 2), (1, 1, 1))
    other = stage.another_job()
    cluster = stage.opens(flexible(2)) if stage.often(0.3) else ""
    stops, seconds = stage.at(0.5, 1.5), stage.at(5.0, 45.0)
    stage.writer.actions.append(ProcessStops(stops, stage.job, chance.choice((0, 0, 1, 1, 2, 3)), seconds))

    def create(when: float, inside: str, job: str) -> str:
        animal, away = chance.choice(ANIMALS), chance.choice(ANIMALS)
        rules = (Rule(ACTOR, "type", (away,), False),) if stage.often(0.5) else ()
        options = Options(chance.choice((1.0, 0.5)), labels=pet(animal), rules=rules)
        seconds = chance.choice((None, 3.0, 8.0))
        return stage.creates(when, inside, Actor(stage.writer.name("a"), options, 1, seconds=seconds), job=job)

    for _ in range(chance.choice((1, 2, 3))):
        create(stage.at(stops - 0.1, stops + 0.3), cluster, stage.job)
    for _ in range(chance.choice((2, 4, 6))):
        made = create(stage.at(stops, stops + seconds + 2.0), "", other)
        if stage.often(0.5):
            stage.dies(stage.at(stops + 3.0, stops + seconds + 4.0), made, 0)
    if stage.often(0.3):
        stage.dies(stage.at(stops, stops + seconds), stage.job, 0)
    if stage.often(0.3):
        stage.writer.actions.append(
            ControllerDies(stage.at(stops, stops + seconds), chance.choice((0, 1, 3)), stage.often(0.5))
        )


def suspended(stage: Stage) -> None:
    """Workers that wait in ``ray.get`` in a small virtual cluster, and who asked for them, stand still for longer than anybody
    waits for a sign of them, while others use what they lent."""
    chance = stage.chance
    stage.nodes((1,), (2,), (2, 2), (1, 1))
    cluster = stage.opens(chance.choice((flexible(1, 1), flexible(2, 1), flexible(2), fixed(1), fixed(2))))
    for _ in range(chance.choice((1, 2))):
        at = stage.at(0.4, 1.5)
        waits = stage.parent(stage.at(0.2, 1.0), after=chance.choice((None, 0.5)), waits=(0.5, 2.0, 6.0))
        stage.submits(at, cluster, waits)
        for _ in range(chance.choice((1, 1, 2))):
            whose = chance.choice((waits.name, waits.name, stage.job))
            stops = stage.at(at + 0.2, at + 4.0)
            stage.writer.actions.append(ProcessStops(stops, whose, chance.choice((0, 1, 2, 3)), stage.at(3.0, 20.0)))
    for _ in range(chance.choice((1, 3))):
        stage.submits(stage.at(0.5, 8.0), cluster, stage.task(chance.choice((0.3, 2.0, 5.0))))
    if stage.often(0.3):
        stage.writer.actions.append(ControllerDies(stage.at(1.0, 6.0), chance.choice((0, 1, 3)), stage.often(0.5)))


def scaled(stage: Stage) -> None:
    """What waits makes the cluster grow; machines come late or not at all, idle out and die, while work comes and goes."""
    chance, writer = stage.chance, stage.writer
    writer.machines()
    stage.nodes((1,), (1,), (1, 1), (2,))
    other = stage.another_job() if stage.often(0.3) else stage.job
    cluster = ""
    if stage.often(0.5):
        spec = chance.choice(
            (flexible(2, 1), flexible(3, 2), flexible(4), fixed(1, 1), fixed(2, policy="STRICT_SPREAD"), fixed(2))
        )
        cluster = stage.opens(spec, stage.at(0.2, 4.0), timeout=chance.choice((None, None, 3.0)))
        if stage.often(0.5):
            stage.closes(stage.at(6.0, 15.0), cluster)
    for _ in range(chance.choice((1, 2, 4, 6))):
        begin = chance.choice((stage.at(0.5, 3.0), stage.at(8.0, 20.0)))
        where, job = chance.choice((("", other), ("", stage.job), (cluster, stage.job)))
        options = writer.options(is_actor=False) if stage.often(0.4) else Options(chance.choice((1.0, 1.0, 2.0)))
        kind = chance.random()
        if kind < 0.6:
            task = stage.task(chance.choice((0.5, 3.0, 3.0, 9.0)), options)
            for number in range(chance.choice((1, 1, 3))):
                stage.submits(begin, where, replace(task, name=f"{task.name}-{number}"), job=job)
        elif kind < 0.8:
            made = writer.options(is_actor=True) if stage.often(0.5) else options
            actor = Actor(writer.name("a"), made, chance.choice((0, 2)), seconds=chance.choice((None, 2.0, 8.0)))
            stage.creates(begin, where, actor, job=job)
        elif kind < 0.9:
            stage.submits(begin, where, stage.parent(0.5, waits=(1.0, 4.0)), job=job)
        else:
            group = writer.name("g")
            strategy = chance.choice(("PACK", "STRICT_PACK", "STRICT_SPREAD"))
            writer.actions.append(CreatesGroup(begin, group, stage.job, where, (1.0,) * chance.choice((1, 2)), strategy))
            if stage.often(0.6):
                writer.actions.append(RemovesGroup(stage.at(begin + 1.0, begin + 9.0), group))
    for _ in range(chance.choice((0, 0, 1, 2))):
        writer.goes_wrong(stage.at(1.0, 18.0))


ALL: tuple[Callable[[Stage], None], ...] = (
    together,
    waiting,
    forgetting,
    forgetting,  # much has to come together there
    borrowing,
    driven_off,
    nested,
    parts,
    crowded,
    crowded,
    displaced,
    lasting,
    late,
    suspended,
    scaled,
)
