"""Placement groups: where their bundles could go now, or if nothing else ran, and which of their options counts."""

from __future__ import annotations

from dataclasses import replace

from remora.kernel.cluster import Cluster
from remora.kernel.gang import Gang, gang_of_bundles
from remora.kernel.tree import VCluster
from remora.kernel.whatif import emptied, layout
from remora.kernel.workloads import Group, Host
from remora.model.groups import Bundle


def attempt(cluster: Cluster, space: VCluster | None, group: Group, option: int, taken: list[Host | None]) -> Gang:
    return gang_of_bundles(cluster, space, group.request.options[option], group.request.strategy, taken)


def space_of(cluster: Cluster, group: Group) -> VCluster | None:
    return cluster.tree.get(group.request.cluster) if group.request.cluster is not None else None


def would_fit(cluster: Cluster, group: Group, bundles: tuple[Bundle, ...]) -> bool:
    """Whether a group that waits could be placed now with these bundles instead of its own."""
    changed = Group(group.group_id, replace(group.request, options=(bundles,)))
    taken = list(group.hosts) or [None] * len(bundles)
    return attempt(cluster, space_of(cluster, group), changed, 0, taken).place() is not None


def could_ever(cluster: Cluster, group: Group, option: int) -> bool:
    """Whether an option would fit if nothing else ran; kept until a node changes. A search that gave up is a maybe."""
    space = space_of(cluster, group)
    depends = layout(cluster, space)
    known = group.ever_fits.get(option)
    if known is None or known[0] != depends:
        twin, inner = emptied(cluster, space)
        gang = attempt(twin, inner, group, option, [None] * len(group.request.options[option]))
        known = group.ever_fits[option] = (depends, gang.place() is not None or gang.gave_up)
    return known[1]


def first_possible(cluster: Cluster, group: Group) -> int | None:
    """The option that is waited for: the first that would fit if nothing else ran."""
    return next((option for option in range(len(group.request.options)) if could_ever(cluster, group, option)), None)
