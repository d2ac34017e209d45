"""The calls of the controller: what clients may ask it or tell it, as values, and how they travel.

A call that changes something either carries ``ask``, an id of its own, or says something that is as true the second time: each
may arrive twice, because Ray sends a call again whose answer was lost.
"""

from __future__ import annotations

import uuid
from typing import Any, Union

import msgspec

from remora import errors
from remora.errors import ControllerError, RemoraError
from remora.wire.group_plans import GroupPlan
from remora.wire.timing import RENEW_SECONDS

Amounts = dict[str, float]
Pairs = tuple[tuple[str, str], ...]


class Call(msgspec.Struct, frozen=True, tag=True):
    """One question or message."""


class Who(msgspec.Struct, frozen=True):
    """A worker, the virtual cluster that it works in, its node, and what it holds of the cluster's share there; ``part`` is the
    part of the cluster that its class selects, of which it holds as much.

    ``turn`` is when it began to say this, by its own clock: what is heard of it from before is old, and may be a message that
    arrives for the second time."""

    worker_id: str
    cluster_id: str
    node_id: str
    amounts: Amounts
    turn: float = 0.0
    part: str = ""


class By(msgspec.Struct, frozen=True):
    """Who changes something, by what (``remora taint``, ``the page``), from where and why: for the journal. What nobody said is
    empty."""

    who: str = ""
    through: str = ""
    origin: str = ""
    reason: str = ""


class Hint(msgspec.Struct, frozen=True):
    """So many of one shape are on their way: the encoded class, what one of them takes, how many."""

    spec: bytes
    resources: Amounts
    count: int


# Classes and leases


class EnsureClass(Call, frozen=True):
    """Somebody is about to use this class. Answered with the ids of the nodes that offer it."""

    spec: bytes


class Place(Call, frozen=True):
    """Give one actor or task a slot, and the node that was chosen for it if there is one now: ``[slot, node id or None]``.

    ``worker_id`` is the process that asks: the tasks that it asked for end with it."""

    ask: str
    request: str
    job_id: str
    worker_id: str = ""


class Claim(Call, frozen=True):
    """The actor that a slot was given for has been created. ``ask`` as for ``GiveUp``."""

    slot: str
    actor_id: str
    ask: str = ""


class GiveUp(Call, frozen=True):
    """The work that a slot was given for was never started, or has ended. ``ask`` is the question that it was the answer to: a
    slot may be somebody else's by now."""

    slot: str
    ask: str


class PutObject(Call, frozen=True):
    """An object with labels lies on a node."""

    object_id: str
    labels: Pairs
    node_id: str
    namespace: str
    job_id: str


class DropObject(Call, frozen=True):
    """Nobody refers to an object any more."""

    object_id: str


# Placement groups


class MakeGroup(Call, frozen=True):
    """Create a placement group, now or as soon as it fits. Answered with ``{"state", "reason", "suggestions", "error",
    "shapes"}``: whether it is there, waits and why, or what GCS refuses it for; the shapes of one that waits in GCS. The host
    of the controller does that, by what follows."""

    plan: GroupPlan


class DropGroup(Call, frozen=True):
    """Remove a placement group that waits to be created; or that has just been created after all. The host does that too."""

    group_id: str


class OfferGroup(Call, frozen=True):
    """Say which option of a placement group to create now, where its tokens are, and in a virtual cluster its share there.
    ``ask`` is the id of the group. Answered with ``{"option", "nodes", "share_id", "reason", "suggestions"}``."""

    ask: str
    group: bytes
    job_id: str


class ConfirmGroup(Call, frozen=True):
    """GCS has reserved the group that a share was offered for. ``group_id`` was the ``ask``: the name of a share may be that of
    somebody else's by now."""

    share_id: str
    group_id: str


class ReleaseGroup(Call, frozen=True):
    """A group has ended, or will not be created. ``share_or_group`` is the id of its share or its own; with a share, ``ask`` is
    the id of the group that it was offered for: others may have that share by now."""

    share_or_group: str
    ask: str = ""


# Virtual clusters


class CreateCluster(Call, frozen=True):
    """Reserve a virtual cluster, or queue it. Answered with its id, state, place in the queue and the reason.

    ``worker_id`` is the process that asks: its cluster ends with it."""

    ask: str
    spec: str
    parent: str | None
    job_id: str
    priority: int
    tolerations: list[Any]
    idle_seconds: float
    worker_id: str = ""


