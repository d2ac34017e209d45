"""What waits for a node by its id fails as it does in Ray, when that node is gone, was never there or is too small.

Its token and the hint at the node only let it wait, because Ray fails what it finds infeasible, and without its token a node is
that: a token that comes a moment later would come too late. So whoever submits it hands it to Ray without tokens where the node
is no good already, and what finds out while it waits is given up here, by its shape, which is nobody else's: the name of its
token says which node it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.controller.context import Context
from remora.controller.effects import FailWaiting
from remora.controller.leases.leases import Leases
from remora.controller.picture import real
from remora.controller.tokens.roster import Roster
from remora.kernel.state.cluster import Cluster
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.port.contract import Demand
from remora.wire.tokens import class_of_token, is_in_group, slot_of_token

_GRACE_SECONDS = 1.0
"""A node that is named may have joined a moment ago, and what its cluster has there be on its way."""

_AGAIN_SECONDS = 1.0

_Shape = frozenset[tuple[str, float]]


class Unschedulable:
    """``settled`` is whether nothing has yet to be given up."""

    def __init__(self, context: Context, cluster: Cluster, roster: Roster, leases: Leases) -> None:
        self._context = context
        self._cluster = cluster
        self._roster = roster
        self._leases = leases
        self._since: dict[_Shape, float] = {}
        self._given_up_at = float("-inf")

    @property
    def settled(self) -> bool:
        return not self._since

    def look(self, demands: Iterable[Demand]) -> None:
        """Take in what is reported to wait."""
        now = self._context.now()
        found = {frozenset(demand.shape.items()) for demand in demands if not demand.bundles and self._is_lost(demand.shape)}
        self._since = {shape: self._since.get(shape, now) for shape in found}

    def plan(self) -> list[FailWaiting]:
        """Return what to give up now; asked again for as long as it is reported."""
        now = self._context.now()
        ripe = [shape for shape, since in self._since.items() if now - since >= _GRACE_SECONDS]
        if not ripe or now - self._given_up_at < _AGAIN_SECONDS:
            return []
        self._given_up_at = now
        for shape in ripe:
            names = ", ".join(sorted({node_id for choice in self._choices(shape)[0] for node_id in choice.named_nodes or ()}))
            self._context.note("work", names, "what waits for this node fails: it is gone, or could never hold it")
        return [FailWaiting(tuple(sorted(ripe, key=sorted)))]

    def _is_lost(self, shape: Mapping[str, float]) -> bool:
        choices, cluster_id = self._choices(shape.items())
        need = real(shape)
        return bool(choices) and not any(self._could_go(choice, need, cluster_id) for choice in choices)

    def _choices(self, shape: Iterable[tuple[str, float]]) -> tuple[tuple[NodeClass, ...], str | None]:
        """Return which nodes are allowed, and the virtual cluster; no choices for what is not ours to judge."""
        names = [name for name, _ in shape]
        if any(is_in_group(name) for name in names):
            return (), None
        for name in names:
            lease = self._leases.by_slot.get(slot_of_token(name) or "")
            if lease is not None:
                return lease.ask.request.choices, lease.cluster_id
            spec = self._roster.classes.get(class_of_token(name) or "")
            if spec is not None:
                return spec.choices, spec.cluster
        return (), None

    def _could_go(self, choice: NodeClass, need: Resources, cluster_id: str | None) -> bool:
        """Return whether one of the nodes that it names may hold it some day; also where it names none."""
        if choice.named_nodes is None:
            return True
        large = self._cluster.totals.at_least(need)
        known = [node for node_id in choice.named_nodes if (node := self._cluster.nodes.by_id.get(node_id)) is not None]
        return any(large >> node.number & 1 and self._is_inside(node.number, need, cluster_id) for node in known)

    def _is_inside(self, number: int, need: Resources, cluster_id: str | None) -> bool:
        """Return whether a virtual cluster has room for it on a node, or may get it: what it may not grow by, its fixed-size
        nodes have to have there. While it lacks some of those that is not known."""
        vcluster = self._cluster.tree.clusters.get(cluster_id) if cluster_id is not None else None
        if vcluster is None or not vcluster.whole:
            return True
        fixed = [(name, units) for name, units in need.pairs if vcluster.spec.limit(name) == 0]
        there = [vnode for vnode in vcluster.vnodes() if vnode.node == number]
        return all(sum(vnode.total.get(name, 0) for vnode in there) >= units for name, units in fixed)
