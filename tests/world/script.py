"""The script of a life: what people and programs do, and what goes wrong, each at its time. Plain values that can be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Union

from tests.world.faults import ControllerDies, ProcessDies, ProcessStops, Weather

from remora.model.operators import LabelMatchOperator
from remora.model.selectors import LabelMatchExpression
from remora.model.spreading import spread
from remora.model.strategies import (
    ACTOR,
    OBJECT,
    STAY,
    TASK,
    actor_affinity,
    affinity,
    anti_affinity,
    object_affinity,
    task_affinity,
)

Pairs = tuple[tuple[str, str], ...]


# What work asks for


@dataclass(frozen=True)
class Rule:
    """Beside or away from work with a label; or, with ``handle``, from the actor of that name itself."""

    owner: str = ACTOR
    key: str = ""
    values: tuple[str, ...] = ()
    near: bool = True
    soft: bool = False
    on_failover: str = STAY
    handle: str = ""
    symmetric: bool = False
    within: str = ""  # the label whose domains it is about; empty: the node

    def show(self) -> str:
        whom = f"the actor {self.handle}" if self.handle else f"{self.owner}s with {self.key} in {'/'.join(self.values)}"
        failover = f" ({self.on_failover})" if self.on_failover != STAY else ""
        how = ("softly " if self.soft else "") + ("mutually " if self.symmetric else "")
        within = f" within {self.within}" if self.within else ""
        return f"{how}{'near' if self.near else 'away from'} {whom}{within}{failover}"


@dataclass(frozen=True)
class Options:
    """``cpus`` None is Ray's default: one CPU, of which an actor needs to hold nothing while it lives."""

    cpus: float | None = 1.0
    gpus: float = 0.0
    selector: Pairs = ()
    fallbacks: tuple[Pairs, ...] = ()
    tolerations: Pairs = ()
    labels: Pairs = ()
    rules: tuple[Rule, ...] = ()
    spread: str = ""  # the label over whose domains it is spread

    def written(self, actor_id: Callable[[str], str | None]) -> dict[str, Any]:
        """As a user writes them; ``actor_id`` finds the id of the actor of a name."""
        written: dict[str, Any] = {}
        if self.selector:
            written["label_selector"] = dict(self.selector)
        if self.fallbacks:
            written["fallback_strategy"] = [{"label_selector": dict(each)} for each in self.fallbacks]
        if self.tolerations:
            written["tolerations"] = dict(self.tolerations)
        if self.labels:
            written["labels"] = dict(self.labels)
        strategies = [made for rule in self.rules if (made := _strategy(rule, actor_id)) is not None]
        if self.spread:
            strategies.append(spread(over=self.spread))
        if strategies:
            written["affinity"] = strategies
        return written

    def show(self) -> str:
        cpus = "the default CPU" if self.cpus is None else f"{self.cpus:g} CPU"
        parts = [cpus + (f" and {self.gpus:g} GPU" if self.gpus else "")]
        if self.selector:
            parts.append(f"on {_show(self.selector)}" + "".join(f" else {_show(each) or 'any'}" for each in self.fallbacks))
        if self.tolerations:
            parts.append(f"tolerates {_show(self.tolerations)}")
        if self.labels:
            parts.append(f"labelled {_show(self.labels)}")
        if self.spread:
            parts.append(f"spread over {self.spread}")
        return ", ".join([*parts, *(rule.show() for rule in self.rules)])


def _strategy(rule: Rule, actor_id: Callable[[str], str | None]) -> Any:
    if rule.handle:
        found = actor_id(rule.handle)
        if found is None:
            return None
        make = affinity if rule.near else anti_affinity
        term = make(found, rule.soft, topology=rule.within or None)
        return actor_affinity(term, on_failover=rule.on_failover)
    operator = LabelMatchOperator.IN if rule.near else LabelMatchOperator.NOT_IN
    term = LabelMatchExpression(rule.key, operator, rule.values, rule.soft, rule.within or None)
    if rule.owner == OBJECT:
        return object_affinity(term)
    if rule.owner == TASK:
        return task_affinity(term, symmetric=rule.symmetric)
    return actor_affinity(term, on_failover=rule.on_failover, symmetric=rule.symmetric)


def _show(pairs: Pairs) -> str:
    return " ".join(f"{key}={value}" for key, value in pairs)


