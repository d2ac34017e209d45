"""The kernel's answers worked out the slow way: every node, every rule, every placed workload, no index.

Tests hold the kernel to it, and the benchmark runs beside it. Only for the physical cluster.
"""

from __future__ import annotations

from typing import Any

from remora.kernel.state.cluster import Cluster
from remora.kernel.state.load import CALM_STEPS
from remora.kernel.state.node_table import Node
from remora.kernel.state.workloads import Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.selectors import LabelMatchExpression
from remora.model.spreading import Spread
from remora.model.strategies import OBJECT, SPREAD


def decide_by_brute_force(cluster: Cluster, request: Request, labels: Labels = (), workload_id: str = "") -> str | None:
    """The id of the node that the kernel must choose, or None when it must wait."""
    request = request.of(labels)
    repelling = symmetric(cluster)
    for choice in request.choices:
        spreads = [(each.over, open_domains(cluster, request, choice, each)) for each in request.spreads if each.hard]
        wished = [(each.over, wished_domains(cluster, request, choice, each)) for each in request.spreads]
        nodes = [node for node in cluster.nodes.by_id.values() if admits(choice, node)]
        fitting = [node for node in nodes if request.demand.fits_in(free(cluster, node))]
        fitting = [
            node
            for node in fitting
            if obeys_affinity(cluster, request, node)
            and all(node.labels.get(over) in domains for over, domains in spreads)
            and not repels(cluster, repelling, request, labels, workload_id, node)
        ]
        if fitting:
            return min(fitting, key=lambda node: rank(cluster, request, wished, node)).node_id
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


def domain(cluster: Cluster, request: Request, topology: str, node: Node) -> list[Node]:
    """The nodes in one domain with a node: all with the same value of the label; none where it has none; itself without one.
    In a virtual cluster those of its own nodes, and the node itself."""
    if not topology:
        return [node]
    value = node.labels.get(topology)
    found = [other for other in cluster.nodes.by_id.values() if value is not None and other.labels.get(topology) == value]
    if request.cluster is None:
        return found
    own = {vnode.node for vnode in cluster.tree.get(request.cluster).vnodes()}
    return [other for other in found if other is node or other.number in own]


def holds(cluster: Cluster, owner: str, request: Request, term: LabelMatchExpression, node: Node) -> bool:
    """One expression over the union of the labels on a node, or in its domain: judged by itself, absent unless something has
    it."""
    found = False
    for other in domain(cluster, request, term.topology, node):
        for workload in cluster.on_node[other.number].values():
            if term.key == ACTOR_ID:
                found |= workload.workload_id in term.values
            elif (workload.request.kind, workload.request.namespace) == (owner, request.namespace):
                value = dict(workload.labels).get(term.key)
                found |= value is not None and (not term.takes_values or value in term.values)
    return found == term.positive


def obeys_affinity(cluster: Cluster, request: Request, node: Node) -> bool:
    for affinity in request.affinities:
        verdicts = [holds(cluster, affinity.owner, request, term, node) for term in affinity.hard]
        if verdicts and not (any(verdicts) if affinity.any_of else all(verdicts)):
            return False
    return True


def symmetric(cluster: Cluster) -> list[Workload]:
    """What is placed and may keep newcomers away."""
    return [each for each in cluster.placed.values() if any(item.symmetric for item in each.request.affinities)]


def repels(cluster: Cluster, repelling: list[Workload], request: Request, labels: Labels, workload_id: str, node: Node) -> bool:
    """Whether something on the node, or in a domain of it, with symmetric=True keeps this newcomer away."""
    own = dict(labels)
    for workload in repelling:
        there = cluster.nodes.at(workload.node)
        for affinity in workload.request.affinities:
            if not affinity.symmetric or affinity.owner != request.kind:
                continue
            for term in affinity.hard:
                if there not in domain(cluster, request, term.topology, node):
                    continue
                if term.key == ACTOR_ID and not term.positive and workload_id in term.values:
                    return True
                same = workload.request.namespace == request.namespace and term.key != ACTOR_ID
                if same and not term.positive and not term.matches(own):
                    return True
    return False


