"""Every key in the cluster's key-value store, and how entries are written: with a version, so that any Remora can tell what it
can read.

An entry is ``[version, body]`` in MessagePack. What Remora wrote before entries had versions is JSON, which begins with another
byte: it is version 1, and every ``Kind`` knows what its body was like then. Bodies are plain values, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from remora.errors import UnreadableEntryError
from remora.wire.group_plans import LateEntry

B = TypeVar("B")

_VERSION_1 = b'[{"0123456789ntf-'  # what JSON may begin with
_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def write_entry(version: int, body: Any) -> bytes:
    """Return the bytes of an entry."""
    return _encoder.encode((version, body))


def read_entry(data: bytes) -> tuple[int, Any]:
    """Return the version of an entry and its body in plain values; raise ``UnreadableEntryError`` for what is none."""
    try:
        if data[:1] and data[:1] in _VERSION_1:
            return 1, msgspec.json.decode(data)
        version, raw = _envelope.decode(data)
        return version, msgspec.msgpack.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableEntryError(f"{_shown(data)} is no entry of Remora's: {error}") from error


class Overrides(msgspec.Struct, frozen=True):
    """Labels and taints set at run time on one node; None takes a static one away. ``asks`` are the last questions that they
    were set for: one that arrives again changes nothing."""

    labels: dict[str, str | None] = {}
    taints: dict[str, str | None] = {}
    asks: list[str] = []


class TaskLease(msgspec.Struct, frozen=True):
    """A task that has a slot. ``request`` is the encoded ask of ``wire.leases``; ``ask`` the question, or ""."""

    job_id: str
    request: str
    ask: str = ""
    worker_id: str = ""


class LabelledObject(msgspec.Struct, frozen=True):
    """An object with labels, and where it lies."""

    labels: tuple[tuple[str, str], ...]
    node_id: str
    namespace: str
    job_id: str


class FenceEntry(msgspec.Struct, frozen=True):
    """Classes that a node no longer accepts, and virtual clusters of which more runs there than may."""

    classes: list[str] = []
    full: list[str] = []


class Kind(Generic[B]):
    """One kind of entry: where its keys begin, what version is written now, and what a body is.

    ``older`` makes a body of today of one of an older version.
    """

    def __init__(self, prefix: str, version: int, body: Any, older: Callable[[int, Any], Any]) -> None:
        self.prefix = prefix
        self.version = version
        self.body = body
        self.older = older

    def key(self, *parts: str) -> str:
        """Return the key of one entry; of a kind that has one only, without parts."""
        return self.prefix + "/".join(parts)

    def parts(self, key: str) -> list[str]:
        """Return what a key names: the opposite of ``key``."""
        return key.removeprefix(self.prefix).split("/")

    def write(self, body: B) -> bytes:
        return write_entry(self.version, body)

    def read(self, data: bytes) -> B:
        """Return the body, as today's; raise ``UnreadableEntryError`` with a sentence that people understand."""
        version, body = read_entry(data)
        if version > self.version:
            raise UnreadableEntryError(
                f"{_shown(data)} under {self.prefix!r} has version {version}, written by a newer Remora; this one reads up to "
                f"{self.version}: use the newer Remora, or remora.shutdown_controller() with it first"
            )
        try:
            if version < self.version:
                body = self.older(version, body)
            found: B = msgspec.convert(body, self.body)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, IndexError) as error:
            raise UnreadableEntryError(
                f"{_shown(data)} under {self.prefix!r} is not as version {version} is: {error}"
            ) from error
        return found


def _same(_: int, body: Any) -> Any:
    return body


def _named(*names: str) -> Callable[[int, Any], Any]:
    """What was a list, by the names of its places; those at the end may be missing."""

    def older(_: int, body: Any) -> Any:
        if not isinstance(body, list):
            raise TypeError(f"a list was expected, not {type(body).__name__}")
        return dict(zip(names, body, strict=False))

    return older


def _no_older(version: int, _: Any) -> Any:
    raise ValueError(f"there was no version {version}")


CLASSES: Kind[dict[str, Any]] = Kind("class/", 2, dict[str, Any], _same)
"""A class that is remembered, by its id: the body of ``ClassSpec.encode``."""

OVERRIDES: Kind[Overrides] = Kind("node/", 2, Overrides, _same)
"""By node id."""

TASK_LEASES: Kind[TaskLease] = Kind("lease/", 2, TaskLease, _named("job_id", "request", "ask"))
"""By slot. An actor's lease is in GCS's actor table, as labels of the actor."""

OBJECTS: Kind[LabelledObject] = Kind("object/", 2, LabelledObject, _named("labels", "node_id", "namespace", "job_id"))
"""By object id."""

CLUSTERS: Kind[dict[str, Any]] = Kind("vc/", 2, dict[str, Any], _same)
"""By cluster id, also the shares of placement groups. ``spec`` in the body is read by every process that works in it; version 1
says ``berth`` for what a placement group has."""

HOLDS: Kind[dict[str, float]] = Kind("hold/", 2, dict[str, float], _same)
"""By node id and the hold's name: how much of which tokens it takes."""

FENCES: Kind[FenceEntry] = Kind("fence/", 2, FenceEntry, _named("classes", "full"))
"""By node id. Workers read it before they start anything."""

GENERATION: Kind[int] = Kind("generation", 2, int, _same)
"""How many controllers there were. It outlives ``Withdraw``: slots of before may still be in use."""

JOURNAL: Kind[list[dict[str, Any]]] = Kind("events", 2, list[dict[str, Any]], _same)
"""What happened lately."""

LATE_GROUPS: Kind[LateEntry] = Kind("late/", 2, LateEntry, _no_older)
"""By the id of the group. (Version 1 was under ``group/``, by job, worker and number, read by nobody but that job.)"""

KINDS: tuple[Kind[Any], ...] = (
    CLASSES,
    OVERRIDES,
    TASK_LEASES,
    OBJECTS,
    CLUSTERS,
    HOLDS,
    FENCES,
    GENERATION,
    JOURNAL,
    LATE_GROUPS,
)

OUTLIVES_WITHDRAWAL: tuple[Kind[Any], ...] = (GENERATION, LATE_GROUPS)
"""What ``Withdraw`` leaves in the store; all other keys are deleted. Handles of groups that wait are in users' hands: the next
controller keeps them on."""


def kind_of(key: str, kinds: Iterable[Kind[Any]] = KINDS) -> Kind[Any] | None:
    """Return the kind that a key belongs to; None for one that is not ours."""
    return next(
        (kind for kind in kinds if key == kind.prefix or (kind.prefix[-1] == "/" and key.startswith(kind.prefix))), None
    )


def _shown(data: bytes) -> str:
    text = repr(data[:40])[1:]
    return f"the entry {text}{'...' if len(data) > 40 else ''}"
