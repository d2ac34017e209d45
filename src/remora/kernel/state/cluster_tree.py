"""The tree of virtual clusters: its shape. The arithmetic over it is in ``shares``.

The root is the physical cluster and is written None. A virtual cluster has fixed-size virtual nodes, any number on one
physical node, and at most one flexible virtual node on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remora.errors import UnknownNameError
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.workloads import Host
from remora.model.groups import GroupRequest
from remora.model.labels import Labels
from remora.model.resources import Resources
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL, FixedSizeNode, VirtualCluster

READY = "READY"
QUEUED = "QUEUED"
DESTROYED = "DESTROYED"


class VNode:
    """A share of one physical node. ``host`` is where its resources come from; ``used`` is what its tenants hold.

    ``reported``: its use was taken from reports, so more may be in use than is placed here.
    """

    __slots__ = ("cluster", "host", "labels", "node", "reported", "spec", "total", "used", "vnode_id")

    def __init__(self, vnode_id: str, cluster: VCluster, host: Host, spec: FixedSizeNode | None) -> None:
        self.vnode_id = vnode_id
        self.cluster = cluster
        self.host = host
        self.node = host.node
        self.spec = spec
        self.total: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.reported = False
        self.labels = {**dict(spec.labels if spec else ()), VNODE_LABEL: vnode_id, VCLUSTER_LABEL: cluster.cluster_id}

    @property
    def fixed(self) -> bool:
        return self.spec is not None

    def idle(self, name: str) -> int:
        return self.total.get(name, 0) - self.used.get(name, 0)

    def __repr__(self) -> str:
        return f"VNode({self.vnode_id!r}, node={self.node}, total={self.total}, used={self.used})"


class VCluster:
    """One virtual cluster: queued until its minimum is reserved, then ready, in the end destroyed.

    A placement group inside a virtual cluster is one too, with a fixed-size node a bundle; ``group`` says where these may lie.
    """

    def __init__(
        self,
        cluster_id: str,
        spec: VirtualCluster,
        parent: VCluster | None,
        priority: int,
        order: int,
        tolerations: Tolerations,
        group: GroupRequest | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.group = group
        self.spec = spec
        self.parent = parent
        self.priority = priority
        self.order = order
        self.tolerations = tolerations
        self.state = QUEUED
        self.children: dict[str, VCluster] = {}
        # One slot a fixed-size node of the spec, in the order of the spec; None while it is not reserved or was lost.
        self.fixed: list[VNode | None] = [None] * len(spec.fixed_nodes)
        self.flex: dict[int, VNode] = {}
        self.flex_total: dict[str, int] = {}
        self.flex_used: dict[str, int] = {}
        # Node numbers: where there is a flexible node, and where one has anything idle.
        self.flex_nodes: NodeSet = 0
        self.idle: set[int] = set()
        self.emptied: set[int] = set()  # flexible nodes that gave everything back and wait to be dropped
        self.layout = 0  # goes up whenever a fixed-size node is made or lost
        self.kept_out_by: tuple[Any, Labels] | None = None  # kept by never_fits, likewise
        self.ever_fits: tuple[Any, bool] | None = None  # kept by what_if, with what it depends on
        self.closing = False  # nobody may count on it any more: what is lost is not made again
        self.inconclusive = False  # the last search for room gave up before it had seen everything
        # Goes up whenever its share tokens may have to change: with its own virtual nodes, and with those of its children.
        self.changes = 0
        self.tree: Tree | None = parent.tree if parent is not None else None
        self._made = 0

    def vnodes(self) -> Iterator[VNode]:
        """Yield the fixed-size nodes, then the flexible ones by node number; not those that gave everything back."""
        yield from (vnode for vnode in self.fixed if vnode is not None)
        for number in sorted(self.flex):
            if number not in self.emptied:
                yield self.flex[number]

    def nodes(self) -> NodeSet:
        nodes = self.flex_nodes
        for vnode in self.fixed:
            if vnode is not None:
                nodes |= 1 << vnode.node
        return nodes

    def changed(self, step: int = 1) -> None:
        """Count a change of its virtual nodes, or with -1 take the count of one back that is undone.

        What a parent's own work may take is what its children do not have, so it counts for the parent too.
        """
        self.changes += step
        if self.parent is not None:
            self.parent.changes += step
        if self.tree is not None:
            self.tree.changes += step

    def add_flexible(self, vnode: VNode) -> None:
        self.flex[vnode.node] = vnode
        self.flex_nodes |= 1 << vnode.node
        self.changed()

    def remove_flexible(self, number: int, step: int = 1) -> VNode:
        self.flex_nodes &= ~(1 << number)
        self.idle.discard(number)
        self.emptied.discard(number)
        self.changed(step)
        return self.flex.pop(number)

    def set_fixed(self, slot: int, vnode: VNode | None, step: int = 1) -> None:
        self.fixed[slot] = vnode
        self.layout += 1
        self.changed(step)

    def flex_idle(self, name: str) -> int:
        return self.flex_total.get(name, 0) - self.flex_used.get(name, 0)

    def headroom(self, name: str) -> int | None:
        """Return how much more of a resource the flexible part may have; None when there is no limit."""
        limit = self.spec.limit(name)
        return None if limit is None else limit - self.flex_total.get(name, 0)

    def flex_shortfall(self) -> Resources:
        """Return what the flexible part still lacks to its minimum."""
        return Resources(
            {
                name: units - self.flex_total.get(name, 0)
                for name, units in self.spec.flexible_resource_min.pairs
                if units > self.flex_total.get(name, 0)
            }
        )

    @property
    def whole(self) -> bool:
        """Return whether everything that is guaranteed is there: false while waiting, and after a node was lost."""
        return self.closing or (None not in self.fixed and not self.flex_shortfall())

    def needs(self) -> set[str]:
        """Return the names of the resources in the minimum."""
        return {*self.spec.flexible_resource_min, *(name for node in self.spec.fixed_nodes for name in node.resources)}

    def minimum(self) -> Resources:
        """Return the whole minimum, flexible and fixed, added up."""
        total = self.spec.flexible_resource_min
        for node in self.spec.fixed_nodes:
            total = total + node.resources
        return total

    def next_vnode_id(self) -> str:
        self._made += 1
        return f"{self.cluster_id}-{self._made}"

    def coming_vnode_id(self) -> str:
        """Return the id that the next virtual node would have."""
        return f"{self.cluster_id}-{self._made + 1}"

    def take_back_vnode_id(self) -> None:
        """Forget the virtual node made last: it was only a trial."""
        self._made -= 1

    def chain(self) -> Iterator[VCluster]:
        """Yield this cluster and its ancestors, up to but without the root."""
        cluster: VCluster | None = self
        while cluster is not None:
            yield cluster
            cluster = cluster.parent

    @property
    def top(self) -> VCluster:
        """The cluster directly below the root that this one is or lies in."""
        cluster = self
        while cluster.parent is not None:
            cluster = cluster.parent
        return cluster

    def __repr__(self) -> str:
        return f"VCluster({self.cluster_id!r}, {self.state})"


class Tree:
    """All virtual clusters by id, parents before children."""

    def __init__(self) -> None:
        self.clusters: dict[str, VCluster] = {}
        self.made = 0
        self.changes = 0  # goes up with the ``changes`` of any cluster, and when one comes or goes

    def add(self, cluster: VCluster) -> None:
        self.clusters[cluster.cluster_id] = cluster
        if cluster.parent is not None:
            cluster.parent.children[cluster.cluster_id] = cluster
        cluster.tree = self
        cluster.changed()

    def remove(self, cluster: VCluster) -> None:
        del self.clusters[cluster.cluster_id]
        if cluster.parent is not None:
            del cluster.parent.children[cluster.cluster_id]
        cluster.changed()
        cluster.tree = None

    def get(self, cluster_id: str) -> VCluster:
        cluster = self.clusters.get(cluster_id)
        if cluster is None:
            some = ", ".join(sorted(self.clusters)[:3]) or "none"
            raise UnknownNameError(f"there is no virtual cluster {cluster_id!r}: the live ones are {some}")
        return cluster
