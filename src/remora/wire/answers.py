"""What the controller answers to those who look: plain values, the same in Python, in ``--json`` and over REST.

They are dicts, so that they can be printed, compared and sent as they are; these types say what is in them.
"""

from __future__ import annotations

from typing import Any, TypedDict

Amounts = dict[str, float]


By = TypedDict("By", {"who": str, "through": str, "from": str, "reason": str}, total=False)
"""Who made a change, through which of our surfaces, from where, and why as they said."""


class _Entry(TypedDict):
    number: int
    at: str
    kind: str
    subject: str
    text: str


class Event(_Entry, total=False):
    """One entry of the journal: ``at`` is a time in ISO form, ``kind`` one word to filter by, ``subject`` the node, actor,
    class or virtual cluster that it is about. ``by`` is there when somebody asked for it."""

    by: By


class Has(TypedDict):
    """Of one resource of a node: what virtual clusters have of it, and what of that their work uses."""

    has: float
    used: float


class NodeStatus(TypedDict):
    """A node with the labels and taints that hold now. ``name`` is what ``ray start`` called it, often its address; ``outside``
    is what work in no virtual cluster uses of it."""

    node_id: str
    name: str
    address: str
    head: bool
    labels: dict[str, str]
    taints: dict[str, str]
    total: Amounts
    used: Amounts
    outside: Amounts
    virtual_clusters: dict[str, Has]


class RefusedNodes(TypedDict):
    """Nodes that one rule refuses for one reason: ``text`` says it of all ``count`` of them, ``each`` of one."""

    rule: str
    text: str
    each: str
    count: int
    nodes: list[str]


class Waits(TypedDict):
    """Equal work that waits: what it wants, why it waits, and what would help, in words and for programs. ``busy``: it only
    has to wait until something else ends; ``fits``: not even for that."""

    kind: str
    count: int
    resources: list[Amounts]
    wants: str
    reason: str
    suggestions: list[str]
    changes: list[list[dict[str, Any]]]
    refusals: list[RefusedNodes]
    case: str
    busy: bool
    fits: bool


class SetAside(TypedDict):
    """Something whose care failed, and that is tried again."""

    kind: str
    id: str
    error: str
    since: float
    count: int


class SpreadStatus(TypedDict):
    """What is spread together: how many of it lie in each domain of a label, and how much the most is above the least."""

    over: str
    of: str
    virtual_cluster: str | None
    domains: dict[str, int]
    skew: int
    max_skew: int
    min_domains: int | None
    soft: bool


class Status(TypedDict, total=False):
    """The cluster as the controller sees it. ``machines`` is there where an autoscaler is."""

    nodes: list[NodeStatus]
    waiting: list[Waits]
    spreads: list[SpreadStatus]
    set_aside: list[SetAside]
    machines: dict[str, Any]


class VirtualNodeStatus(TypedDict):
    """A virtual node: ``node_id`` is the physical node that it lies on, ``parent`` the node of the cluster around it."""

    vnode_id: str
    node_id: str
    parent: str | None
    fixed: bool
    labels: dict[str, str]
    total: Amounts
    used: Amounts


class VirtualClusterStatus(TypedDict):
    """A virtual cluster: ``total`` is what it has now, ``min`` what is reserved for it, ``max`` what it may have at most, and
    ``lowering`` what its maximum is on the way down to. While it is queued, ``position`` is its place and ``reason`` says why.
    ``submission_id`` is that of its job, if it was submitted."""

    cluster_id: str
    parent: str | None
    job_id: str
    submission_id: str | None
    state: str
    priority: int
    spec: dict[str, Any]
    min: Amounts
    total: Amounts
    used: Amounts
    max: Amounts
    lowering: Amounts
    position: int
    reason: str
    nodes: list[VirtualNodeStatus]
