"""Which share tokens should stand on each node, by what the kernel divided; worked out anew only for clusters that changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from remora.controller.clusters.records import Record
from remora.controller.clusters.registry import Registry
from remora.controller.tokens.book import Units
from remora.controller.tokens.roster import Roster
from remora.kernel.sharing.usage import own_total
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VNode
from remora.kernel.state.shares import bump
from remora.kernel.state.virtual_labels import admits, asks_labels, labels_of
from remora.wire.classes import ClassSpec
from remora.wire.owners import ShareOwner, owner_of

_NOTHING: Mapping[str, int] = {}


class WantedShares:
    def __init__(self, cluster: Cluster, registry: Registry, roster: Roster) -> None:
        self._cluster = cluster
        self._registry = registry
        self._roster = roster
        self._stamps: dict[str, object] = {}
        self._of: dict[str, dict[str, Units]] = {}  # by cluster, or class that selects a part of one: tokens by node
        self._on: dict[str, Units] = {}
        self._parts: dict[str, Units] = {}
        self._clusters_on: dict[str, set[str]] = {}
        self._where: dict[str, set[str]] = {}  # by cluster: nodes where it has anything
        self._seen: tuple[int, int, object] = (-1, -1, None)

    def on(self, node_id: str) -> Mapping[str, int]:
        """Return how much of each share token the clusters' own work may take on a node."""
        return self._on.get(node_id, _NOTHING)

    def parts_on(self, node_id: str) -> Mapping[str, int]:
        """Return the tokens of parts of clusters that classes select on a node."""
        return self._parts.get(node_id, _NOTHING)

    def clusters_on(self, node_id: str) -> Collection[str]:
        """Return the clusters and placement groups that have a share of a node."""
        return self._clusters_on.get(node_id, ())

    def refresh(self, blocked: Collection[str]) -> tuple[set[str], set[str]]:
        """Bring it up to date. Return the clusters that changed and the nodes where anything else should stand than before.

        ``blocked`` are clusters in which nothing may start: what a placement group of theirs has is in use and stays, and its
        bundles that have lost their nodes get nothing.
        """
        seen = self._cluster.tree.changes, self._roster.changes, frozenset(blocked)
        if seen == self._seen:
            return set(), set()
        self._seen = seen
        changed: set[str] = set()
        nodes: set[str] = set()
        for cluster_id in [known for known in self._stamps if known not in self._registry.records]:
            del self._stamps[cluster_id]
            changed.add(cluster_id)
            nodes |= self._replace(cluster_id, {}, self._on)
            self._has(cluster_id, set())
        for cluster_id, record in self._registry.records.items():
            stamp = record.vcluster.changes, self._has_none(record, blocked)
            if self._stamps.get(cluster_id) != stamp:
                self._stamps[cluster_id] = stamp
                changed.add(cluster_id)
                nodes |= self._replace(cluster_id, self._tokens(record, blocked), self._on)
                self._has(cluster_id, {self._node_id(vnode) for vnode in record.vcluster.vnodes()})
        return changed, nodes | self._refresh_parts()

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        for tokens in self._of.values():
            tokens.pop(node_id, None)
        for cluster_id in self._clusters_on.pop(node_id, set()):
            self._where.get(cluster_id, set()).discard(node_id)
        self._on.pop(node_id, None)
        self._parts.pop(node_id, None)

    # The rest

    def _has_none(self, record: Record, blocked: Collection[str]) -> bool:
        group = record.group
        return group is not None and (group.released or (group.reserved and record.cluster_id in blocked))

    def _tokens(self, record: Record, blocked: Collection[str]) -> dict[str, Units]:
        """Return what should stand for a record, by node. A group that was removed wants nothing any more."""
        wanted: dict[str, Units] = {}
        if self._has_none(record, blocked):
            return wanted
        owner = owner_of(record.cluster_id)
        for index, vnode in enumerate(record.vcluster.fixed):
            if vnode is not None:
                mine = owner if record.group is None else owner._replace(bundle=index)
                self._add(wanted, mine, vnode)
        for vnode in record.vcluster.vnodes():
            if not vnode.fixed:
                self._add(wanted, owner, vnode)
        return wanted

    def _refresh_parts(self) -> set[str]:
        specs = {
            spec.part_id: spec
            for spec in self._roster.offered.values()
            if spec.cluster in self._registry.records and any(asks_labels(choice) for choice in spec.choices)
        }
        nodes: set[str] = set()
        for part_id in [known for known in self._of if owner_of(known).is_part and known not in specs]:
            nodes |= self._replace(part_id, {}, self._parts)
        for part_id, spec in specs.items():
            nodes |= self._replace(part_id, self._part(spec), self._parts)
        return nodes

    def _part(self, spec: ClassSpec) -> dict[str, Units]:
        """Return what the virtual nodes that a class selects have together, by node."""
        wanted: dict[str, Units] = {}
        for vnode in self._registry.records[spec.cluster or ""].vcluster.vnodes():
            if vnode.fixed and any(admits(choice, labels_of(self._cluster, vnode)) for choice in spec.choices):
                self._add(wanted, owner_of(spec.part_id), vnode)
        return wanted

    def _add(self, wanted: dict[str, Units], owner: ShareOwner, vnode: VNode) -> None:
        tokens = wanted.setdefault(self._node_id(vnode), {})
        for name in vnode.total:
            bump(tokens, owner.token(name), own_total(vnode, name))

    def _replace(self, key: str, tokens: dict[str, Units], table: dict[str, Units]) -> set[str]:
        """Replace what one cluster or class wants. Return the nodes where that is something else than before."""
        before = self._of.get(key, {})
        nodes = {node_id for node_id in {*before, *tokens} if before.get(node_id) != tokens.get(node_id)}
        for node_id in nodes:
            here = table.setdefault(node_id, {})
            for token in before.get(node_id, ()):
                here.pop(token, None)
            here.update(tokens.get(node_id, {}))
            if not here:
                del table[node_id]
        if tokens:
            self._of[key] = tokens
        else:
            self._of.pop(key, None)
        return nodes

    def _has(self, cluster_id: str, nodes: set[str]) -> None:
        for node_id in self._where.get(cluster_id, set()) - nodes:
            here = self._clusters_on.get(node_id)
            if here is not None:
                here.discard(cluster_id)
        for node_id in nodes:
            self._clusters_on.setdefault(node_id, set()).add(cluster_id)
        if nodes:
            self._where[cluster_id] = nodes
        else:
            self._where.pop(cluster_id, None)

    def _node_id(self, vnode: VNode) -> str:
        return self._cluster.nodes.at(vnode.node).node_id