class LookAtCluster(Call, frozen=True):
    """Say how far a virtual cluster is, as ``CreateCluster``."""

    cluster_id: str


class CloseCluster(Call, frozen=True):
    """Its owner needs a virtual cluster no more. ``cluster_id`` is its id, or better the question that it was made for: the id
    may be another's by now. ``unused``: nothing was ever submitted in it."""

    cluster_id: str
    unused: bool


class EndCluster(Call, frozen=True):
    """Somebody else ends a virtual cluster: what runs in it finishes, and everything is given back. With ``queued`` only one
    that still waits for its minimum. ``ask``: what was ended for it is not ended again, whoever has the name by then."""

    cluster_id: str
    queued: bool
    ask: str = ""
    by: By | None = None


class ResizeCluster(Call, frozen=True):
    """Give a virtual cluster other maxima of these resources; None takes one away. Answered with how it is, when that is
    remembered. ``ask`` as for ``LabelNode``."""

    cluster_id: str
    most: dict[str, float | None]
    ask: str = ""
    by: By | None = None


class SetPriority(Call, frozen=True):
    """Give a virtual cluster that waits for its minimum another priority. Answered as ``ResizeCluster``."""

    cluster_id: str
    priority: int
    ask: str = ""
    by: By | None = None


class WantShares(Call, frozen=True):
    """This is on its way in virtual clusters."""

    hints: list[Hint]


class RequestShares(Call, frozen=True):
    """A virtual cluster should have room for all of this together."""

    cluster_id: str
    hints: list[Hint]


class Lend(Call, frozen=True):
    """A worker waits in ``ray.get``: others may use its share. Said again and again while it waits."""

    who: Who


class SentOn(Call, frozen=True):
    """A worker has submitted its task once more and waits for that: it holds its token and uses nothing."""

    who: Who


class Reclaim(Call, frozen=True):
    """A worker has what it waited for. Answered with ``GO`` when it may use its share again, with None to be asked again.
    ``patience`` is how long the controller may keep the question."""

    who: Who
    again: bool
    patience: float = RENEW_SECONDS


class Enter(Call, frozen=True):
    """Something wants to start where its cluster is full. Answered with ``GO``, ``ELSEWHERE`` or None, to be asked again.

    ``dead`` are workers that it found to have ended on its node while their share was idle. ``patience`` as for ``Reclaim``.
    """

    who: Who
    again: bool
    may_go: bool
    dead: list[str]
    patience: float = RENEW_SECONDS


# People and programs that look or change something


class FindNode(Call, frozen=True):
    """Find a node by its id, a beginning of its id, or its address; by ``word`` if it is any of them, or its name. Answered
    with its id."""

    node_id: str | None
    address: str | None
    word: str | None = None


class LabelNode(Call, frozen=True):
    """Set and drop labels of a node. ``ask``: what was done for it already is not done again, when others changed it since.
    ``only_if``: what is dropped has to have these values; nothing is done unless all can be."""

    node_id: str
    set_: Pairs
    drop: list[str]
    ask: str = ""
    by: By | None = None
    only_if: Pairs = ()


class TaintNode(Call, frozen=True):
    """Set and drop taints of a node. Answered when nothing that does not tolerate them can start there any more.
    ``ask`` and ``only_if`` as for ``LabelNode``."""

    node_id: str
    set_: Pairs
    drop: list[str]
    ask: str = ""
    by: By | None = None
    only_if: Pairs = ()


class PreviewNode(Call, frozen=True):
    """Say what would start, and what would stay as it is, if a node had other labels and taints. Changes nothing."""

    node_id: str
    labels: Pairs = ()
    drop_labels: list[str] = []
    taints: Pairs = ()
    drop_taints: list[str] = []


class GetNode(Call, frozen=True):
    """One node: what runs there, and its tokens in words."""

    node_id: str


class GetOverview(Call, frozen=True):
    """Nodes, virtual clusters and what waits, as last seen, and what happened after the entry ``since`` of the journal: for
    those who look often."""

    since: int = 0


class GetStatus(Call, frozen=True):
    """Nodes and what waits."""


class GetWaiting(Call, frozen=True):
    """For each shape: how many of it wait in the whole cluster and why, or None."""

    keys: list[str]


class Explain(Call, frozen=True):
    """Say why something waits, or where it is."""

    id_or_name: str


