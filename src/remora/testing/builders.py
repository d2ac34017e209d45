"""Builders that read as sentences: ``make_cluster(make_node("n1").cpu(4).label(zone="a").taint(gpu_node="true"))``.

They feed a ``SimCluster``, so a test of users' own placement rules needs no Ray and takes a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from remora.sim.sim_cluster import SimCluster


@dataclass(frozen=True)
class NodeBuilder:
    """A node to be. Every step returns a new builder, so a half-described node can be the base of several.

    Examples:
        >>> big = make_node("n1").cpu(64).label(zone="a")
        >>> big.gpu(8).taint(gpu_node="true").resources
        {'CPU': 64, 'GPU': 8}
        >>> big.resources
        {'CPU': 64}
    """

    node_id: str
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Mapping[str, str] = field(default_factory=dict)

    def named(self, node_id: str) -> NodeBuilder:
        """The same node under another id."""
        return replace(self, node_id=node_id)

    def cpu(self, amount: float) -> NodeBuilder:
        """With so many CPUs."""
        return self.holds(CPU=amount)

    def gpu(self, amount: float) -> NodeBuilder:
        """With so many GPUs."""
        return self.holds(GPU=amount)

    def holds(self, resources: Mapping[str, float] | None = None, /, **more: float) -> NodeBuilder:
        """With these resources on top of those it has."""
        return replace(self, resources={**self.resources, **(resources or {}), **more})

    def label(self, labels: Mapping[str, str] | None = None, /, **more: str) -> NodeBuilder:
        """With these labels; a mapping says what a keyword can't: ``label({"ray.io/market-type": "spot"})``."""
        return replace(self, labels={**self.labels, **(labels or {}), **more})

    def taint(self, taints: Mapping[str, str] | None = None, /, **more: str) -> NodeBuilder:
        """With these taints: only what tolerates them all is placed there."""
        return replace(self, taints={**self.taints, **(taints or {}), **more})

    def join(self, cluster: SimCluster) -> None:
        """Add the node to a cluster that is there already."""
        cluster.add_node(self.node_id, resources=self.resources, labels=self.labels, taints=self.taints)


def make_node(node_id: str) -> NodeBuilder:
    """A node with nothing on it yet."""
    return NodeBuilder(node_id)


def make_nodes(count: int, like: NodeBuilder | None = None, *, prefix: str = "n") -> list[NodeBuilder]:
    """``n1``, ``n2``, ...: as many as asked for, each like the one given, or with 4 CPUs."""
    base = like if like is not None else make_node(prefix).cpu(4)
    return [base.named(f"{prefix}{index}") for index in range(1, count + 1)]


def make_cluster(*nodes: NodeBuilder | Iterable[NodeBuilder], seed: int = 0) -> SimCluster:
    """A dry-run cluster with these nodes, which join in the order given.

    Examples:
        >>> cluster = make_cluster(make_node("n1").cpu(4), make_nodes(2, make_node("").gpu(1), prefix="g"))
        >>> cluster.submit("actor", resources={"GPU": 1}).node
        'g1'
    """
    cluster = SimCluster(seed)
    for entry in nodes:
        for node in [entry] if isinstance(entry, NodeBuilder) else entry:
            node.join(cluster)
    return cluster


__all__ = ["NodeBuilder", "make_cluster", "make_node", "make_nodes"]
