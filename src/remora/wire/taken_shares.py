"""Which share tokens work in a virtual cluster takes: the same wherever it is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.model.virtual_clusters import VNODE_LABEL, VirtualCluster
from remora.wire.classes import ClassSpec
from remora.wire.tokens import share_token


def taken_shares(cluster_id: str, resources: Mapping[str, float]) -> dict[str, float]:
    """Return as much of the share of each resource as is taken of the resource."""
    return {share_token(cluster_id, name): amount for name, amount in resources.items() if amount}


def taken_part(spec: ClassSpec, selected: Iterable[str], resources: Mapping[str, float]) -> dict[str, float]:
    """Return the same of the part of the cluster that a class selects; ``selected`` are the resources that this part has."""
    return {share_token(spec.part_id, name): resources[name] for name in selected if resources.get(name)}


def selects(spec: ClassSpec) -> bool:
    """Return whether a class may tell some nodes of its cluster from the others."""
    return any(choice.selector.terms for choice in spec.choices)


def resources_selected(cluster: VirtualCluster, spec: ClassSpec) -> frozenset[str]:
    """Return the resources of the fixed-size nodes that a class tells from the others by their labels or by their names; none
    where it tells none from the others."""
    nodes = [node for nodes in cluster.fixed_size_nodes for node in nodes.nodes]
    keys = {key for node in nodes for key, _ in node.labels}
    found: set[str] = set()
    for choice in spec.choices:
        terms = [term for term in choice.selector.terms if term.key in keys]
        by_id = any(term.key == VNODE_LABEL for term in choice.selector.terms)
        for node in nodes:
            if (terms or by_id) and all(term.matches(dict(node.labels)) for term in terms):
                found |= set(node.resources)
    return frozenset(found)
