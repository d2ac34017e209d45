"""All or nothing: the bundles of a placement group, and the fixed-size nodes of a virtual cluster.

STRICT_PACK is one host for the sum. STRICT_SPREAD is a bipartite matching, which on physical nodes is exact: a bundle with as
many candidates as there are bundles can always be matched, so each needs no more candidates than that. PACK and SPREAD are
searches, best candidate first, with a budget: packing is NP-hard, and the first descent is what a greedy scheduler does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from remora.kernel.placing import inside
from remora.kernel.placing.eligibility import eligible
from remora.kernel.placing.layers import Layers
from remora.kernel.placing.ranking import ANY_GPU, by_policy
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members, without
from remora.kernel.state.virtual_labels import admits, labels_of
from remora.kernel.state.workloads import Host
from remora.model.groups import Bundle
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, Resources
from remora.model.strategies import DEFAULT, SPREAD
from remora.model.topology import Levels

_BUDGET = 2_000


class Item(NamedTuple):
    """One bundle or fixed-size node: what it takes, which nodes may be its node, and the team whose strategy it follows."""

    resources: Resources
    nodes: NodeClass
    team: int = 0


class Gang:
    """One attempt to place ``items`` inside ``space`` (None: the physical cluster), each team by its own strategy.

    ``taken`` holds the hosts of items that are placed already; they stay and count. ``by_node`` says what *apart* means:
    on different physical nodes (placement groups, as Ray enforces it) or on different virtual nodes of the parent.
    ``gave_up`` tells a failed search that ran out of budget from one that has seen everything.
    """

    def __init__(
        self,
        cluster: Cluster,
        space: VCluster | None,
        items: list[Item],
        strategies: list[str],
        taken: list[Host | None],
        *,
        by_node: bool,
        levels: Sequence[Levels] = (),
    ) -> None:
        self.cluster = cluster
        self.space = space
        self.items = items
        self.strategies = strategies
        self.hosts: list[Host | None] = list(taken)
        self.by_node = by_node
        self.levels = levels or [()] * len(strategies)
        self.within: NodeSet | None = None  # the domain that is just being tried; None: everywhere
        self.gave_up = False
        self._classes = list(dict.fromkeys(item.nodes for item in items))
        self._journal: shares.Journal = []

    def place(self) -> list[Host] | None:
        """Return a host for every item, or None. The cluster is left as it was."""
        before = list(self.hosts)
        open_ = [index for index, host in enumerate(self.hosts) if host is None]
        teams = sorted({self.items[index].team for index in open_})
        hardest_first = sorted(teams, key=lambda team: -max(self._size(i) for i in open_ if self.items[i].team == team))
        with shares.trial(self.cluster) as self._journal:
            for order in (teams, hardest_first) if teams != hardest_first else (teams,):
                if all(self._place_team(team) for team in order):
                    return self._found()
                self._reset(before)
            if len(teams) > 1 and not any(self.levels) and self._search(self._sorted(open_)):
                return self._found()
            return None

    # What is asked while levels are tried

    def checkpoint(self) -> tuple[list[Host | None], int]:
        """Return what is placed now, for ``back_to``."""
        return list(self.hosts), len(self._journal)

    def back_to(self, hosts: list[Host | None], mark: int) -> None:
        shares.undo(self._journal, mark)
        self.hosts = hosts

    def take(self, open_: list[int], host: Host) -> bool:
        """Put items on a host; return whether there is room for all of them."""
        for index in open_:
            if not shares.take(self.cluster, host, self.items[index].resources.pairs, self._journal):
                return False
            self.hosts[index] = host
        return True

    def _found(self) -> list[Host]:
        """Return the hosts, each with where its share came from: taken one by one they might come from somewhere else."""
        return [pinned(host) for host in self.hosts if host is not None]

    def _place_team(self, team: int) -> bool:
        strategy = self.strategies[team]
        open_ = self._sorted([i for i, host in enumerate(self.hosts) if host is None and self.items[i].team == team])
        if not open_:
            return True
        if self.levels[team]:
            return Layers(self, team).place(open_, self.levels[team])
        return self.place_on_nodes(open_, strategy)

    def place_on_nodes(self, open_: list[int], strategy: str) -> bool:
        """Place items of one team by their strategy over nodes, in the domain that is just being tried; return whether that
        went."""
        if strategy in ("PACK", "STRICT_PACK"):
            if self._together(open_) or strategy == "STRICT_PACK":
                return self.hosts[open_[0]] is not None
            # The other order of looking finds what filling one node after the other misses.
            return self._search(open_) or self._search(open_, loosely=True)
        if self._apart(open_):
            return True
        # On physical nodes the matching is exact; inside a virtual cluster hosts that fit singly may not fit jointly.
        return (strategy == "SPREAD" or self.space is not None) and self._search(open_)

    def _sorted(self, open_: list[int]) -> list[int]:
        """Return the items with what is hard to place before what is easy."""
        return sorted(open_, key=lambda i: (len(self.items[i].nodes.selector.terms), self._size(i)), reverse=True)

    def _size(self, index: int) -> int:
        return sum(units for _, units in self.items[index].resources.pairs)

    def _reset(self, hosts: list[Host | None]) -> None:
        shares.undo(self._journal)
        self.hosts = list(hosts)

    def team_hosts(self, team: int) -> list[Host]:
        return [host for host, item in zip(self.hosts, self.items, strict=True) if host is not None and item.team == team]

    def _together(self, open_: list[int]) -> bool:
        """Put all on one host, which is the host of what is placed already; return whether that went."""
        total = EMPTY
        nodes = self.cluster.nodes.alive
        for index in open_:
            total = total + self.items[index].resources
            nodes &= self.nodes_for(self.items[index], EMPTY)
        settled = {self._key(host) for host in self.team_hosts(self.items[open_[0]].team)}
        for host in self._hosts_on(nodes & self._holding(total), [self.items[index] for index in open_], DEFAULT):
            if not settled <= {self._key(host)}:
                continue
            mark = len(self._journal)
            if shares.take(self.cluster, host, total.pairs, self._journal):
                for index in open_:
                    self.hosts[index] = host
                return True
            shares.undo(self._journal, mark)
        return False

    def _apart(self, open_: list[int]) -> bool:
        """Put each on a host of its own, along augmenting paths from item to item until all are matched; return whether that
        went."""
        used = {self._key(host) for host in self.team_hosts(self.items[open_[0]].team)}
        lists: dict[Item, list[Host]] = {}
        for index in open_:
            item = self.items[index]
            if item not in lists:
                lists[item] = self._first_distinct(item, used, len(open_))
        chosen = self._match(open_, lists)
        if chosen is None:
            return False
        mark = len(self._journal)
        for index in open_:
            if not shares.take(self.cluster, chosen[index], self.items[index].resources.pairs, self._journal):
                shares.undo(self._journal, mark)
                return False
        for index in open_:
            self.hosts[index] = chosen[index]
        return True

    def _match(self, open_: list[int], lists: dict[Item, list[Host]]) -> dict[int, Host] | None:
        owner: dict[Hashable, int] = {}
        chosen: dict[int, Host] = {}
        for start in open_:
            came: dict[Hashable, tuple[int, Host]] = {}
            queue = deque([start])
            while queue:
                index = queue.popleft()
                for host in lists[self.items[index]]:
                    key = self._key(host)
                    if key in came:
                        continue
                    came[key] = (index, host)
                    if key not in owner:
                        queue.clear()
                        self._flip(start, key, came, owner, chosen)
                        break
                    queue.append(owner[key])
            if start not in chosen:
                return None
        return chosen

    def _flip(
        self,
        start: int,
        key: Hashable,
        came: dict[Hashable, tuple[int, Host]],
        owner: dict[Hashable, int],
        chosen: dict[int, Host],
    ) -> None:
        """Give everyone on the path that reached a free host the host that it was reached through."""
        while True:
            index, host = came[key]
            left = chosen.get(index)
            owner[key], chosen[index] = index, host
            if index == start or left is None:
                return
            key = self._key(left)

    def _first_distinct(self, item: Item, used: set[Hashable], most: int) -> list[Host]:
        found: dict[Hashable, Host] = {}
        for host in self._hosts_on(self.nodes_for(item, item.resources), [item], SPREAD):
            key = self._key(host)
            if key not in used and key not in found and shares.fits(self.cluster, host, item.resources):
                found[key] = host
                if len(found) == most:
                    break
        return list(found.values())

    def _search(self, open_: list[int], loosely: bool = False) -> bool:
        """Search depth first, one iterator of candidates a level, until all are placed or the budget is spent; return whether
        all are."""
        budget = _BUDGET + 4 * len(open_)
        start = len(self._journal)
        levels: list[tuple[Iterator[Host], int]] = [(self._candidates(open_, 0, loosely), start)]
        while levels:
            depth = len(levels) - 1
            candidates, mark = levels[-1]
            shares.undo(self._journal, mark)
            self.hosts[open_[depth]] = None
            host = next(candidates, None) if budget > 0 else None
            budget -= 1
            if host is None:
                levels.pop()
                continue
            if not shares.take(self.cluster, host, self.items[open_[depth]].resources.pairs, self._journal):
                continue
            self.hosts[open_[depth]] = host
            if depth + 1 == len(open_):
                return True
            levels.append((self._candidates(open_, depth + 1, loosely), len(self._journal)))
        self.gave_up |= budget <= 0
        return False

    def _candidates(self, open_: list[int], depth: int, loosely: bool) -> Iterator[Host]:
        """Yield the best first; of hosts that are alike in everything that matters only the first."""
        tried: set[Hashable] = set()
        for host in self._ordered(open_, depth, loosely):
            alike = self._alike(host)
            if alike not in tried:
                yield host
                tried.add(alike)

    def _ordered(self, open_: list[int], depth: int, loosely: bool) -> Iterator[Host]:
        """Yield for PACK the hosts that this team uses already first, for SPREAD the others, for STRICT_SPREAD only those."""
        item = self.items[open_[depth]]
        strategy = self.strategies[item.team]
        used = {self._key(host): host for host in self.team_hosts(item.team)}
        nodes = self.nodes_for(item, item.resources)
        in_use = [host for host in used.values() if nodes >> host.node & 1 and self._fits_labels(host, item)]
        packing = strategy == "PACK" and not loosely
        if packing:
            yield from in_use
            roomy = self._roomiest(nodes, open_[depth:])
            if roomy is not None and self._key(roomy) not in used:
                yield roomy
        yield from (
            host for host in self._hosts_on(nodes, [item], DEFAULT if packing else SPREAD) if self._key(host) not in used
        )
        if not packing and strategy != "STRICT_SPREAD":
            yield from in_use

    def _alike(self, host: Host) -> Hashable:
        """Return what tells two hosts apart: what is free there, who may go there, and which teams are there."""
        if self.space is not None:
            return host
        free = tuple(sorted(self.cluster.available.amounts(host.node).items()))
        classes = tuple(eligible(self.cluster, nodes) >> host.node & 1 for nodes in self._classes)
        teams = tuple(any(other.node == host.node for other in self.team_hosts(team)) for team in range(len(self.strategies)))
        return free, classes, teams

    def _roomiest(self, nodes: NodeSet, remaining: list[int]) -> Host | None:
        """Return, on the physical cluster, the node that holds the longest run of what is left."""
        if self.space is not None:
            return None
        count = len(remaining)
        while count > 1:
            total = EMPTY
            for index in remaining[:count]:
                total = total + self.items[index].resources
            found = nodes & self.cluster.available.at_least(total)
            if found:
                best = next(some for some in self._sparing(found) if some)
                return Host(None, by_policy(self.cluster, best, DEFAULT), None)
            count = count * 3 // 4
        return None

    def nodes_for(self, item: Item, demand: Resources) -> NodeSet:
        if self.space is None:
            nodes = eligible(self.cluster, item.nodes) & self._holding(demand)
        else:
            nodes = inside.untainted(self.cluster, item.nodes) & self._holding(demand)
        return nodes if self.within is None else nodes & self.within

    def _holding(self, demand: Resources) -> NodeSet:
        return shares.reachable(self.cluster, self.space, demand, {})

    def _hosts_on(self, nodes: NodeSet, items: list[Item], policy: str) -> Iterator[Host]:
        """The hosts on these nodes that all items accept by their labels; what is owned first, and where others have filled the
        node last; then the best node first. Nodes with GPUs are left to those who ask for GPUs."""
        owned = nodes & self.space.nodes() if self.space is not None else nodes
        crowded = self._crowded(owned, items) if self.space is not None else 0
        for some in (*self._sparing(without(owned, crowded)), *self._sparing(without(nodes, owned)), crowded):
            while some:
                number = by_policy(self.cluster, some, policy)
                some ^= 1 << number
                if self.space is None:
                    yield Host(None, number, None)
                else:
                    yield from self._virtual_hosts(self.space, number, items)

    def _crowded(self, nodes: NodeSet, items: list[Item]) -> NodeSet:
        space = self.space
        assert space is not None
        return collect(
            number
            for number in members(nodes)
            if any(inside.is_crowded(self.cluster, space, number, item.resources) for item in items)
        )

    def _sparing(self, nodes: NodeSet) -> tuple[NodeSet, ...]:
        """Return the nodes in the order in which they come into question: those with GPUs last, unless any item wants one."""
        if any("GPU" in item.resources for item in self.items):
            return (nodes,)
        with_gpu = nodes & self.cluster.totals.at_least(ANY_GPU)
        return (without(nodes, with_gpu), with_gpu) if with_gpu else (nodes,)

    def _virtual_hosts(self, space: VCluster, number: int, items: list[Item]) -> Iterator[Host]:
        for vnode in space.fixed:
            if vnode is not None and vnode.node == number:
                host = Host(space, number, vnode)
                if all(self._fits_labels(host, item) for item in items):
                    yield host
        flexible = [inside.flexible_hosts(self.cluster, space, number, item.nodes) for item in items]
        yield from (host for host in flexible[0] if all(host in hosts for hosts in flexible[1:]))

    def _fits_labels(self, host: Host, item: Item) -> bool:
        if self.space is None:
            return True
        if host.fixed is not None:
            return admits(item.nodes, labels_of(self.cluster, host.fixed))
        return any(
            option.source in (None, host.source)
            for option in inside.flexible_hosts(self.cluster, self.space, host.node, item.nodes)
        )

    def _key(self, host: Host) -> Hashable:
        if self.by_node or host.fixed is None:
            return host.node if self.by_node or self.space is None else (host.node, None)
        return (host.node, host.fixed.vnode_id)


def pinned(host: Host) -> Host:
    """Return the host with the source of its flexible node, which is there at this moment and may not be later."""
    if host.cluster is None or host.fixed is not None:
        return host
    vnode = host.cluster.flex.get(host.node)
    return host._replace(source=pinned(vnode.host)) if vnode is not None and vnode.total else host


def gang_of_bundles(
    cluster: Cluster,
    space: VCluster | None,
    bundles: Iterable[Bundle],
    strategy: str,
    taken: list[Host | None],
    levels: Levels = (),
) -> Gang:
    """Return the gang of the bundles of a placement group."""
    items = [Item(each.resources, each.nodes) for each in bundles]
    return Gang(cluster, space, items, [strategy], taken, by_node=True, levels=[levels])
