"""What goes wrong in a life, as values of its script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessDies:
    """The driver of a job, or the worker of a task or actor; ``steps`` more of its protocol's steps are let through before."""

    at: float
    whose: str
    steps: int = 0

    def show(self) -> str:
        return f"the process of {self.whose} dies" + (f" after {self.steps} more steps" if self.steps else "")


@dataclass(frozen=True)
class ProcessStops:
    """The driver of a job, or the worker of a task or actor, takes so many more steps of its protocols and then none for a
    while: it is stopped, and lives. What it is told meanwhile it hears afterwards."""

    at: float
    whose: str
    steps: int
    seconds: float

    def show(self) -> str:
        return f"the process of {self.whose} stands still for {self.seconds:g} s after {self.steps} more steps"


@dataclass(frozen=True)
class ControllerDies:
    """After so many more of its effects; ``told``: the last of them was done and it heard of it. Or as soon as it has answered
    a call of the kind ``answers``."""

    at: float
    effects: int = 0
    told: bool = True
    answers: str = ""

    def show(self) -> str:
        if self.answers:
            return f"the controller dies when it has answered the next {self.answers}"
        when = f" after {self.effects} more effects{'' if self.told else ', the last of which it does not hear of'}"
        return f"the controller dies{when if self.effects else ''}"


REPORTS, FEEDS_LOST, FEEDS_DOUBLE, FEEDS_LATE = "reports are late", "feeds lose", "feeds double", "feeds are late"
CALLS_DOUBLE, CALLS_SLOW = "calls arrive twice", "calls are slow"
EFFECTS_SLOW, EFFECTS_FAIL, WORKERS_SLOW = "effects are slow", "effects fail", "workers start slowly"
MACHINES_FAIL, MACHINES_SLOW = "machines cannot be had", "machines start slowly"
KINDS = (
    REPORTS,
    FEEDS_LOST,
    FEEDS_DOUBLE,
    FEEDS_LATE,
    CALLS_DOUBLE,
    CALLS_SLOW,
    EFFECTS_SLOW,
    EFFECTS_FAIL,
    WORKERS_SLOW,
)
OF_MACHINES = (MACHINES_FAIL, MACHINES_SLOW)


@dataclass(frozen=True)
class Weather:
    """For a while something is worse than usual."""

    at: float
    kind: str
    seconds: float

    def show(self) -> str:
        return f"for {self.seconds:g} s {self.kind}"
