"""What SimCluster hands out: a workload, a placement group, a virtual cluster and its nodes, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remora.kernel.explaining.explain import Explanation
from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.virtual_labels import labels_of
from remora.kernel.state.workloads import Group, Workload
from remora.model.resources import from_units
from remora.model.virtual_clusters import VirtualCluster

if TYPE_CHECKING:
    from remora.sim.sim_cluster import SimCluster

PLACED = "PLACED"
PENDING = "PENDING"
FINISHED = "FINISHED"


class SimWorkload:
    """An actor or task in the dry run. It can stand where an actor handle stands: ``affinity(w, False)``."""

    def __init__(self, sim: SimCluster, name: str, kind: str) -> None:
        self._sim = sim
        self.name = name
        self.kind = kind
        self._inner: Workload | None = None
        self._finished = False

    @property
    def workload_id(self) -> str:
        return self._work.workload_id

    @property
    def state(self) -> str:
        """PLACED, PENDING or FINISHED."""
        return FINISHED if self._finished else PLACED if self._work.placed else PENDING

    @property
    def node(self) -> str | None:
        return self._sim.scheduler.cluster.nodes.at(self._work.node).node_id if self._work.placed else None

    @property
    def reason(self) -> str:
        """Why it waits, in one line; empty when it does not."""
        return self.explain().reason

    @property
    def suggestions(self) -> list[str]:
        """The smallest changes that would place it."""
        return [suggestion.text for suggestion in self.explain().suggestions]

    def explain(self) -> Explanation:
        return self._sim.scheduler.explain(self._work) if self.state == PENDING else Explanation("")

    @property
    def _work(self) -> Workload:
        assert self._inner is not None
        return self._inner

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.state}{f' on {self.node}' if self.node else ''}>"


class SimGroup:
    """A placement group in the dry run."""

    def __init__(self, sim: SimCluster, inner: Group) -> None:
        self._sim = sim
        self._inner = inner
        self._finished = False

    @property
    def name(self) -> str:
        return self._inner.group_id

    @property
    def state(self) -> str:
        return FINISHED if self._finished else PLACED if self._inner.placed else PENDING

    @property
    def nodes(self) -> list[str]:
        """The node of each bundle of the option that is placed; empty while it waits."""
        if not self._inner.placed:
            return []
        nodes = self._sim.scheduler.cluster.nodes
        return [nodes.at(host.node).node_id for host in self._inner.hosts if host is not None]

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The bundles that are placed or waited for: those of the first choice, or of the fallback that was taken."""
        return [bundle.resources.to_dict() for bundle in self._inner.bundles]

    @property
    def reason(self) -> str:
        return self.explain().reason

    def explain(self) -> Explanation:
        return self._sim.scheduler.explain(self._inner) if self.state == PENDING else Explanation("")

    def __repr__(self) -> str:
        return f"<placement group {self.name} {self.state} {self.nodes}>"


class SimVirtualNode:
    """A virtual node of a virtual cluster: a share of one node."""

    def __init__(self, sim: SimCluster, inner: VNode) -> None:
        cluster = sim.scheduler.cluster
        parent = inner.host.fixed or (inner.host.cluster.flex.get(inner.node) if inner.host.cluster else None)
        self.node_id: str = inner.vnode_id
        self.parent: str = parent.vnode_id if parent else cluster.nodes.at(inner.node).node_id
        self.physical_node: str = cluster.nodes.at(inner.node).node_id
        self.labels: dict[str, str] = dict(labels_of(cluster, inner))
        self.total: dict[str, float] = {name: from_units(units) for name, units in sorted(inner.total.items())}
        self.available: dict[str, float] = {name: from_units(inner.idle(name)) for name in sorted(inner.total)}

    def __repr__(self) -> str:
        return f"<virtual node {self.node_id} on {self.parent} {self.available} of {self.total}>"


class SimVirtualCluster:
    """A virtual cluster in the dry run."""

    def __init__(self, sim: SimCluster, inner: VCluster) -> None:
        self._sim = sim
        self._inner = inner

    @property
    def cluster_id(self) -> str:
        return self._inner.cluster_id

    @property
    def spec(self) -> VirtualCluster:
        return self._inner.spec

    @property
    def state(self) -> str:
        """READY, QUEUED or DESTROYED."""
        return self._inner.state

    @property
    def reason(self) -> str:
        """Why it is queued, or what a ready one has lost; else empty."""
        return self.explain().reason

    def explain(self) -> Explanation:
        if self._inner.cluster_id not in self._sim.scheduler.cluster.tree.clusters:
            return Explanation("")
        return self._sim.scheduler.explain(self._inner)

    @property
    def nodes(self) -> list[SimVirtualNode]:
        return [SimVirtualNode(self._sim, vnode) for vnode in self._inner.vnodes()]

    def destroy(self) -> None:
        """End its work and its children, and give everything back to the parent."""
        self._sim.destroy(self)

    def __repr__(self) -> str:
        return f"<virtual cluster {self.cluster_id} {self.state}>"
