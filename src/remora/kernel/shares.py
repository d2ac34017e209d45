"""The arithmetic over the tree: take from a host, give back, grow, shrink.

Taking from a flexible virtual node that has too little grows it: from its parent, which may grow in turn, up to the
physical node. A cluster at its maximum may still move idle shares of its own from other nodes. Every step is written
into a journal, so that a failed attempt, or a trial that was only a question, leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from remora.kernel.nodesets import NodeSet, members
from remora.kernel.tree import VCluster, VNode
from remora.kernel.workloads import Host
from remora.model.resources import Resources

if TYPE_CHECKING:
    from remora.kernel.cluster import Cluster

Pairs = Iterable[tuple[str, int]]
Journal = list[Callable[[], None]]


def fits(cluster: Cluster, host: Host, amounts: Resources) -> bool:
    """Whether ``take`` would succeed; nothing changes."""
    journal: Journal = []
    try:
        return take(cluster, host, amounts.pairs, journal)
    finally:
        undo(journal)


def take(cluster: Cluster, host: Host, amounts: Pairs, journal: Journal) -> bool:
    """Take ``amounts`` from a host. On False the caller undoes the journal back to where it was."""
    if host.cluster is None:
        return _take_physical(cluster, host.node, tuple(amounts), journal)
    if host.fixed is None:
        return _take_flexible(cluster, host.cluster, host.node, dict(amounts), journal)
    beside: dict[str, int] = {}
    for name, units in amounts:
        if name not in host.fixed.total:
            beside[name] = units  # what a fixed-size node does not name comes from the flexible part beside it
        elif host.fixed.idle(name) < units:
            return False
        else:
            _use(host.fixed, name, units, journal)
    return not beside or _take_flexible(cluster, host.cluster, host.node, beside, journal)


def give(cluster: Cluster, host: Host, amounts: Pairs, journal: Journal | None = None) -> None:
    """Give back what was taken from a host. A flexible node keeps what it has grown to until it is trimmed."""
    journal = [] if journal is None else journal
    for name, units in amounts:
        if host.cluster is None:
            _change_available(cluster, host.node, name, units, journal)
        elif host.fixed is not None and name in host.fixed.total:
            _use(host.fixed, name, -units, journal)
        else:
            _use(host.cluster.flex[host.node], name, -units, journal)


def undo(journal: Journal, mark: int = 0) -> None:
    while len(journal) > mark:
        journal.pop()()


def reserve_flexible(cluster: Cluster, vcluster: VCluster, amounts: Resources, nodes: NodeSet, journal: Journal) -> bool:
    """Add ``amounts`` to the flexible part, on whichever of ``nodes`` have room, the roomiest first."""
    for name, units in amounts.pairs:
        missing = units
        candidates = members(reachable(cluster, vcluster.parent, Resources({name: 1}), {}) & nodes)
        roomy = [(-_reach_sources(cluster, vcluster, number, name), number) for number in candidates]
        for _, number in sorted(roomy):
            # Asked again: what the last node took may have used up an ancestor's maximum.
            part = min(missing, _reach_sources(cluster, vcluster, number, name))
            if part and _grow(cluster, vcluster, number, {name: part}, journal):
                missing -= part
            if not missing:
                break
        if missing:
            return False
    return True


def trim(cluster: Cluster, vcluster: VCluster, journal: Journal | None = None) -> None:
    """Return the idle part of the flexible share above the minimum, here and then in every ancestor."""
    journal = [] if journal is None else journal
    for ancestor in vcluster.chain():
        for name in list(ancestor.flex_total):
            excess = ancestor.flex_total[name] - ancestor.spec.flexible_resource_min.get(name, 0)
            _shrink(cluster, ancestor, name, min(excess, ancestor.flex_idle(name)), None, journal)
        _drop_empty(ancestor)


def reachable(cluster: Cluster, vcluster: VCluster | None, demand: Resources, released: dict[str, int]) -> NodeSet:
    """A superset of the nodes on which ``demand`` can be taken; ``released`` is what a child would first give back."""
    if vcluster is None:
        # A child that moves its share gives back on *other* nodes, so nothing is added here.
        return cluster.available.at_least(demand)
    nodes = vcluster.nodes()
    freed: dict[str, int] = {}
    for name, units in demand.pairs:
        freed[name] = released.get(name, 0) + vcluster.flex_idle(name)
        room = vcluster.headroom(name)
        if room is not None and room + freed[name] < units:
            return nodes
    return nodes | reachable(cluster, vcluster.parent, demand, freed)


def reach(cluster: Cluster, host: Host, name: str, released: int = 0) -> int:
    """The most of one resource that could be taken from a host, growth and moves counted in."""
    if host.cluster is None:
        return cluster.available.get(host.node, name)
    if host.fixed is not None and name in host.fixed.total:
        return host.fixed.idle(name)
    vnode = host.cluster.flex.get(host.node)
    own = vnode.idle(name) if vnode else 0
    elsewhere = released + host.cluster.flex_idle(name) - own
    above = _reach_sources(cluster, host.cluster, host.node, name, elsewhere)
    room = host.cluster.headroom(name)
    return own + (above if room is None else min(above, room + elsewhere))


def _reach_sources(cluster: Cluster, vcluster: VCluster, number: int, name: str, released: int = 0) -> int:
    return max(reach(cluster, source, name, released) for source in _sources(vcluster, number))


def parent_hosts(vcluster: VCluster, number: int) -> list[Host]:
    """Where a virtual node of this cluster on that physical node may take its resources from."""
    parent = vcluster.parent
    if parent is None:
        return [Host(None, number, None)]
    fixed = [Host(parent, number, vnode) for vnode in parent.fixed if vnode is not None and vnode.node == number]
    return [*fixed, Host(parent, number, None)]


def _take_physical(cluster: Cluster, number: int, amounts: tuple[tuple[str, int], ...], journal: Journal) -> bool:
    if not cluster.nodes.alive >> number & 1:
        return False
    if any(cluster.available.get(number, name) < units for name, units in amounts):
        return False
    for name, units in amounts:
        _change_available(cluster, number, name, -units, journal)
    return True


def _take_flexible(cluster: Cluster, vcluster: VCluster, number: int, amounts: dict[str, int], journal: Journal) -> bool:
    vnode = vcluster.flex.get(number)
    short = {name: units - (vnode.idle(name) if vnode else 0) for name, units in amounts.items()}
    short = {name: units for name, units in short.items() if units > 0}
    if short and not _grow(cluster, vcluster, number, short, journal):
        return False
    if amounts:
        vnode = vcluster.flex[number]
        for name, units in amounts.items():
            _use(vnode, name, units, journal)
    return True


def _grow(cluster: Cluster, vcluster: VCluster, number: int, amounts: dict[str, int], journal: Journal) -> bool:
    for name, units in amounts.items():
        room = vcluster.headroom(name)
        if room is not None and units > room and _shrink(cluster, vcluster, name, units - room, number, journal) < units - room:
            return False
    if _grow_within(cluster, vcluster, number, amounts, journal):
        return True
    # The limit may be an ancestor's: idle shares of our own elsewhere, given back, make room there.
    moved = [_shrink(cluster, vcluster, name, units, number, journal) for name, units in amounts.items()]
    return any(moved) and _grow_within(cluster, vcluster, number, amounts, journal)


def _grow_within(cluster: Cluster, vcluster: VCluster, number: int, amounts: dict[str, int], journal: Journal) -> bool:
    vnode = vcluster.flex.get(number)
    for host in _sources(vcluster, number):
        mark = len(journal)
        if take(cluster, host, amounts.items(), journal):
            if vnode is None:
                vnode = _make_flexible(vcluster, host, journal)
            elif vnode.host != host:
                _rebind(vnode, host, journal)
            for name, units in amounts.items():
                _resize(vnode, name, units, journal)
            return True
        undo(journal, mark)
    return False


def _sources(vcluster: VCluster, number: int) -> list[Host]:
    """Where the flexible node may grow from: once it holds anything, only from where it came."""
    vnode = vcluster.flex.get(number)
    return [vnode.host] if vnode is not None and vnode.total else parent_hosts(vcluster, number)


def _shrink(cluster: Cluster, vcluster: VCluster, name: str, units: int, spare: int | None, journal: Journal) -> int:
    """Give up to ``units`` of idle flexible share back to the parent, from any node but ``spare``; how much it was."""
    left = units
    for number in sorted(vcluster.flex, reverse=True):
        if left <= 0:
            break
        vnode = vcluster.flex[number]
        amount = min(left, vnode.idle(name))
        if number != spare and amount > 0:
            _resize(vnode, name, -amount, journal)
            give(cluster, vnode.host, ((name, amount),), journal)
            left -= amount
    return units - left


def _use(vnode: VNode, name: str, units: int, journal: Journal) -> None:
    bump(vnode.used, name, units)
    if not vnode.fixed:
        bump(vnode.cluster.flex_used, name, units)
    journal.append(lambda: _use(vnode, name, -units, []))


def _resize(vnode: VNode, name: str, units: int, journal: Journal) -> None:
    bump(vnode.total, name, units)
    bump(vnode.cluster.flex_total, name, units)
    journal.append(lambda: _resize(vnode, name, -units, []))


def _make_flexible(vcluster: VCluster, host: Host, journal: Journal) -> VNode:
    vnode = vcluster.flex[host.node] = VNode(vcluster.next_vnode_id(), vcluster, host, None)
    journal.append(lambda: _forget_flexible(vcluster, host.node))
    return vnode


def _forget_flexible(vcluster: VCluster, number: int) -> None:
    del vcluster.flex[number]
    vcluster.take_back_vnode_id()


def _rebind(vnode: VNode, host: Host, journal: Journal) -> None:
    old, vnode.host = vnode.host, host

    def back() -> None:
        vnode.host = old

    journal.append(back)


def _drop_empty(vcluster: VCluster) -> None:
    for number, vnode in list(vcluster.flex.items()):
        if not vnode.total:
            del vcluster.flex[number]


def _change_available(cluster: Cluster, number: int, name: str, units: int, journal: Journal) -> None:
    cluster.available.add(number, name, units)
    cluster.load.update(number)
    journal.append(lambda: _change_available(cluster, number, name, -units, []))


def bump(amounts: dict[str, int], name: str, units: int) -> None:
    left = amounts.get(name, 0) + units
    if left:
        amounts[name] = left
    else:
        amounts.pop(name, None)
