"""What a run leaves behind: who ran where and when, who waited and why, and how full every node was.

Times are seconds of the virtual clock. An end of None means: still so when the run ended.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from remora.model.resources import Resources

WAITING = "WAITING"
RUNNING = "RUNNING"
FINISHED = "FINISHED"
REFUSED = "REFUSED"

GROUP = "placement group"


class Steps:
    """A step function of time, kept as the moments at which it changes."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[int] = []

    @property
    def last(self) -> int:
        return self.values[-1] if self.values else 0

    def add(self, at: float, delta: int) -> None:
        """From ``at`` on it is ``delta`` more. Of several changes at one moment only the outcome is kept."""
        value = self.last + delta
        if self.times and self.times[-1] == at:
            self.values[-1] = value
            if value == (self.values[-2] if len(self.values) > 1 else 0):
                self.times.pop()
                self.values.pop()
        elif delta:
            self.times.append(at)
            self.values.append(value)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        return zip(self.times, self.values, strict=True)

    def value_at(self, at: float) -> int:
        """The value from that moment on."""
        index = bisect.bisect_right(self.times, at)
        return self.values[index - 1] if index else 0

    def area(self, until: float) -> float:
        """The value, summed over time."""
        ends = [*self.times[1:], max(until, self.times[-1])] if self.times else []
        return sum(value * (end - start) for (start, value), end in zip(self, ends, strict=True))


@dataclass(slots=True)
class Stay:
    """Somewhere from then till then: one node, or for a placement group one a bundle."""

    nodes: tuple[str, ...]
    start: float
    end: float | None = None
    outcome: str = ""


@dataclass(slots=True)
class Wait:
    """Nowhere from then till then; ``reasons`` are (since, why), as far as they were looked at."""

    start: float
    end: float | None = None
    reasons: list[tuple[float, str]] = field(default_factory=list)
    suggestions: tuple[str, ...] = ()


@dataclass(slots=True)
class History:
    """One actor, task or placement group."""

    name: str
    kind: str
    submitted: float
    namespace: str = "default"
    cluster: str | None = None
    resources: tuple[Resources, ...] = ()
    state: str = WAITING
    refusal: str = ""
    stays: list[Stay] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    @property
    def node(self) -> str | None:
        """Where it is, or was last."""
        return self.stays[-1].nodes[0] if self.stays else None

    @property
    def reason(self) -> str:
        """Why it waits now, or waited last; or why it was refused."""
        reasons = [reason for wait in self.waits for _, reason in wait.reasons]
        return self.refusal or (reasons[-1] if reasons else "")

    def waited(self, until: float) -> float:
        return sum((until if wait.end is None else wait.end) - wait.start for wait in self.waits)


@dataclass(frozen=True, slots=True)
class Share:
    """A virtual node as it was at one moment."""

    vnode_id: str
    node: str
    parent: str
    total: dict[str, float]
    available: dict[str, float]


@dataclass(slots=True)
class ClusterStep:
    """A virtual cluster as it was from one moment on."""

    at: float
    state: str
    shares: tuple[Share, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class ClusterHistory:
    """One virtual cluster."""

    name: str
    cluster_id: str
    parent: str | None
    priority: int
    submitted: float
    ready: float | None = None
    ended: float | None = None
    refusal: str = ""
    steps: list[ClusterStep] = field(default_factory=list)
    suggestions: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return REFUSED if self.refusal else self.steps[-1].state


@dataclass(slots=True)
class NodeHistory:
    """One node: when it was there, the most it had then, and what of it was in use by work."""

    node_id: str
    total: Resources
    up: list[tuple[float, float | None]] = field(default_factory=list)
    used: dict[str, Steps] = field(default_factory=dict)

    def join(self, at: float, total: Resources) -> None:
        """It is there, for the first time or again and perhaps of another size."""
        self.total = Resources({name: max(self.total.get(name, 0), total.get(name, 0)) for name in {*self.total, *total}})
        self.up.append((at, None))

    def add(self, at: float, resources: Resources, sign: int) -> None:
        for name, units in resources.pairs:
            self.used.setdefault(name, Steps()).add(at, sign * units)


@dataclass(slots=True)
class MachineEvent:
    """Machines that were asked for, came or went; ``whom`` is for whom, or why."""

    at: float
    what: str
    node_type: str
    count: int
    whom: str = ""


@dataclass(slots=True)
class Machines:
    """The machines of one type over time: there, and on their way."""

    node_type: str
    cost: float | None = None
    up: Steps = field(default_factory=Steps)
    starting: Steps = field(default_factory=Steps)

    def seconds(self, until: float) -> float:
        """How long machines were there, added up."""
        return self.up.area(until)

    def spent(self, until: float) -> float | None:
        """What they cost, where a cost is that of an hour."""
        return None if self.cost is None else self.cost * self.seconds(until) / 3600


@dataclass(slots=True)
class Happening:
    """One event of the scenario, and what came of it."""

    at: float
    what: str
    refusal: str = ""


@dataclass(slots=True)
class Run:
    """A whole run."""

    scenario: str
    description: str
    seed: int
    ended: float = 0.0
    events: int = 0
    work: list[History] = field(default_factory=list)
    clusters: list[ClusterHistory] = field(default_factory=list)
    nodes: dict[str, NodeHistory] = field(default_factory=dict)
    happenings: list[Happening] = field(default_factory=list)
    waiting: Steps = field(default_factory=Steps)
    machines: dict[str, Machines] = field(default_factory=dict)
    machine_events: list[MachineEvent] = field(default_factory=list)
