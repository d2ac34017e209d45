"""A virtual cluster that its parent cannot hold as things are: whether only taints are in the way, and else why never; and
resources that are spelled like others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from remora.kernel.explaining.explain import RESOURCES, Explanation, Suggestion
from remora.kernel.placing import inside
from remora.kernel.placing.what_if import could_ever_reserve, layout
from remora.kernel.rules import Change
from remora.kernel.rules.base import verb
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.node_table import TAINT
from remora.model.labels import Labels
from remora.model.requests import NodeClass
from remora.model.resources import Resources, show_amounts
from remora.model.selectors import LabelSelector
from remora.model.virtual_clusters import STRICT_SPREAD, FixedSizeNode

_FEW = 8
"""Of so many different taints all pairs are tried; of more only each by itself, and all together."""


def taints_in_the_way(cluster: Cluster, vcluster: VCluster) -> Labels:
    """Return the fewest taints that keep a virtual cluster out, where it would fit if it tolerated them; else nothing. Kept
    until a node or its parent's layout changes."""
    depends = layout(cluster, vcluster.parent)
    if vcluster.kept_out_by is None or vcluster.kept_out_by[0] != depends:
        vcluster.kept_out_by = (depends, _in_the_way(cluster, vcluster))
    return vcluster.kept_out_by[1]


def _in_the_way(cluster: Cluster, vcluster: VCluster) -> Labels:
    tolerations = vcluster.tolerations
    taints = sorted((key, value) for key, value, _ in cluster.nodes.taints.values(TAINT))
    refused = [(key, value) for key, value in taints if not tolerations.tolerates_one(key, value)]
    sizes = [1, *([2] if len(refused) <= _FEW else []), len(refused)] if refused else []
    if not refused or not _fits_with(cluster, vcluster, refused):
        return ()
    for size in sizes:
        found = next((some for some in combinations(refused, size) if _fits_with(cluster, vcluster, some)), None)
        if found is not None:
            return tuple(found)
    return ()


def kept_out(cluster: Cluster, vcluster: VCluster, taints: Labels) -> Explanation:
    """Return why a virtual cluster waits that only these taints keep out."""
    named = " and ".join(f"{key}={value}" for key, value in taints)
    many = "taints" if len(taints) > 1 else "taint"
    where = vcluster.parent.cluster_id if vcluster.parent is not None else "the cluster"
    tainted = 0
    for key, value, nodes in cluster.nodes.taints.values(TAINT):
        tainted |= nodes if (key, value) in taints else 0
    reason = (
        f"{where} could hold {show_amounts(vcluster.minimum())} only with the "
        f"{verb(tainted.bit_count(), 'node that has', 'nodes that have')} the untolerated {many} {named}"
    )
    changes = tuple(Change("tolerate", key, f"tolerate {key}") for key, _ in dict(taints).items())
    return Explanation(reason, (), (Suggestion(changes),), RESOURCES)


def why_never(cluster: Cluster, vcluster: VCluster) -> str:
    """Return why a virtual cluster can never fit its parent, and what to ask for instead."""
    nodes = inside.untainted(cluster, NodeClass(LabelSelector(), vcluster.tolerations))
    parent = vcluster.parent
    count = len(cluster.nodes.by_id)
    where = f"its parent {parent.cluster_id}" if parent else f"the cluster of {verb(count, 'node', 'nodes')}"
    grown = " and all node types are at their maximum" if cluster.types is not None else ""
    never = f"the minimum of {show_amounts(vcluster.minimum())} can never fit {where}, even when nothing else runs{grown}"
    has = _has(cluster, parent, nodes)
    meant = [f"{name} is in no node: did you mean {other}?" for name, other in lookalikes(has, vcluster.minimum())]
    if meant:
        return f"{never}: {'; '.join(meant)}"
    lacking = [name for name, units in vcluster.minimum().pairs if has.get(name, 0) < units]
    if lacking:
        there = show_amounts(Resources({name: has.get(name, 0) for name in lacking})) if any(map(has.get, lacking)) else ""
        there = there or f"no {' and no '.join(lacking)}"
        return f"{never}: it has {there}; ask for less, or for smaller fixed-size nodes"
    apart = [each for each in vcluster.spec.fixed_size_nodes if each.scheduling_policy == STRICT_SPREAD and len(each.nodes) > 1]
    if parent is None and apart:
        team = max(apart, key=lambda each: len(each.nodes))
        smallest = min(team.nodes, key=lambda node: sum(node.resources.values()))
        room = _holding(cluster, nodes, smallest)
        if room < len(team.nodes):
            return (
                f"{never}: STRICT_SPREAD asks for {len(team.nodes)} different nodes, and {verb(room, 'has', 'have')} "
                f"{show_amounts(smallest.resources)}; ask for fewer or smaller fixed-size nodes, or for SPREAD or PACK"
            )
    if parent is None:
        for node in vcluster.spec.fixed_nodes:
            if not _holding(cluster, nodes, node):
                return f"{never}: no node has {show_amounts(node.resources)} by itself; ask for smaller fixed-size nodes"
    return (
        f"{never}: there is that much in sum, but not laid out as asked; ask for less, or for smaller fixed-size nodes, or for "
        "another scheduling policy"
    )


def lookalikes(has: Mapping[str, int], names: Iterable[str]) -> list[tuple[str, str]]:
    """Return those of the names that nothing has and that are spelled like one that is there, each with that."""
    known = {_plain(name): name for name, units in has.items() if units}
    found = ((name, known.get(_plain(name))) for name in names if not has.get(name))
    return [(name, other) for name, other in found if other is not None]


def resources_of(cluster: Cluster) -> dict[str, int]:
    """Return what all nodes have together; of types that can be started too, so that no name of theirs is unknown."""
    templates = cluster.types.templates.nodes.by_id.values() if cluster.types is not None else ()
    found: dict[str, int] = {}
    for node in (*cluster.nodes.by_id.values(), *templates):
        for name, units in node.total.items():
            found[name] = found.get(name, 0) + units
    return found


def _plain(name: str) -> str:
    """Return a name without what people get wrong: case, underscores, a plural, the word num."""
    plain = name.lower().replace("_", "").replace("-", "").removeprefix("num")
    return plain.removesuffix("s") if len(plain) > 2 else plain


def _fits_with(cluster: Cluster, vcluster: VCluster, taints: Iterable[tuple[str, str]]) -> bool:
    tolerations = vcluster.tolerations
    for key, _ in taints:
        tolerations = tolerations.also(key)
    probe = VCluster(vcluster.cluster_id, vcluster.spec, vcluster.parent, 0, 0, tolerations)
    return could_ever_reserve(cluster, probe)


def _has(cluster: Cluster, parent: VCluster | None, nodes: NodeSet) -> dict[str, int]:
    """Return the most that a parent can have, or the nodes that are open."""
    found: dict[str, int] = {}
    for number in members(nodes):
        for name, units in cluster.nodes.at(number).total.items():
            found[name] = found.get(name, 0) + units
    for above in parent.chain() if parent is not None else ():
        for name in found:
            limit = above.spec.limit(name)
            if limit is not None:
                fixed = sum(node.resources.get(name, 0) for node in above.spec.fixed_nodes)
                found[name] = min(found[name], limit + fixed)
    return found


def _holding(cluster: Cluster, nodes: NodeSet, node: FixedSizeNode) -> int:
    return (cluster.totals.at_least(node.resources) & nodes).bit_count()
