"""What the REST API takes and gives, for its documentation: the same values as ``--json`` prints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?"

Key = Annotated[str, StringConstraints(pattern=rf"^(({_DNS}\.)*{_DNS}/)?{_NAME}$", max_length=253)]
Value = Annotated[str, StringConstraints(pattern=rf"^({_NAME})?$", max_length=63)]
_ONLY: dict[str, Any] = {"additionalProperties": False}  # no other keys than those of the pattern
Pairs = Annotated[
    dict[Key, Value], Field(min_length=1, max_length=100, examples=[{"gpu_node": "true"}], json_schema_extra=_ONLY)
]
Changes = Annotated[dict[Key, Value | None], Field(max_length=100, json_schema_extra=_ONLY)]
Amounts = dict[str, float]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]
Limit = Annotated[float, Field(ge=0, le=1_000_000_000)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="allow")


class Problem(BaseModel):
    """RFC 9457: what was given, the rule that it breaks, and an example of what is right."""

    type: str
    title: str
    status: int
    detail: str
    rule: str
    example: str
    value: Any = None


class Part(_Row):
    has: float
    used: float


class NodeRow(_Row):
    """A node: ``outside`` is what work in no virtual cluster uses."""

    node_id: str
    address: str
    head: bool
    labels: dict[str, str]
    taints: dict[str, str]
    total: Amounts
    used: Amounts
    outside: Amounts
    virtual_clusters: dict[str, Part]


class RunningRow(_Row):
    kind: str
    what: str
    count: int


class TokenRow(_Row):
    token: str
    text: str
    fenced: bool


class NodeInDepth(NodeRow):
    """A node with what runs there, as far as it is attached, and its tokens in words."""

    running: list[RunningRow]
    tokens: list[TokenRow]


class Marks(_Row):
    """A node with the labels and taints that it has now."""

    node_id: str
    labels: dict[str, str]
    taints: dict[str, str]


class Previewed(BaseModel):
    """What would be changed; null takes one away."""

    model_config = ConfigDict(extra="forbid")

    labels: Changes = {}
    taints: Changes = {}


class Counted(_Row):
    what: str
    kind: str
    count: int


class Preview(_Row):
    """What a change would do, and the same in one line."""

    node_id: str
    starts: list[Counted]
    stays: list[Counted]
    no_node: list[Counted]
    more: bool
    text: str


class ClusterRow(_Row):
    """A virtual cluster: what it ``used``, has reserved (``min``), has (``total``) and may have (``max``)."""

    cluster_id: str
    parent: str | None
    job_id: str
    state: str
    total: Amounts
    used: Amounts
    max: Amounts


class Closed(_Row):
    cluster_id: str
    state: str


class NewMaximum(BaseModel):
    """The new maximum of some resources; null takes one away."""

    model_config = ConfigDict(extra="forbid")

    max: Annotated[
        dict[ResourceName, Limit | None], Field(min_length=1, max_length=50, examples=[{"CPU": 8}], json_schema_extra=_ONLY)
    ]


class NewPriority(BaseModel):
    """More goes first."""

    model_config = ConfigDict(extra="forbid")

    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000, examples=[10])]


class WaitingRow(_Row):
    """So many of one kind that wait, why, and the smallest changes that would help."""

    kind: str
    count: int
    resources: list[Amounts]
    wants: str
    reason: str
    suggestions: list[str]
    refusals: list[dict[str, Any]]


class Explained(_Row):
    kind: str
    id: str
    name: str
    state: str
    reason: str
    suggestions: list[str]


class By(_Row):
    """Who did it, by what, from where and why."""


class Entry(_Row):
    number: int
    at: str
    kind: str
    subject: str
    text: str
    by: By | None = None


class Health(BaseModel):
    state: str
    message: str


class About(_Row):
    """What a page has to know before it asks anything else."""

    version: str
    read_only: bool
    insecure: bool
    signs_in: bool


class Lines(_Row):
    times: list[float]
    clusters: dict[str, dict[str, dict[str, list[float | None]]]]