def counts_by_domain(cluster: Cluster, request: Request, spread: Spread) -> dict[str, int]:
    """How many that count there are in each domain, also where there are none."""
    counts = {node.labels[spread.over]: 0 for node in cluster.nodes.by_id.values() if spread.over in node.labels}
    for workload in cluster.placed.values():
        value = cluster.nodes.at(workload.node).labels.get(spread.over)
        counted = all(term.matches(dict(workload.labels)) for term in spread.counted or ())
        near = workload.request.namespace == request.namespace and request.cluster in (None, workload.request.cluster)
        if value is not None and counted and near and workload.request.kind != OBJECT:
            counts[value] += 1
    return counts


def open_domains(cluster: Cluster, request: Request, choice: NodeClass, spread: Spread) -> set[str]:
    """The domains in which there would not be too many above the least, of those where it could ever run."""
    counts = counts_by_domain(cluster, request, spread)
    possible = _domains_that_count(cluster, request, choice, spread)
    own = 1 if spread.own else 0
    if spread.min_domains and sum(counts[each] > 0 for each in possible) < spread.min_domains:
        return {each for each in counts if not (own and counts[each])}
    if not possible:
        return set(counts)
    if spread.min_domains:
        least = sorted((counts[each] for each in possible), reverse=True)[spread.min_domains - 1]
    else:
        least = min(counts[each] for each in possible)
    return {each for each in counts if counts[each] + own - least <= spread.max_skew}


def _domains_that_count(cluster: Cluster, request: Request, choice: NodeClass, spread: Spread) -> set[str]:
    return {
        node.labels[spread.over]
        for node in cluster.nodes.by_id.values()
        if spread.over in node.labels and admits(choice, node) and request.demand.fits_in(node.total)
    }


def wished_domains(cluster: Cluster, request: Request, choice: NodeClass, spread: Spread) -> set[str]:
    """The domains that a spread would rather have: a soft one those with the fewest that have room now; one with a floor, once
    that is reached, those in use."""
    counts = counts_by_domain(cluster, request, spread)
    if spread.min_domains:
        possible = _domains_that_count(cluster, request, choice, spread)
        if sum(counts[each] > 0 for each in possible) >= spread.min_domains:
            return {each for each in counts if counts[each]}
        return {each for each in counts if spread.soft and not counts[each]}
    if not spread.soft:
        return set()
    roomy = [
        counts[other.labels[spread.over]]
        for other in cluster.nodes.by_id.values()
        if spread.over in other.labels
        and admits(choice, other)
        and request.demand.fits_in(other.total)
        and request.demand.fits_in(free(cluster, other))
    ]
    return {each for each in counts if roomy and counts[each] <= min(roomy) + spread.max_skew - 1}


def rank(cluster: Cluster, request: Request, wished: list[tuple[str, set[str]]], node: Node) -> tuple[Any, ...]:
    """Smaller is better: wishes, GPUs left alone, load by policy, then the order that the seed turns."""
    wishes = sum(term.matches(node.labels) for term in request.wishes) + (request.wished_node == node.node_id)
    for affinity in request.affinities:
        wishes += sum(holds(cluster, affinity.owner, request, term, node) for term in affinity.soft)
    wishes += sum(node.labels.get(over) in domains for over, domains in wished)
    step = cluster.load.step_of(node.number)
    size = len(cluster.nodes.by_number)
    start = cluster.seed % size
    if request.policy == SPREAD:
        start = (cluster.last_spread + 1) % size if cluster.last_spread >= 0 else start
    elif step < CALM_STEPS:
        step = 0
    spare_gpu = "GPU" not in request.demand and node.total.get("GPU", 0) > 0
    return (-wishes, spare_gpu, step, (node.number - start) % size)
