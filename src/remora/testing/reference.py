"""The kernel's answers worked out the slow way: every node, every rule, every placed workload, no index.

Tests hold the kernel to it, and the benchmark runs beside it. Only for the physical cluster.
"""

from __future__ import annotations

from typing import Any

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.load import CALM_STEPS
from remora.kernel.state.node_table import Node
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.selectors import LabelMatchExpression
from remora.model.strategies import SPREAD


def decide_by_brute_force(cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "") -> str | None:
    """The id of the node that the kernel must choose, or None when it must wait."""
    for choice in request.choices:
        nodes = [node for node in cluster.nodes.by_id.values() if admits(choice, node)]
        fitting = [node for node in nodes if request.demand.fits_in(free(cluster, node))]
        fitting = [
            node
            for node in fitting
            if obeys_affinity(cluster, request, node) and not repels(cluster, request, labels, workload_id, node)
        ]
        if fitting:
            return min(fitting, key=lambda node: rank(cluster, request, node)).node_id
        if any(request.demand.fits_in(node.total) for node in [*nodes, *_startable(cluster, choice)]):
            return None
    return None


def _startable(cluster: Cluster, choice: NodeClass) -> list[Node]:
    """An empty node of each type that may be started and that the choice admits."""
    table = cluster.types
    if table is None:
        return []
    found = [node for node in table.templates.nodes.by_id.values() if node.node_id not in table.resting]
    return [node for node in found if table.types.get(node.node_id).most != 0 and admits(choice, node)]  # type: ignore[union-attr]


def admits(choice: NodeClass, node: Node) -> bool:
    if choice.node_id not in (None, node.node_id) or not choice.selector.matches(node.labels):
        return False
    return choice.tolerations.tolerates(node.taints) and all(any(t.matches(node.labels) for t in ts) for ts in choice.any_of)


def free(cluster: Cluster, node: Node) -> dict[str, int]:
    amounts = dict(node.total)
    for workload in cluster.on_node[node.number].values():
        for name, units in workload.request.resources.pairs if workload.host is None else ():
            amounts[name] = amounts.get(name, 0) - units
    held = [
        (host, bundle.resources)
        for group in cluster.groups.values()
        for host, bundle in zip(group.hosts, group.bundles, strict=True)
    ]
    held += [(vnode.host, Resources(vnode.total)) for vcluster in cluster.tree.clusters.values() for vnode in vcluster.vnodes()]
    for host, resources in held:
        if host is not None and host.cluster is None and host.node == node.number:
            for name, units in resources.pairs:
                amounts[name] = amounts.get(name, 0) - units
    return amounts


def holds(cluster: Cluster, owner: str, namespace: str, term: LabelMatchExpression, node: Node) -> bool:
    """One expression over the union of the labels on a node: judged by itself, absent unless something has it."""
    found = False
    for workload in cluster.on_node[node.number].values():
        if term.key == ACTOR_ID:
            found |= workload.workload_id in term.values
        elif (workload.request.kind, workload.request.namespace) == (owner, namespace):
            value = dict(workload.labels).get(term.key)
            found |= value is not None and (not term.takes_values or value in term.values)
    return found == term.positive


def obeys_affinity(cluster: Cluster, request: Request, node: Node) -> bool:
    for affinity in request.affinities:
        verdicts = [holds(cluster, affinity.owner, request.namespace, term, node) for term in affinity.hard]
        if verdicts and not (any(verdicts) if affinity.any_of else all(verdicts)):
            return False
    return True


def repels(cluster: Cluster, request: Request, labels: Labels, workload_id: str, node: Node) -> bool:
    """Whether something on the node with symmetric=True keeps this newcomer away."""
    own = dict(labels)
    for workload in cluster.on_node[node.number].values():
        for affinity in workload.request.affinities:
            if not affinity.symmetric or affinity.owner != request.kind:
                continue
            for term in affinity.hard:
                if term.key == ACTOR_ID and not term.positive and workload_id in term.values:
                    return True
                same = workload.request.namespace == request.namespace and term.key != ACTOR_ID
                if same and not term.positive and not term.matches(own):
                    return True
    return False


def rank(cluster: Cluster, request: Request, node: Node) -> tuple[Any, ...]:
    """Smaller is better: wishes, GPUs left alone, load by policy, then the order that the seed turns."""
    wishes = sum(term.matches(node.labels) for term in request.wishes) + (request.wished_node == node.node_id)
    for affinity in request.affinities:
        wishes += sum(holds(cluster, affinity.owner, request.namespace, term, node) for term in affinity.soft)
    step = cluster.load.step_of(node.number)
    size = len(cluster.nodes.by_number)
    start = cluster.seed % size
    if request.policy == SPREAD:
        start = (cluster.last_spread + 1) % size if cluster.last_spread >= 0 else start
    elif step < CALM_STEPS:
        step = 0
    spare_gpu = "GPU" not in request.demand and node.total.get("GPU", 0) > 0
    return (-wishes, spare_gpu, step, (node.number - start) % size)