@dataclass(frozen=True)
class Actor:
    """``seconds`` until its user ends it; None while its job lives. Its constructor takes a while."""

    name: str
    options: Options = field(default_factory=Options)
    max_restarts: int = 0
    detached: bool = False
    seconds: float | None = None
    constructor: float = 0.05
    group: str = ""

    def show(self) -> str:
        restarts = f", restarts {self.max_restarts} times" if self.max_restarts else ""
        ends = f", for {self.seconds:g} s" if self.seconds is not None else ""
        where = f" in {self.group}" if self.group else ""
        return f"actor {self.name}{where} ({self.options.show()}{restarts}{', detached' if self.detached else ''}{ends})"


@dataclass(frozen=True)
class Task:
    """Runs, submits its children, waits for them (``gets``) and runs on, for as long as before or ``after``. ``inside`` is a
    virtual cluster around them."""

    name: str
    options: Options = field(default_factory=Options)
    seconds: float = 0.2
    children: tuple[Task | Actor, ...] = ()
    gets: bool = True
    timeout: float | None = None
    retries: int = 3
    group: str = ""
    inside: str = ""
    after: float | None = None

    def show(self) -> str:
        where = f" in {self.group}" if self.group else ""
        text = f"task {self.name}{where} ({self.options.show()}; {self.seconds:g} s)"
        if self.inside:
            text += f" opens {self.inside},"
        if self.children:
            what = ", ".join(child.show() for child in self.children)
            limit = f" for {self.timeout:g} s" if self.timeout is not None else ""
            text += f" that submits [{what}]" + (f" and waits{limit}" if self.gets else "")
        return text + (f", then runs {self.after:g} s" if self.after is not None else "")


# What happens


@dataclass(frozen=True)
class NodeJoins:
    at: float
    node: str
    resources: tuple[tuple[str, float], ...]
    labels: Pairs = ()

    def show(self) -> str:
        what = ", ".join(f"{amount:g} {name}" for name, amount in self.resources)
        return f"node {self.node} joins with {what}" + (f", labelled {_show(self.labels)}" if self.labels else "")


@dataclass(frozen=True)
class Machine:
    """A type of machine that an autoscaler may start."""

    name: str
    cpus: float
    gpus: float = 0.0
    labels: Pairs = ()
    least: int = 0
    most: int | None = 2

    def show(self) -> str:
        what = f"{self.cpus:g} CPU" + (f", {self.gpus:g} GPU" if self.gpus else "")
        count = f"{self.least} to {self.most if self.most is not None else 'any number'}"
        return f"{self.name} ({what}{', ' + _show(self.labels) if self.labels else ''}; {count})"


@dataclass(frozen=True)
class HasAutoscaler:
    """There is one, before anything else."""

    at: float
    machines: tuple[Machine, ...]
    most: int | None = None

    def show(self) -> str:
        together = f", at most {self.most} together" if self.most is not None else ""
        return f"an autoscaler may start {', '.join(each.show() for each in self.machines)}{together}"


@dataclass(frozen=True)
class MachineDies:
    """One of those that an autoscaler has started; ``turn`` says which."""

    at: float
    turn: float

    def show(self) -> str:
        return "a machine dies"


@dataclass(frozen=True)
class NodeDies:
    at: float
    node: str

    def show(self) -> str:
        return f"node {self.node} dies"


@dataclass(frozen=True)
class JobBegins:
    at: float
    job: str
    node: str

    def show(self) -> str:
        return f"job {self.job} begins on {self.node}"


@dataclass(frozen=True)
class JobEnds:
    at: float
    job: str

    def show(self) -> str:
        return f"job {self.job} ends"


@dataclass(frozen=True)
class OpensCluster:
    at: float
    name: str
    job: str
    parent: str
    spec: str
    priority: int = 0
    timeout: float | None = None
    idle_seconds: float = 5.0

    def show(self) -> str:
        where = f" in {self.parent}" if self.parent else ""
        patience = f" within {self.timeout:g} s" if self.timeout is not None else ""
        return f"job {self.job} opens virtual cluster {self.name}{where}{patience}: {self.spec} (idle {self.idle_seconds:g} s)"


@dataclass(frozen=True)
class ClosesCluster:
    at: float
    name: str

    def show(self) -> str:
        return f"virtual cluster {self.name} is left"


