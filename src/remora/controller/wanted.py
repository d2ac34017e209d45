"""What virtual clusters want: tokens, by what was decided; and room, by what waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from remora.controller.cluster_memory import Record
from remora.controller.clusters import Clusters, Units
from remora.kernel.observing import own_total
from remora.kernel.shares import bump
from remora.kernel.tree import VNode
from remora.model.resources import UNIT, Resources
from remora.wire.classes import ClassSpec
from remora.wire.tokens import bundle_id, class_of_token, cluster_of_class, is_real, share_token


def share_tokens(clusters: Clusters) -> dict[str, Units]:
    """For each node, how much of each share token its clusters' own work may take."""
    wanted: dict[str, Units] = {}
    for record in clusters.records.values():
        for owner, vnode in _owners(clusters, record):
            _add(wanted, clusters, owner, vnode)
    return wanted


def part_tokens(clusters: Clusters, spec: ClassSpec, admits: Callable[[VNode], bool]) -> dict[str, Units]:
    """For each node, what the virtual nodes that a class selects have together."""
    wanted: dict[str, Units] = {}
    record = clusters.records.get(spec.cluster or "")
    for vnode in record.vcluster.vnodes() if record is not None else ():
        if vnode.fixed and admits(vnode):
            _add(wanted, clusters, spec.part_id, vnode)
    return wanted


def waiting_in_clusters(
    demands: Iterable[tuple[Mapping[str, float], int]], classes: Mapping[str, ClassSpec]
) -> list[tuple[ClassSpec, Resources, int]]:
    """Of everything that waits, what waits for a share."""
    return [
        (classes[class_id], real, count)
        for shape, count in demands
        for class_id, real in [_class_and_real(shape)]
        if class_id in classes and cluster_of_class(class_id) is not None
    ]


def _owners(clusters: Clusters, record: Record) -> list[tuple[str, VNode]]:
    """Every virtual node, and whose share it is. A berth has nothing for others once its group has left it, and nothing for
    bundles that lost their nodes while nothing may start: what its group has is in use, and stays."""
    cluster_id, berth = record.vcluster.cluster_id, record.berth
    if berth is None:
        return [(cluster_id, vnode) for vnode in record.vcluster.vnodes()]
    if berth.left or (berth.taken and cluster_id in clusters.overdrawn):
        return []
    return [(bundle_id(cluster_id, index), vnode) for index, vnode in enumerate(record.vcluster.fixed) if vnode is not None]


def _add(wanted: dict[str, Units], clusters: Clusters, owner: str, vnode: VNode) -> None:
    tokens = wanted.setdefault(clusters.node_id(vnode.node), {})
    for name in vnode.total:
        bump(tokens, share_token(owner, name), own_total(vnode, name))


def _class_and_real(shape: Mapping[str, float]) -> tuple[str, Resources]:
    class_id = next((found for name in shape if (found := class_of_token(name)) is not None), "")
    return class_id, Resources({name: round(amount * UNIT) for name, amount in shape.items() if is_real(name)})
