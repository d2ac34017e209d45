"""The contract between Remora and a cluster: see it, put tokens on nodes, remember things; who starts its machines is a
contract of its own (``scaler``).

The contract suite (tests/live/test_port.py) runs against every body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from remora.port.scaler import Scaler


@dataclass(frozen=True)
class NodeView:
    """One live node as the cluster reports it, tokens included. ``node_type`` is what an autoscaler started it as, empty where
    none did; a node that is ``draining`` is about to be ended, and takes nothing new. ``name`` is what ``ray start`` called it,
    often its address."""

    node_id: str
    address: str
    labels: Mapping[str, str]
    total: Mapping[str, float]
    available: Mapping[str, float]
    is_head: bool = False
    node_type: str = ""
    draining: bool = False
    name: str = ""


@dataclass(frozen=True)
class Demand:
    """Work that waits: so many of one shape, or a placement group with a shape a bundle and its strategy."""

    shape: Mapping[str, float]
    count: int
    bundles: tuple[Mapping[str, float], ...] = ()
    strategy: str = ""

    @property
    def shapes(self) -> tuple[Mapping[str, float], ...]:
        return self.bundles or (self.shape,)


WAITING, RUNNING, ENDED = "waiting", "running", "ended"
TASK, ACTOR, GROUP, JOB, WORKER = "task", "actor", "placement group", "job", "worker"

CANCELLED = "CANCELLED"
"""The ``detail`` of a task that somebody has cancelled."""


@dataclass(frozen=True)
class Work:
    """A task, an actor or a placement group as the cluster knows it.

    ``shapes`` is what it asks for: one mapping, or one a bundle; ``detail`` is the cluster's own word for its state.
    ``restarts`` is how often an actor was started again: of two messages about it, that with more is newer.
    """

    kind: str
    work_id: str
    name: str
    job_id: str
    state: str
    detail: str
    shapes: tuple[Mapping[str, float], ...]
    node_ids: tuple[str, ...] = ()
    strategy: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0


@dataclass(frozen=True)
class Observation:
    nodes: tuple[NodeView, ...]
    demands: tuple[Demand, ...] = field(default=())


class Port(Protocol):
    @property
    def scaler(self) -> Scaler | None:
        """Whoever starts and ends machines here; None where nobody does."""
        ...

    def observe(self) -> Observation:
        """Return every live node, as it was a moment ago, and all demand that waits.

        A node of which nothing has changed since it was last returned is the very same ``NodeView``; where nothing has changed
        of any node, ``nodes`` is the very same tuple: so whoever looks often need not compare.
        """
        ...

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        """Set totals of custom resources on a live node; 0 removes one. Returns all totals of the node, also where none is set.

        A total never goes below what is in use: it is clamped to it, and what is given back later stays until it is
        resized again. Raises ``NodeGoneError`` when the node is not alive.
        """
        ...

    def put(self, key: str, value: bytes | None) -> None:
        """Remember, beyond the death of the caller; None forgets, without error when there is nothing."""
        ...

    def get(self, key: str) -> bytes | None: ...

    def keys(self, prefix: str) -> list[str]: ...

    def find(self, id_or_name: str | None) -> list[Work]:
        """The task, actor or placement group of this id or name; for the id of a job, the job and all of it that has not
        ended; for None, every actor and every job that has not ended."""
        ...

    def ended(self, worker_ids: Iterable[str]) -> list[str]:
        """Which of these worker processes have ended: all whose raylet has given away again what they held."""
        ...

    def restart(self, actor_id: str) -> None:
        """End the process of an actor as a failure would; it restarts if it may."""
        ...

    def give_up(self, shapes: Iterable[Mapping[str, float]]) -> None:
        """Let the tasks and actors fail, for good, that wait for just these resources, as the cluster itself lets those fail
        that it can never schedule. No error when there are none."""
        ...

    def watch(self, wake: Callable[[Work | None], None]) -> Callable[[], None]:
        """Call ``wake``, from any thread, soon after something has come, changed or gone: with the actor or the job, with a
        worker process that has ended, or with None when it was something else or everything has to be looked at. Returns how
        to stop that."""
        ...

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        """Take these amounts on a node and keep them, also beyond the life of the caller, under a name of one's own.

        Returns when they are taken, or False when they could not be; then nothing is.
        """
        ...

    def let_go(self, name: str) -> None:
        """Give back what is held under a name; no error when there is nothing."""
        ...


class NodeGoneError(Exception):
    """The node is not alive (any more)."""
