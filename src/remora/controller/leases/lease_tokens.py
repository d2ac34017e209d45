"""The token of each lease: it stands where its work was decided to start, and moves without ever standing nowhere."""

from __future__ import annotations

from collections.abc import Mapping

from remora.controller.assumed import Assumed
from remora.controller.context import Context
from remora.controller.leases.lease_table import Lease, LeaseTable, wants
from remora.controller.tokens.class_tokens import ClassTokens
from remora.kernel.state.cluster import Cluster
from remora.model.resources import UNIT
from remora.port.contract import NodeView
from remora.wire.owners import owner_of
from remora.wire.timing import KNOWN_SECONDS
from remora.wire.tokens import TAKEN, lease_token


class LeaseTokens:
    """The only writer of ``Lease.token_on``, ``leaving`` and ``told``, and of what is assumed of a decision."""

    def __init__(self, context: Context, cluster: Cluster, table: LeaseTable, assumed: Assumed, tokens: ClassTokens) -> None:
        self._context = context
        self._cluster = cluster
        self._table = table
        self._assumed = assumed
        self._tokens = tokens
        self._leaving: dict[str, float] = {}  # slots that move to another node before they start, and since when

    def follow(self, lease: Lease) -> None:
        """A lease was placed, put back, has started or stopped: its token and what is assumed of it follow."""
        token = lease_token(lease.slot)
        is_starting = lease.live_since is None
        decided = self._table.node_of(lease)
        node_id = decided if is_starting else None
        if lease.token_on != node_id:
            if lease.token_on is not None:
                self._withdraw(lease, moves=node_id is not None and is_starting)
            if node_id is not None:
                self._tokens.put_lease(node_id, token)
            lease.token_on = node_id
        if is_starting and decided is not None:
            known = self._assumed.get(lease.slot)
            if known is None or known.node_id != decided:
                self._assumed.add(lease.slot, token, decided, lease.workload.request)
        elif is_starting:
            self._assumed.drop(lease.slot)
        self.tell(lease)

    def go_back(self, lease: Lease) -> None:
        """The node that a lease was moving to is lost: it is decided again where its old token stands."""
        lease.token_on, lease.leaving = lease.leaving, None
        del self._leaving[lease.slot]
        self.follow(lease)

    def _withdraw(self, lease: Lease, *, moves: bool) -> None:
        """Take a token from where it should no longer stand. What moves may be queued there, and Ray fails what no node can
        hold: so it stays until it stands on the other node too."""
        assert lease.token_on is not None
        if lease.leaving is not None and lease.leaving != lease.token_on:
            self._tokens.drop_lease(lease.leaving, lease_token(lease.slot))
            lease.leaving = None
        if moves and lease.token_on in self._cluster.nodes.by_id:
            lease.leaving = lease.token_on
            self._leaving[lease.slot] = self._context.now()
        else:
            self._tokens.drop_lease(lease.token_on, lease_token(lease.slot))

    def _move(self, slot: str, views: Mapping[str, NodeView]) -> None:
        """Take the old token of a lease away once every raylet knows of the new one, and of the share beside it, or it has
        started."""
        lease = self._table.by_slot[slot]
        token = lease_token(slot)
        if lease.token_on is not None:
            view = views.get(lease.token_on)
            if view is None or not _could_hold(view, lease) or self._context.now() - self._leaving[slot] < KNOWN_SECONDS:
                return
        if lease.leaving is not None and lease.leaving != lease.token_on:
            self._tokens.drop_lease(lease.leaving, token)
        lease.leaving = None
        del self._leaving[slot]

    def move_on(self, views: Mapping[str, NodeView]) -> None:
        """Take old tokens away, where that is safe by now."""
        for slot in list(self._leaving):
            with self._context.aside.care_of("lease", slot, "moving its token"):
                self._move(slot, views)

    def drop(self, lease: Lease) -> None:
        """A lease has ended: its token goes, from wherever it stands."""
        self._leaving.pop(lease.slot, None)
        self._assumed.drop(lease.slot)
        for where in (lease.token_on, lease.leaving):
            if where is not None:
                self._tokens.drop_lease(where, lease_token(lease.slot))

    def tell(self, lease: Lease) -> None:
        """Write into the time line of an actor what was decided, and for which reason."""
        node_id = self._table.node_of(lease)
        if lease.actor_id and node_id is not None and node_id != lease.told:
            lease.told = node_id
            asked = wants(lease.ask.request)
            because = f"it asks for {asked}" if asked else "any node would do"
            self._context.note("lease", lease.actor_id, f"decided {node_id[:12]} because {because}")

    @property
    def settled(self) -> bool:
        return not self._leaving


def _could_hold(view: NodeView, lease: Lease) -> bool:
    """Return whether a node has, by its report, what Ray has to find on it for what is queued with a lease."""
    if view.total.get(lease_token(lease.slot), 0.0) < TAKEN / 2:
        return False
    if lease.cluster_id is None:
        return True
    owner = owner_of(lease.cluster_id)
    return all(view.total.get(owner.token(name), 0.0) * UNIT >= units for name, units in lease.workload.request.demand.pairs)
