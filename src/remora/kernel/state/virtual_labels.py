"""The labels of virtual nodes: inherited from the node or virtual node they lie on, then their own.

A flexible virtual node that is not there yet has the labels of wherever it would come from; ``openings`` lists the ways.
"""

from __future__ import annotations

from collections.abc import Mapping

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.workloads import Host
from remora.model.requests import NodeClass
from remora.model.virtual_clusters import VCLUSTER_LABEL, VNODE_LABEL


def labels_of(cluster: Cluster, vnode: VNode) -> dict[str, str]:
    host = vnode.host
    if host.cluster is None:
        inherited = cluster.nodes.at(host.node).labels
    else:
        inherited = labels_of(cluster, host.fixed or host.cluster.flex[host.node])
    return {**inherited, **vnode.labels}


def openings(cluster: Cluster, vcluster: VCluster, number: int) -> list[tuple[Host, dict[str, str]]]:
    """Return the flexible node of a cluster on a physical node: as it is, or every way in which it could come to be."""
    vnode = vcluster.flex.get(number)
    if vnode is not None and vnode.total:
        return [(Host(vcluster, number, None), labels_of(cluster, vnode))]
    own = {
        VNODE_LABEL: vnode.vnode_id if vnode is not None else vcluster.coming_vnode_id(),
        VCLUSTER_LABEL: vcluster.cluster_id,
    }
    parent = vcluster.parent
    if parent is None:
        sources = [(Host(None, number, None), cluster.nodes.at(number).labels)]
    else:
        fixed = [vnode for vnode in parent.fixed if vnode is not None and vnode.node == number]
        sources = [(Host(parent, number, vnode), labels_of(cluster, vnode)) for vnode in fixed]
        sources += openings(cluster, parent, number)
    return [(Host(vcluster, number, None, source), {**labels, **own}) for source, labels in sources]


def admits(choice: NodeClass, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy the part of a class that asks about labels."""
    return choice.selector.matches(labels) and all(any(term.matches(labels) for term in terms) for terms in choice.any_of)


def asks_labels(choice: NodeClass) -> bool:
    return bool(choice.selector or choice.any_of)