@dataclass(frozen=True)
class Resizes:
    """An operator gives a virtual cluster another maximum."""

    at: float
    name: str
    cpus: float

    def show(self) -> str:
        return f"the maximum of virtual cluster {self.name} is set to {self.cpus:g} CPU"


@dataclass(frozen=True)
class Prioritizes:
    """An operator gives a virtual cluster, which may wait, another priority."""

    at: float
    name: str
    priority: int

    def show(self) -> str:
        return f"the priority of virtual cluster {self.name} is set to {self.priority}"


@dataclass(frozen=True)
class Submits:
    at: float
    job: str
    cluster: str
    task: Task

    def show(self) -> str:
        return f"job {self.job} submits{' in ' + self.cluster if self.cluster else ''}: {self.task.show()}"


@dataclass(frozen=True)
class Streams:
    """A driver always has so many of a task under way: whenever one is over the next is there already."""

    at: float
    job: str
    cluster: str
    task: Task
    width: int

    def show(self) -> str:
        where = " in " + self.cluster if self.cluster else ""
        return f"job {self.job} has{where} {self.width} at a time, one after the other: {self.task.show()}"


@dataclass(frozen=True)
class Creates:
    at: float
    job: str
    cluster: str
    actor: Actor

    def show(self) -> str:
        return f"job {self.job} creates{' in ' + self.cluster if self.cluster else ''}: {self.actor.show()}"


@dataclass(frozen=True)
class CreatesGroup:
    at: float
    name: str
    job: str
    cluster: str
    bundles: tuple[float, ...]
    strategy: str = "PACK"
    selector: Pairs = ()
    tolerations: Pairs = ()
    fallback: tuple[float, ...] = ()
    topology: Pairs = ()

    def show(self) -> str:
        where = f" in {self.cluster}" if self.cluster else ""
        sizes = ", ".join(f"{cpus:g} CPU" for cpus in self.bundles)
        more = (f", on {_show(self.selector)}" if self.selector else "") + (
            f", tolerates {_show(self.tolerations)}" if self.tolerations else ""
        )
        other = f", else {', '.join(f'{cpus:g} CPU' for cpus in self.fallback)}" if self.fallback else ""
        other += f", over {_show(self.topology)}" if self.topology else ""
        return f"job {self.job} creates{where} placement group {self.name} ({self.strategy}: {sizes}{more}{other})"


@dataclass(frozen=True)
class RemovesGroup:
    at: float
    name: str

    def show(self) -> str:
        return f"placement group {self.name} is removed"


@dataclass(frozen=True)
class PutsObject:
    """A driver puts an object with labels on its node, and drops it after a while."""

    at: float
    name: str
    job: str
    labels: Pairs
    seconds: float

    def show(self) -> str:
        return f"job {self.job} puts object {self.name}, labelled {_show(self.labels)}, for {self.seconds:g} s"


@dataclass(frozen=True)
class EndsActor:
    at: float
    actor: str

    def show(self) -> str:
        return f"actor {self.actor} is killed by its user"


@dataclass(frozen=True)
class Labels:
    at: float
    node: str
    set_: Pairs
    drop: tuple[str, ...] = ()

    def show(self) -> str:
        return f"node {self.node} is labelled {_show(self.set_)} {' '.join(f'{key}-' for key in self.drop)}".rstrip()


@dataclass(frozen=True)
class Taints:
    at: float
    node: str
    set_: Pairs
    drop: tuple[str, ...] = ()

    def show(self) -> str:
        return f"node {self.node} is tainted {_show(self.set_)} {' '.join(f'{key}-' for key in self.drop)}".rstrip()


Action = Union[  # noqa: UP007 - used at run time
    HasAutoscaler,
    MachineDies,
    NodeJoins,
    NodeDies,
    JobBegins,
    JobEnds,
    OpensCluster,
    ClosesCluster,
    Resizes,
    Prioritizes,
    Submits,
    Streams,
    Creates,
    CreatesGroup,
    RemovesGroup,
    PutsObject,
    EndsActor,
    Labels,
    Taints,
    ProcessDies,
    ProcessStops,
    ControllerDies,
    Weather,
]
Script = tuple[Action, ...]


def show(script: Script) -> str:
    return "\n".join(f"  {action.at:7.3f}  {action.show()}" for action in script)
