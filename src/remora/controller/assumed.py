"""Assumed, then confirmed: what was decided and is not in any report yet, counted against its node and against its share.

A decision is *assumed* from the moment it is made. It is *confirmed*, and its report counts it from then on, when a report that
is newer shows it. A report is known to be newer by the lease token: it stood on the node for the work to start, and is taken
away when the work lives; or, of a task, it is in use. What has not started when its deadline comes is decided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from remora.controller.context import Context
from remora.model.requests import Request
from remora.model.resources import Resources
from remora.model.strategies import ACTOR
from remora.port.contract import NodeView
from remora.wire.timing import REPORTED_SECONDS
from remora.wire.tokens import TAKEN

Units = dict[str, int]

START_SECONDS = 5.0
"""What has not begun to start on its node by then is decided again, if another node would take it."""

_UNSEEN_SECONDS = 3 * REPORTED_SECONDS
"""Where no report ever showed the token, one that is this much younger than the start has to be newer."""


@dataclass(slots=True)
class Assumption:
    """One decision: what it takes of which node, and in which virtual cluster; ``request`` says what has to be free there for
    it to start. ``live_since`` is when it was known to run; ``asked`` says whether the cluster was asked, since it was due, and
    knows nothing else."""

    slot: str
    token: str
    node_id: str
    cluster_id: str | None
    amounts: Resources
    request: Request
    is_actor: bool
    since: float
    deadline: float
    live_since: float | None = None
    token_seen: bool = False
    is_starting: bool = False
    asked: bool = False


class Assumed:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._entries: dict[str, Assumption] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._in_cluster: dict[str, dict[str, None]] = {}
        self.touched: set[str] = set()
        """Nodes of which more or less is assumed than before; whoever counts them anew clears it."""

    def __contains__(self, slot: str) -> bool:
        return slot in self._entries

    @property
    def settled(self) -> bool:
        """Return whether no report is about to show anything: what waits for room on its node may do so for long."""
        young = self._context.now() - START_SECONDS
        return not any(each.live_since is not None or each.is_starting or each.since > young for each in self._entries.values())

    def get(self, slot: str) -> Assumption | None:
        return self._entries.get(slot)

    # What counts

    def outside(self, node_id: str) -> Units:
        """Return what work in no virtual cluster was decided to take of a node and no report shows."""
        return self._sum(node_id, None)

    def inside(self, cluster_id: str, node_id: str) -> Units:
        """Return what work in a virtual cluster was decided to take of its share on a node and no report shows."""
        return self._sum(node_id, cluster_id)

    def is_in(self, cluster_id: str) -> bool:
        """Return whether anything is assumed in a virtual cluster: it is about to be used."""
        return cluster_id in self._in_cluster

    # What changes it

    def add(self, slot: str, token: str, node_id: str, request: Request) -> None:
        """Assume a decision. One that was assumed for the same slot is forgotten."""
        cluster_id, is_actor = request.cluster, request.kind == ACTOR
        self.drop(slot)
        now = self._context.now()
        taken = request.resources
        entry = Assumption(slot, token, node_id, cluster_id, taken, request, is_actor, now, now + START_SECONDS)
        self._entries[slot] = entry
        self.touched.add(node_id)
        self._on_node.setdefault(node_id, {})[slot] = None
        if cluster_id is not None:
            self._in_cluster.setdefault(cluster_id, {})[slot] = None

    def lives(self, slot: str) -> None:
        """It was seen to run: the next report that is newer confirms it."""
        entry = self._entries.get(slot)
        if entry is not None and entry.live_since is None:
            entry.live_since = self._context.now()

    def drop(self, slot: str) -> Assumption | None:
        """It is confirmed, has ended or is decided anew. Return what was assumed."""
        entry = self._entries.pop(slot, None)
        if entry is not None:
            self.touched.add(entry.node_id)
            _remove(self._on_node, entry.node_id, slot)
            if entry.cluster_id is not None:
                _remove(self._in_cluster, entry.cluster_id, slot)
        return entry

    def postpone(self, slot: str) -> None:
        """It is looked at again later."""
        entry = self._entries.get(slot)
        if entry is not None:
            entry.deadline, entry.asked = self._context.now() + START_SECONDS, False

    def see(self, view: NodeView) -> None:
        """Take in what a report says about the tokens of what is assumed on its node."""
        for slot in self._on_node.get(view.node_id, ()):
            entry = self._entries[slot]
            total = view.total.get(entry.token, 0.0)
            entry.token_seen |= total > 0
            entry.is_starting = total - view.available.get(entry.token, 0.0) > TAKEN / 2

    def confirmed(self, views: Mapping[str, NodeView]) -> list[Assumption]:
        """Return what the last reports show. Whoever asks drops it."""
        return [entry for entry in self._entries.values() if entry.node_id in views and self._is_shown(entry, views)]

    def overdue(self) -> list[Assumption]:
        """Return what should have begun to start by now, and has not."""
        now = self._context.now()
        return [
            entry
            for entry in self._entries.values()
            if entry.live_since is None and not entry.is_starting and entry.deadline <= now
        ]

    def entries(self) -> Iterator[Assumption]:
        return iter(self._entries.values())

    # The rest

    def _is_shown(self, entry: Assumption, views: Mapping[str, NodeView]) -> bool:
        if not entry.is_actor:
            return entry.is_starting
        if entry.live_since is None or views[entry.node_id].total.get(entry.token):
            return False
        return entry.token_seen or self._context.now() - entry.live_since > _UNSEEN_SECONDS

    def _sum(self, node_id: str, cluster_id: str | None) -> Units:
        units: Units = {}
        for slot in self._on_node.get(node_id, ()):
            entry = self._entries[slot]
            if entry.cluster_id == cluster_id:
                for name, amount in entry.amounts.pairs:
                    units[name] = units.get(name, 0) + amount
        return units


def _remove(index: dict[str, dict[str, None]], key: str, slot: str) -> None:
    index[key].pop(slot, None)
    if not index[key]:
        del index[key]
