"""Placement groups: where their bundles could go now, or if nothing else ran, and which of their options counts."""

from __future__ import annotations

from dataclasses import replace

from remora.kernel.placing.enlarging import parts_of_bundles
from remora.kernel.placing.gang import Gang, gang_of_bundles
from remora.kernel.placing.what_if import empty_copy, fits_with_types, layout
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Group, Host
from remora.model.groups import Bundle


def attempt(cluster: Cluster, space: VCluster | None, group: Group, option: int, taken: list[Host | None]) -> Gang:
    request = group.request
    return gang_of_bundles(cluster, space, request.options[option], request.strategy, taken, request.levels(option))


def space_of(cluster: Cluster, group: Group) -> VCluster | None:
    return cluster.tree.get(group.request.cluster) if group.request.cluster is not None else None


def would_fit(cluster: Cluster, group: Group, bundles: tuple[Bundle, ...]) -> bool:
    """Return whether a group that waits could be placed now with these bundles instead of its own."""
    option = group.option if group.hosts else 0
    changed = Group(group.group_id, replace(group.request.only(option), options=(bundles,)))
    taken = list(group.hosts) or [None] * len(bundles)
    return attempt(cluster, space_of(cluster, group), changed, 0, taken).place() is not None


def could_ever(cluster: Cluster, group: Group, option: int) -> bool:
    """Return whether an option would fit if nothing else ran, machines that may be started counted in. Kept until a node
    changes. A search that gave up is a maybe."""
    space = space_of(cluster, group)
    depends = layout(cluster, space)
    known = group.ever_fits.get(option)
    if known is None or known[0] != depends:
        twin, inner = empty_copy(cluster, space)
        bundles = group.request.options[option]

        def fits(tried: Cluster) -> bool:
            gang = attempt(tried, inner, group, option, [None] * len(bundles))
            return gang.place() is not None or gang.gave_up

        ever = fits(twin)
        if not ever and cluster.types is not None:
            parts = parts_of_bundles(bundles, group.request.strategy)
            levels = group.request.levels(option)
            ever = fits_with_types(cluster, twin, inner, cluster.types.at_hand, parts, fits, levels)
        known = group.ever_fits[option] = (depends, ever)
    return known[1]


def is_there(cluster: Cluster, group: Group, option: int) -> bool:
    """Return whether an option would fit on the nodes that are there, if nothing else ran."""
    if cluster.types is None:
        return could_ever(cluster, group, option)
    space = space_of(cluster, group)
    twin, inner = empty_copy(cluster, space)
    gang = attempt(twin, inner, group, option, [None] * len(group.request.options[option]))
    return gang.place() is not None or gang.gave_up


def first_possible(cluster: Cluster, group: Group) -> int | None:
    """Return the option that is waited for: the first that would fit if nothing else ran."""
    return next((option for option in range(len(group.request.options)) if could_ever(cluster, group, option)), None)
