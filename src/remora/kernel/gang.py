"""All or nothing: the bundles of a placement group, and the fixed-size nodes of a virtual cluster.

STRICT_PACK is one host for the sum. STRICT_SPREAD is a bipartite matching, which is exact: a bundle with as many
candidates as there are bundles can always be matched, so each needs no more candidates than that. PACK and SPREAD are
searches, best candidate first, with a budget: packing is NP-hard, and the first descent is what a greedy scheduler does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from remora.kernel import confined, shares
from remora.kernel.cluster import Cluster
from remora.kernel.eligibility import eligible
from remora.kernel.nodesets import NodeSet
from remora.kernel.ranking import by_policy
from remora.kernel.tree import VCluster
from remora.kernel.workloads import Host
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, Resources
from remora.model.strategies import DEFAULT, SPREAD

_BUDGET = 2_000


class Item(NamedTuple):
    """One bundle or fixed-size node: what it takes and which nodes may be its node."""

    resources: Resources
    nodes: NodeClass


class Gang:
    """One attempt to place ``items`` inside ``space`` (None: the physical cluster).

    ``taken`` holds the hosts of items that are placed already; they stay and count. ``by_node`` says what *apart* means:
    on different physical nodes (placement groups, as Ray enforces it) or on different virtual nodes of the parent.
    """

    def __init__(
        self,
        cluster: Cluster,
        space: VCluster | None,
        items: list[Item],
        strategy: str,
        taken: list[Host | None],
        *,
        by_node: bool,
    ) -> None:
        self.cluster = cluster
        self.space = space
        self.items = items
        self.strategy = strategy
        self.hosts: list[Host | None] = list(taken)
        self.by_node = by_node
        self.journal: shares.Journal = []

    def place(self) -> list[Host] | None:
        """A host for every item, or None. The cluster is left as it was."""
        # The largest first: what is hard to place chooses before what is easy.
        open_ = sorted(
            (index for index, host in enumerate(self.hosts) if host is None),
            key=lambda index: (
                len(self.items[index].nodes.selector.terms),
                sum(units for _, units in self.items[index].resources.pairs),
            ),
            reverse=True,
        )
        try:
            if self.strategy in ("PACK", "STRICT_PACK") and self._together(open_):
                return self._result()
            if self.strategy == "STRICT_PACK":
                return None
            if self.strategy in ("SPREAD", "STRICT_SPREAD") and self._apart(open_):
                return self._result()
            return self._result() if self.strategy != "STRICT_SPREAD" and self._search(open_) else None
        finally:
            shares.undo(self.journal)

    def _result(self) -> list[Host]:
        return [host for host in self.hosts if host is not None]

    def _together(self, open_: list[int]) -> bool:
        """All on one host, which is the host of what is placed already."""
        total = EMPTY
        nodes = self.cluster.nodes.alive
        for index in open_:
            total = total + self.items[index].resources
            nodes &= self._nodes(self.items[index], EMPTY)
        settled = {self._key(host) for host in self.hosts if host is not None}
        for host in self._hosts_on(nodes & self._holding(total), [self.items[index] for index in open_], DEFAULT):
            if not settled <= {self._key(host)}:
                continue
            if shares.take(self.cluster, host, total.pairs, self.journal):
                for index in open_:
                    self.hosts[index] = host
                return True
            shares.undo(self.journal)
        return False

    def _apart(self, open_: list[int]) -> bool:
        """Each on a host of its own: augmenting paths from item to item until all are matched."""
        used = {self._key(host) for host in self.hosts if host is not None}
        lists: dict[Item, list[Host]] = {}
        for index in open_:
            item = self.items[index]
            if item not in lists:
                lists[item] = self._first_distinct(item, used, len(open_))
        owner: dict[Hashable, int] = {}
        chosen: dict[int, Host] = {}

        def match(index: int, seen: set[Hashable]) -> bool:
            hosts = [host for host in lists[self.items[index]] if self._key(host) not in seen]
            # A free host first: nobody has to move, and equal items stay in their order.
            for host in sorted(hosts, key=lambda host: self._key(host) in owner):
                key = self._key(host)
                seen.add(key)
                if key not in owner or match(owner[key], seen):
                    owner[key] = index
                    chosen[index] = host
                    return True
            return False

        if not all(match(index, set()) for index in open_):
            return False
        for index in open_:
            if not shares.take(self.cluster, chosen[index], self.items[index].resources.pairs, self.journal):
                shares.undo(self.journal)
                return False
        for index in open_:
            self.hosts[index] = chosen[index]
        return True

    def _first_distinct(self, item: Item, used: set[Hashable], most: int) -> list[Host]:
        found: dict[Hashable, Host] = {}
        for host in self._hosts_on(self._nodes(item, item.resources), [item], SPREAD):
            key = self._key(host)
            if key not in used and key not in found and shares.fits(self.cluster, host, item.resources):
                found[key] = host
                if len(found) == most:
                    break
        return list(found.values())

    def _search(self, open_: list[int]) -> bool:
        """Depth first, one iterator of candidates a level, until all are placed or the budget is spent."""
        budget = _BUDGET + 4 * len(open_)
        levels: list[tuple[Iterator[Host], int]] = [(self._candidates(open_, 0), 0)]
        while levels:
            depth = len(levels) - 1
            candidates, mark = levels[-1]
            shares.undo(self.journal, mark)
            self.hosts[open_[depth]] = None
            host = next(candidates, None) if budget > 0 else None
            budget -= 1
            if host is None:
                levels.pop()
                continue
            if not shares.take(self.cluster, host, self.items[open_[depth]].resources.pairs, self.journal):
                continue
            self.hosts[open_[depth]] = host
            if depth + 1 == len(open_):
                return True
            levels.append((self._candidates(open_, depth + 1), len(self.journal)))
        return False

    def _candidates(self, open_: list[int], depth: int) -> Iterator[Host]:
        """Best first: for PACK the hosts that are in use by this gang, for SPREAD the others."""
        item = self.items[open_[depth]]
        used = {self._key(host): host for host in self.hosts if host is not None}
        nodes = self._nodes(item, item.resources)
        in_use = [host for host in dict.fromkeys(used.values()) if nodes >> host.node & 1 and self._fits_labels(host, item)]
        packing = self.strategy == "PACK"
        if packing:
            yield from in_use
            roomy = self._roomiest(nodes, open_[depth:])
            if roomy is not None and self._key(roomy) not in used:
                yield roomy
        yield from (
            host for host in self._hosts_on(nodes, [item], DEFAULT if packing else SPREAD) if self._key(host) not in used
        )
        if not packing:
            yield from in_use

    def _roomiest(self, nodes: NodeSet, remaining: list[int]) -> Host | None:
        """On the physical cluster: the node that holds the longest run of what is left."""
        if self.space is not None:
            return None
        count = len(remaining)
        while count > 1:
            total = EMPTY
            for index in remaining[:count]:
                total = total + self.items[index].resources
            found = nodes & self.cluster.available.at_least(total)
            if found:
                return Host(None, by_policy(self.cluster, found, DEFAULT), None)
            count = count * 3 // 4
        return None

    def _nodes(self, item: Item, demand: Resources) -> NodeSet:
        if self.space is None:
            return eligible(self.cluster, item.nodes) & self._holding(demand)
        return confined.untainted(self.cluster, item.nodes) & self._holding(demand)

    def _holding(self, demand: Resources) -> NodeSet:
        return shares.reachable(self.cluster, self.space, demand, {})

    def _hosts_on(self, nodes: NodeSet, items: list[Item], policy: str) -> Iterator[Host]:
        """The hosts on these nodes that all items accept by their labels, best node first."""
        while nodes:
            number = by_policy(self.cluster, nodes, policy)
            nodes ^= 1 << number
            if self.space is None:
                yield Host(None, number, None)
                continue
            fixed = [vnode for vnode in self.space.fixed if vnode is not None and vnode.node == number]
            for host in [*(Host(self.space, number, vnode) for vnode in fixed), Host(self.space, number, None)]:
                if all(self._fits_labels(host, item) for item in items):
                    yield host

    def _fits_labels(self, host: Host, item: Item) -> bool:
        selector = item.nodes.selector
        if self.space is None or not selector:
            return True
        if host.fixed is not None:
            return selector.matches(confined.labels_of(self.cluster, host.fixed))
        return bool(confined.grown_nodes(self.cluster, self.space, item.nodes, EMPTY) >> host.node & 1)

    def _key(self, host: Host) -> Hashable:
        return host.node if self.by_node or self.space is None else (host.node, id(host.fixed))