class GetEvents(Call, frozen=True):
    """What happened lately, after the entry with this number."""

    since: int = 0


class GetClusters(Call, frozen=True):
    """Every virtual cluster, as it is after a round."""


class GetTree(Call, frozen=True):
    """The root and every virtual cluster, as last seen; for those who look often."""


class PlanFor(Call, frozen=True):
    """Say which machines would be started for a virtual cluster (its spec as JSON, or nothing) and for pieces of work, each as
    in ``Place`` and how many. Nothing changes."""

    spec: str
    priority: int
    work: list[tuple[str, int]]


class Withdraw(Call, frozen=True):
    """Take every token from every node. Answered with the nodes that still have some in use."""


class Several(Call, frozen=True):
    """Messages that nobody waits for, and the question that they travel with: what is told is heard first. Answered as the
    question is."""

    told: list[bytes]
    asked: bytes


AnyCall = Union[  # noqa: UP007 - a type that is built at run time
    EnsureClass,
    Place,
    Claim,
    GiveUp,
    PutObject,
    DropObject,
    MakeGroup,
    DropGroup,
    OfferGroup,
    ConfirmGroup,
    ReleaseGroup,
    CreateCluster,
    LookAtCluster,
    CloseCluster,
    EndCluster,
    ResizeCluster,
    SetPriority,
    WantShares,
    RequestShares,
    Lend,
    SentOn,
    Reclaim,
    Enter,
    FindNode,
    LabelNode,
    TaintNode,
    PreviewNode,
    GetNode,
    GetOverview,
    GetStatus,
    GetWaiting,
    Explain,
    GetEvents,
    GetClusters,
    GetTree,
    PlanFor,
    Withdraw,
    Several,
]


ANSWERED_BY_HOST = (MakeGroup, DropGroup, Several)
"""What the controller itself never hears."""

USUAL, FREQUENT, PATIENT, RETURNING, MAKING = "usual", "frequent", "patient", "returning", "making"
"""How calls are heard. What comes by the thousand has a thread of its own: several would only wait for each other, and a
command that takes its time holds nobody up. What may wait for seconds has threads of its own, so that the rest does not."""

_HEARD: dict[type[Call], str] = {
    **dict.fromkeys((Place, Claim, GiveUp, PutObject, DropObject, Lend, SentOn), FREQUENT),
    Enter: PATIENT,
    Reclaim: RETURNING,
    MakeGroup: MAKING,
}


def heard_as(call: Call) -> str:
    """Return how a call is heard: the name of its concurrency group."""
    return _HEARD.get(type(call), USUAL)


class Answer(msgspec.Struct, frozen=True):
    """What the controller says: a value, or the error that the caller gets, by the name of its class."""

    value: Any = None
    error: str = ""
    message: str = ""


_calls = msgspec.msgpack.Decoder(AnyCall)
_answers = msgspec.msgpack.Decoder(Answer)
_encoder = msgspec.msgpack.Encoder()


def new_ask() -> str:
    """Return the id of one question, the same however often it is asked."""
    return uuid.uuid4().hex


def encode_call(call: Call) -> bytes:
    return _encoder.encode(call)


def decode_call(data: bytes) -> AnyCall:
    """Return the call; raise ``ControllerError`` for one of another version of Remora."""
    call: AnyCall = _decoded(_calls, data)
    return call


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ControllerError(
            f"the controller does not know this call ({error}): it runs another version of Remora; shut it down with "
            "remora.shutdown_controller() and attach again"
        ) from error


def encode_answer(value: Any) -> bytes:
    return _encoder.encode(Answer(value))


def encode_error(error: Exception) -> bytes:
    """Return the answer that makes the caller raise this; anything but our own errors becomes a ``ControllerError``."""
    if isinstance(error, RemoraError):
        return _encoder.encode(Answer(error=type(error).__name__, message=str(error)))
    text = f"the controller failed over this call: {type(error).__name__}: {error}"
    return _encoder.encode(Answer(error=ControllerError.__name__, message=text))


def read_answer(data: bytes) -> Any:
    """Return the value of an answer, or raise its error."""
    answer = _answers.decode(data)
    if answer.error:
        raise _error(answer)
    return answer.value


def _error(answer: Answer) -> RemoraError:
    kind = getattr(errors, answer.error, ControllerError)
    error: RemoraError = kind(answer.message)
    return error
