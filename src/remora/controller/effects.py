"""What the controller wants done outside of itself, as values: writes to nodes and to the store, and questions to the cluster.

``Controller.plan`` returns them; whoever performs them tells what came of each with ``Controller.done``. Effects of one *lane*
(a node, a key) are never in flight together, so they cannot overtake each other; effects of different lanes may be performed at
the same time and in any order. What has to come after something else is planned when that is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from remora.port.contract import NodeGoneError, Port
from remora.port.scaler import Scaler
from remora.wire.tokens import TAKEN


@dataclass(frozen=True, slots=True)
class Resize:
    """Set totals of tokens on a node. Answered with all totals of the node; with no amounts it is only a question."""

    node_id: str
    amounts: Mapping[str, float]

    @property
    def lane(self) -> str:
        return self.node_id


@dataclass(frozen=True, slots=True)
class Hold:
    """Take these amounts on a node and keep them under a name. Answered with whether they were free."""

    name: str
    node_id: str
    amounts: Mapping[str, float]

    @property
    def lane(self) -> str:
        return f"hold {self.node_id}"


@dataclass(frozen=True, slots=True)
class LetGo:
    """Give back what is held under a name on a node."""

    name: str
    node_id: str

    @property
    def lane(self) -> str:
        return f"hold {self.node_id}"


@dataclass(frozen=True, slots=True)
class Put:
    """Remember a value beyond our own life; None forgets it."""

    key: str
    value: bytes | None

    @property
    def lane(self) -> str:
        return f"kv {self.key}"


@dataclass(frozen=True, slots=True)
class Find:
    """Look something up in the cluster's tables. Answered with a list of ``Work``."""

    id_or_name: str

    @property
    def lane(self) -> str:
        return f"find {self.id_or_name}"


@dataclass(frozen=True, slots=True)
class FindAll:
    """Look up every actor and every job that has not ended. Answered with a list of ``Work``; ``asked_at`` is when this was
    planned: what began later may be missing."""

    asked_at: float

    @property
    def lane(self) -> str:
        return "find all"


@dataclass(frozen=True, slots=True)
class FindEnded:
    """Ask which of these workers have ended. Answered with a list of their ids."""

    worker_ids: tuple[str, ...]

    @property
    def lane(self) -> str:
        return f"ended {','.join(self.worker_ids)}"


@dataclass(frozen=True, slots=True)
class Restart:
    """End the process of an actor as a failure would."""

    actor_id: str

    @property
    def lane(self) -> str:
        return f"restart {self.actor_id}"


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a placement group that nobody knows of any more."""

    group_id: str

    @property
    def lane(self) -> str:
        return f"group {self.group_id}"


@dataclass(frozen=True, slots=True)
class ReadNodeTypes:
    """Read which machines can be started. Answered with ``NodeTypes``."""

    @property
    def lane(self) -> str:
        return "node types"


@dataclass(frozen=True, slots=True)
class LookAtMachines:
    """See what was asked for in our name, what is coming, and what failed. Answered with a ``Survey``."""

    @property
    def lane(self) -> str:
        return "machines"


@dataclass(frozen=True, slots=True)
class AskForMachines:
    """Ask for so many machines of each type beside the nodes that are there, in place of all that was asked before."""

    wanted: Mapping[str, int]
    nodes: Mapping[str, str]
    head: str

    @property
    def lane(self) -> str:
        return "machines"


@dataclass(frozen=True, slots=True)
class Nudge:
    """Make a node idle that only our holds keep busy: a token that is resized counts as idle, whatever holds it. Answered with
    all totals of the node, which are these again."""

    node_id: str
    amounts: Mapping[str, float]

    @property
    def lane(self) -> str:
        return self.node_id


@dataclass(frozen=True, slots=True)
class FailWaiting:
    """Let everything of these shapes that waits fail: it waits for nodes that will never hold it."""

    shapes: tuple[frozenset[tuple[str, float]], ...]

    @property
    def lane(self) -> str:
        return "give up"


Effect = Union[  # noqa: UP007 - used at run time
    Resize,
    Hold,
    LetGo,
    Put,
    Find,
    FindAll,
    FindEnded,
    Restart,
    RemoveGroup,
    ReadNodeTypes,
    LookAtMachines,
    AskForMachines,
    Nudge,
    FailWaiting,
]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an effect: its answer, or that its node is gone, or an error. After an error it may have happened or not."""

    effect: Effect
    answer: Any = None
    gone: bool = False
    error: str = ""


def perform(port: Port, effect: Effect) -> Done:
    """Do it, and return what came of it. Nothing that a cluster does raises an exception here."""
    try:
        return Done(effect, _perform(port, effect))
    except NodeGoneError:
        return Done(effect, gone=True)
    except Exception as error:  # noqa: BLE001 - one node, key or table that fails must not stop the others
        return Done(effect, error=f"{type(error).__name__}: {error}")


def _perform(port: Port, effect: Effect) -> Any:
    match effect:
        case Resize(node_id, amounts):
            return port.resize(node_id, amounts)
        case Hold(name, node_id, amounts):
            return port.hold(name, node_id, amounts)
        case LetGo(name, _) | RemoveGroup(name):
            return port.let_go(name)
        case Put(key, value):
            return port.put(key, value)
        case Find(id_or_name):
            return port.find(id_or_name)
        case FindAll():
            return port.find(None)
        case FindEnded(worker_ids):
            return port.ended(worker_ids)
        case Restart(actor_id):
            return port.restart(actor_id)
        case ReadNodeTypes():
            return _scaler(port).node_types()
        case LookAtMachines():
            return _scaler(port).survey()
        case AskForMachines(wanted, nodes, head):
            return _scaler(port).ask(wanted, nodes, head)
        case FailWaiting(shapes):
            return port.give_up([dict(shape) for shape in shapes])
        case Nudge(node_id, amounts):
            port.resize(node_id, {token: amount + TAKEN for token, amount in amounts.items()})
            return port.resize(node_id, amounts)


def _scaler(port: Port) -> Scaler:
    scaler = port.scaler
    assert scaler is not None, "nobody starts machines here"
    return scaler
