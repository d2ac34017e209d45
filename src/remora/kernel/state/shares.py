"""The arithmetic over the tree: take from a host, give back, grow, shrink.

Taking from a flexible virtual node that has too little grows it: from its parent, which may grow in turn, up to the
physical node. A cluster at its maximum may still move idle shares of its own from other nodes. Every step is written
into a journal, so that a failed attempt, or a trial that was only a question, leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from remora.kernel.state.cluster_tree import VCluster, VNode
from remora.kernel.state.node_sets import NodeSet, members
from remora.kernel.state.workloads import Host
from remora.model.resources import Resources

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster

Pairs = Iterable[tuple[str, int]]
Journal = list[Callable[[], None]]


def fits(cluster: Cluster, host: Host, amounts: Resources) -> bool:
    """Return whether ``take`` would succeed; nothing changes."""
    with trial(cluster) as journal:
        return take(cluster, host, amounts.pairs, journal)


@contextlib.contextmanager
def trial(cluster: Cluster) -> Iterator[Journal]:
    """Undo at the end whatever is written into the journal: it was only a question."""
    journal: Journal = []
    shares_moved = cluster.shares_moved
    try:
        yield journal
    finally:
        undo(journal)
        cluster.shares_moved = shares_moved


def take(cluster: Cluster, host: Host, amounts: Pairs, journal: Journal) -> bool:
    """Take ``amounts`` from a host; return whether they were there. On False the caller undoes the journal back to where it
    was."""
    if host.cluster is None:
        return _take_physical(cluster, host.node, tuple(amounts), journal)
    if host.fixed is None:
        return _take_flexible(cluster, host, dict(amounts), journal)
    beside: dict[str, int] = {}
    for name, units in amounts:
        if name not in host.fixed.total:
            beside[name] = units  # what a fixed-size node does not name comes from the flexible part beside it
        elif host.fixed.idle(name) < units:
            return False
        else:
            use(host.fixed, name, units, journal)
    return not beside or _take_flexible(cluster, Host(host.cluster, host.node, None), beside, journal)


def give(cluster: Cluster, host: Host, amounts: Pairs, journal: Journal | None = None) -> None:
    """Give back what was taken from a host. A flexible node keeps what it has grown to until it is trimmed.

    Where the virtual node is gone there is nothing to give back to, and never more is given back than is counted as used.
    """
    journal = [] if journal is None else journal
    for name, units in amounts:
        if host.cluster is None:
            _change_available(cluster, host.node, name, units, journal)
            continue
        vnode = vnode_of(host, name) or counted_in(host, name)
        counted = min(units, vnode.used.get(name, 0)) if vnode is not None else 0
        if vnode is not None and counted > 0:
            use(vnode, name, -counted, journal)


def force(cluster: Cluster, host: Host, amounts: Pairs) -> None:
    """Count ``amounts`` as taken from a host, whatever it has left."""
    for name, units in amounts:
        if host.cluster is None:
            cluster.nodes.at(host.node).reported = True
            _change_available(cluster, host.node, name, -units, [])
        elif (vnode := vnode_of(host, name)) is not None:
            vnode.reported = True
            use(vnode, name, units)


def vnode_of(host: Host, name: str) -> VNode | None:
    """Return the virtual node that provides a resource; None on the physical cluster, and where there is none.

    What a fixed-size node does not name comes from the flexible node beside it.
    """
    if host.cluster is None:
        return None
    return host.fixed if host.fixed is not None and name in host.fixed.total else host.cluster.flex.get(host.node)


def counted_in(host: Host, name: str) -> VNode | None:
    """Return the fixed-size node in which something is counted whose flexible node is gone: reports do not tell in which it is,
    and fill fixed-size ones first."""
    assert host.cluster is not None
    here = (vnode for vnode in host.cluster.fixed if vnode is not None and vnode.node == host.node)
    return next((vnode for vnode in here if vnode.reported and name in vnode.total), None)


def give_physical(cluster: Cluster, number: int, amounts: Mapping[str, int], journal: Journal) -> None:
    """Let a node have so much more free."""
    for name, units in amounts.items():
        _change_available(cluster, number, name, units, journal)


def undo(journal: Journal, mark: int = 0) -> None:
    while len(journal) > mark:
        journal.pop()()


def reserve_flexible(cluster: Cluster, vcluster: VCluster, amounts: Resources, nodes: NodeSet, journal: Journal) -> bool:
    """Add ``amounts`` to the flexible part, on whichever of ``nodes`` have room, the roomiest first; return whether all was
    found."""
    candidates = {
        name: list(members(reachable(cluster, vcluster.parent, Resources({name: 1}), {}) & nodes)) for name, _ in amounts.pairs
    }
    for name, units in _rarest_first(cluster, vcluster, amounts, candidates):
        missing = units
        roomy = _roomiest_first(cluster, vcluster, name, candidates[name])
        while roomy:
            _, _, number = heapq.heappop(roomy)
            # Asked again: what the last node took may have used up an ancestor's maximum.
            # Less than nothing is left where more is in use than there is, on a live cluster.
            part = min(missing, _reach_sources(cluster, vcluster, number, name))
            if part > 0 and _grow(cluster, Host(vcluster, number, None), {name: part}, journal):
                missing -= part
            if not missing:
                break
        if missing:
            return False
    return True


def _rarest_first(
    cluster: Cluster, vcluster: VCluster, amounts: Resources, candidates: dict[str, list[int]]
) -> list[tuple[str, int]]:
    """Return first what few can provide: it decides where a virtual node comes from, and the rest has to come from there."""
    if vcluster.parent is None or len(amounts) == 1:
        return sorted(amounts.pairs, key=lambda pair: len(candidates[pair[0]]))

    def count(pair: tuple[str, int]) -> int:
        return sum(_count_sources(cluster, vcluster, number, pair[0]) for number in candidates[pair[0]])

    return sorted(amounts.pairs, key=count)


def _roomiest_first(cluster: Cluster, vcluster: VCluster, name: str, numbers: list[int]) -> list[tuple[bool, int, int]]:
    """Return a heap: few of the many nodes of a large cluster are needed. Nodes with GPUs are for those who ask for GPUs."""
    spares = "GPU" not in vcluster.needs()
    if vcluster.parent is None:
        heap = [(spares and _has_gpu(cluster, number), -cluster.available.get(number, name), number) for number in numbers]
    else:
        heap = [
            (spares and _has_gpu(cluster, number), -_reach_sources(cluster, vcluster, number, name), number)
            for number in numbers
        ]
    heapq.heapify(heap)
    return heap


def _has_gpu(cluster: Cluster, number: int) -> bool:
    return cluster.totals.get(number, "GPU") > 0


def trim(cluster: Cluster, vcluster: VCluster) -> None:
    """Give the idle part of the flexible share above the minimum back, here and then in every ancestor."""
    for ancestor in vcluster.chain():
        trim_one(cluster, ancestor)


def trim_one(cluster: Cluster, vcluster: VCluster) -> None:
    """Give the idle part of the flexible share above the minimum back to the parent, which keeps it."""
    shunned = _shunned(cluster, vcluster)
    for name in list(vcluster.flex_total):
        total, least = vcluster.flex_total[name], vcluster.spec.flexible_resource_min.get(name, 0)
        # The minimum has to lie where the cluster's ordinary work may run: there only what is above it goes back.
        elsewhere = sum(vnode.total.get(name, 0) for vnode in shunned)
        idle_elsewhere = sum(vnode.idle(name) for vnode in shunned)
        most = idle_elsewhere + max(total - elsewhere - least, 0)
        shrink(cluster, vcluster, name, min(total - least, vcluster.flex_idle(name), most), None, [])
    drop_emptied(vcluster)


def drop_emptied(vcluster: VCluster) -> None:
    """Drop what gave everything back and is not in use, and whatever gave everything back that lay on it."""
    for number in [number for number in vcluster.emptied if not vcluster.flex[number].used]:
        vcluster.remove_flexible(number)
    for child in vcluster.children.values():
        if child.emptied:
            drop_emptied(child)


def reachable(cluster: Cluster, vcluster: VCluster | None, demand: Resources, released: dict[str, int]) -> NodeSet:
    """Return a superset of the nodes on which ``demand`` can be taken; ``released`` is what a child would first give back."""
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
    """Return the most of one resource that could be taken from a host, growth and moves counted in."""
    if host.cluster is None:
        return cluster.available.get(host.node, name)
    if host.fixed is not None and name in host.fixed.total:
        return host.fixed.idle(name)
    vnode = host.cluster.flex.get(host.node)
    own = vnode.idle(name) if vnode else 0
    elsewhere = released + host.cluster.flex_idle(name) - own
    above = max(reach(cluster, source, name, elsewhere) for source in _sources(host))
    room = host.cluster.headroom(name)
    return own + (above if room is None else min(above, room + elsewhere))


def _reach_sources(cluster: Cluster, vcluster: VCluster, number: int, name: str, released: int = 0) -> int:
    return max(reach(cluster, source, name, released) for source in _sources(Host(vcluster, number, None)))


def _count_sources(cluster: Cluster, vcluster: VCluster, number: int, name: str) -> int:
    return sum(reach(cluster, source, name) > 0 for source in _sources(Host(vcluster, number, None)))


def parent_hosts(vcluster: VCluster, number: int) -> list[Host]:
    """Return where a virtual node of this cluster on that physical node may take its resources from."""
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


def _take_flexible(cluster: Cluster, host: Host, amounts: dict[str, int], journal: Journal) -> bool:
    vcluster = host.cluster
    assert vcluster is not None
    vnode = vcluster.flex.get(host.node)
    short = {name: units - (vnode.idle(name) if vnode else 0) for name, units in amounts.items()}
    short = {name: units for name, units in short.items() if units > 0}
    if short and not _grow(cluster, host, short, journal):
        return False
    if amounts:
        vnode = vcluster.flex[host.node]
        for name, units in amounts.items():
            use(vnode, name, units, journal)
    return True


def _grow(cluster: Cluster, host: Host, amounts: dict[str, int], journal: Journal) -> bool:
    vcluster = host.cluster
    assert vcluster is not None
    for name, units in amounts.items():
        room = vcluster.headroom(name)
        missing = 0 if room is None else units - room
        if missing > 0 and shrink(cluster, vcluster, name, missing, host.node, journal) < missing:
            return False
    if _grow_within(cluster, host, amounts, journal):
        return True
    # The limit may be an ancestor's: idle shares of our own elsewhere, given back, make room there.
    moved = [shrink(cluster, vcluster, name, units, host.node, journal) for name, units in amounts.items()]
    return any(moved) and _grow_within(cluster, host, amounts, journal)


def _grow_within(cluster: Cluster, host: Host, amounts: dict[str, int], journal: Journal) -> bool:
    vcluster = host.cluster
    assert vcluster is not None
    vnode = vcluster.flex.get(host.node)
    for source in _sources(host):
        mark = len(journal)
        if take(cluster, source, amounts.items(), journal):
            origin = source._replace(source=None)
            if vnode is None:
                vnode = _make_flexible(cluster, vcluster, origin, journal)
            elif vnode.host != origin:
                _rebind(vnode, origin, journal)
            for name, units in amounts.items():
                resize(vnode, name, units, journal)
            return True
        undo(journal, mark)
    return False


def _sources(host: Host) -> list[Host]:
    """Return where a flexible node may grow from: once it holds anything, only from where it came."""
    assert host.cluster is not None
    vnode = host.cluster.flex.get(host.node)
    if vnode is not None and vnode.total:
        return [vnode.host]
    return [host.source] if host.source is not None else parent_hosts(host.cluster, host.node)


def shrink(cluster: Cluster, vcluster: VCluster, name: str, units: int, spare: int | None, journal: Journal) -> int:
    """Give up to ``units`` of idle flexible share back to the parent, from any node but ``spare``; return how much it was.

    First from nodes that the cluster's own minimum may not lie on, then from the last to the first.
    """
    left = units
    if left > 0:
        for number in sorted(vcluster.idle, key=lambda number: (_tolerated(cluster, vcluster, number), -number)):
            vnode = vcluster.flex[number]
            amount = min(left, vnode.idle(name))
            if number != spare and amount > 0:
                resize(vnode, name, -amount, journal)
                give(cluster, vnode.host, ((name, amount),), journal)
                cluster.shares_moved = True
                left -= amount
            if left <= 0:
                break
    return units - left


def _shunned(cluster: Cluster, vcluster: VCluster) -> list[VNode]:
    """Return the flexible nodes where only work with tolerations of its own may run."""
    if not cluster.nodes.taints:
        return []
    return [vnode for number, vnode in vcluster.flex.items() if not _tolerated(cluster, vcluster, number)]


def _tolerated(cluster: Cluster, vcluster: VCluster, number: int) -> bool:
    return vcluster.tolerations.tolerates(cluster.nodes.at(number).taints)


def use(vnode: VNode, name: str, units: int, journal: Journal | None = None) -> None:
    """Count more of a virtual node as used, or less."""
    bump(vnode.used, name, units)
    if not vnode.fixed:
        bump(vnode.cluster.flex_used, name, units)
        _note_idle(vnode)
    if journal is not None:
        journal.append(lambda: use(vnode, name, -units))


def resize(vnode: VNode, name: str, units: int, journal: Journal | None = None, step: int = 1) -> None:
    """Make a flexible node larger, or smaller. ``step`` is -1 when that undoes an earlier one."""
    bump(vnode.total, name, units)
    bump(vnode.cluster.flex_total, name, units)
    vnode.cluster.changed(step)
    _note_idle(vnode)
    if journal is not None:
        journal.append(lambda: resize(vnode, name, -units, step=-1))


def _note_idle(vnode: VNode) -> None:
    idle = any(units > vnode.used.get(name, 0) for name, units in vnode.total.items())
    (vnode.cluster.idle.add if idle else vnode.cluster.idle.discard)(vnode.node)
    (vnode.cluster.emptied.discard if vnode.total else vnode.cluster.emptied.add)(vnode.node)


def _make_flexible(cluster: Cluster, vcluster: VCluster, host: Host, journal: Journal) -> VNode:
    vnode = VNode(vcluster.next_vnode_id(), vcluster, host, None)
    vcluster.add_flexible(vnode)
    cluster.shares_moved = True
    journal.append(lambda: _forget_flexible(vcluster, host.node))
    return vnode


def _forget_flexible(vcluster: VCluster, number: int) -> None:
    vcluster.remove_flexible(number, step=-1)
    vcluster.take_back_vnode_id()


def _rebind(vnode: VNode, host: Host, journal: Journal) -> None:
    old, vnode.host = vnode.host, host
    vnode.cluster.changed()

    def back() -> None:
        vnode.host = old
        vnode.cluster.changed(-1)

    journal.append(back)


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
