"""Standing: which lease tokens have to stand on which node, what of that was not written yet, and what is promised there.

The token of a lease stands where it is placed until its work lives there. What an actor takes is promised from the decision
until it is in the report of its node, so that two decisions in one moment do not count on the same CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remora.controller.lease_table import Lease, LeaseTable
from remora.controller.steering import Tokens
from remora.wire.tokens import TAKEN, lease_token

_REPORTED_SECONDS = 0.5  # until what a new actor takes is in the report of its node


class Standing:
    def __init__(self, table: LeaseTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._slots: dict[str, set[str]] = {}
        self._due: dict[str, Tokens] = {}
        self._unreported: dict[Lease, None] = {}

    def changed(self, lease: Lease) -> None:
        """It was placed, put back, has started or stopped."""
        starting = lease.alive_at is None
        node_id = self._table.node_of(lease) if starting else None
        if lease.token_on is not None and lease.token_on != node_id:
            self.take(lease.token_on, lease.slot)
        if node_id is not None:
            self.put(node_id, lease.slot)
        lease.token_on = node_id
        if starting and lease.is_actor:
            self._unreported[lease] = None

    def ended(self, lease: Lease) -> None:
        self._unreported.pop(lease, None)
        if lease.token_on is not None:
            self.take(lease.token_on, lease.slot)

    def put(self, node_id: str, slot: str) -> None:
        slots = self._slots.setdefault(node_id, set())
        if slot not in slots:
            slots.add(slot)
            self._due.setdefault(node_id, {})[lease_token(slot)] = TAKEN

    def take(self, node_id: str, slot: str) -> None:
        slots = self._slots.get(node_id, set())
        if slot in slots:
            slots.discard(slot)
            self._due.setdefault(node_id, {})[lease_token(slot)] = 0.0

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self._slots.pop(node_id, None)
        self._due.pop(node_id, None)

    def tokens(self) -> Iterator[tuple[str, str]]:
        """All of it, node and token."""
        return ((node_id, lease_token(slot)) for node_id, slots in self._slots.items() for slot in slots)

    def due(self) -> dict[str, Tokens]:
        """What to write on each node since this was last asked."""
        due, self._due = self._due, {}
        return due

    def promised(self) -> dict[str, dict[str, int]]:
        """What actors will take on each node that is not in its report yet."""
        promised: dict[str, dict[str, int]] = {}
        for lease in list(self._unreported):
            if lease.alive_at is not None and self._now() - lease.alive_at >= _REPORTED_SECONDS:
                del self._unreported[lease]
            elif (node_id := self._table.node_of(lease)) is not None:
                on_node = promised.setdefault(node_id, {})
                for name, units in lease.ask.request.resources.items():
                    on_node[name] = on_node.get(name, 0) + units
        return promised
