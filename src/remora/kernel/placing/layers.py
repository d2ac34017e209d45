"""How a team of a gang lies over domains: the levels of its topology, from the widest down, and the nodes last.

STRICT_PACK tries one domain after the other, tightest first. STRICT_SPREAD is a matching of parts and domains. PACK takes as
few domains as it finds, SPREAD as many as there are parts, as evenly as goes; both are wishes, and any way that fits will do.
What is placed already stays, and says which domain a STRICT_PACK is in: one that lost some of its nodes stays there, one that
lost all of them is free to move as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remora.kernel.placing.ranking import ANY_GPU
from remora.kernel.state.domains import domain_of, domains_of, in_domain
from remora.kernel.state.node_sets import NodeSet, members, without
from remora.kernel.state.workloads import Host
from remora.model.topology import Levels

if TYPE_CHECKING:
    from remora.kernel.placing.gang import Gang


class Layers:
    """One attempt to place items of one team of a gang, in the domain that the gang is just trying."""

    def __init__(self, gang: Gang, team: int) -> None:
        self._gang = gang
        self._team = team
        self._nodes = gang.cluster.nodes
        numbers: dict[object, int] = {}
        self._kinds = [numbers.setdefault(item, len(numbers)) for item in gang.items]  # equal items have equal numbers

    def place(self, open_: list[int], levels: Levels) -> bool:
        """Place the items by these levels, or none of them; return whether that went."""
        if not open_:
            return True
        if not levels:
            strategy = self._gang.strategies[self._team]
            filled = self._fill(open_, strategy)
            return self._gang.place_on_nodes(open_, strategy) if filled is None else filled
        (label, strategy), inner = levels[0], levels[1:]
        if strategy == "STRICT_PACK":
            return self._in_one(open_, label, inner)
        if strategy == "STRICT_SPREAD":
            return self._apart(open_, label, inner)
        packed = strategy == "PACK"
        if packed and self._in_one(open_, label, inner):
            return True
        if not packed and self._evenly(open_, label, inner):
            return True
        return self._one_after_the_other(open_, label, inner) or (not inner and self._anywhere(open_))

    # Strategies

    def _in_one(self, open_: list[int], label: str, inner: Levels) -> bool:
        settled = self._settled(label)
        if len(settled) > 1:
            return False
        return any(self._try_in(open_, label, domain, inner) for domain in settled or self._candidates(open_, label))

    def _apart(self, open_: list[int], label: str, inner: Levels) -> bool:
        """Match the items to domains, along augmenting paths, by where each fits alone; return whether all are placed."""
        used = set(self._settled(label))
        free = [domain for domain in self._candidates([], label) if domain not in used]
        fits: dict[int, list[str]] = {}
        for index in open_:
            alike = next((fits[other] for other in fits if self._kinds[other] == self._kinds[index]), None)
            fits[index] = (
                alike if alike is not None else [each for each in free if self._would_fit([index], label, each, inner)]
            )
        owner: dict[str, int] = {}
        if not all(self._claim(index, fits, owner, set()) for index in open_):
            return False
        before, mark = self._gang.checkpoint()
        if all(self._try_in([index], label, domain, inner) for domain, index in owner.items()):
            return True
        self._gang.back_to(before, mark)
        return False

    def _claim(self, index: int, fits: dict[int, list[str]], owner: dict[str, int], seen: set[str]) -> bool:
        for domain in fits[index]:
            if domain not in seen:
                seen.add(domain)
                if domain not in owner or self._claim(owner[domain], fits, owner, seen):
                    owner[domain] = index
                    return True
        return False

    def _evenly(self, open_: list[int], label: str, inner: Levels) -> bool:
        """Deal the items to as many domains as there are items, or one fewer each time; those that lie there count."""
        lying = dict.fromkeys(self._candidates([], label), 0)
        for host in self._hosts():
            domain = domain_of(self._nodes, label, host.node)
            if domain is not None and domain in lying:
                lying[domain] += 1
        domains = sorted(lying, key=lambda domain: lying[domain])
        for count in range(min(len(domains), len(open_)), 0, -1):
            before, mark = self._gang.checkpoint()
            if self._deal(open_, label, inner, domains, lying, count):
                return True
            self._gang.back_to(before, mark)
        return False

    def _deal(self, open_: list[int], label: str, inner: Levels, domains: list[str], lying: dict[str, int], count: int) -> bool:
        chosen, rest = domains[:count], domains[count:]
        shares: dict[str, list[int]] = {domain: [] for domain in chosen}
        for index in open_:
            least = min(chosen, key=lambda domain: lying[domain] + len(shares[domain]))
            shares[least].append(index)
        for domain in chosen:
            if shares[domain] and not self._try_in(shares[domain], label, domain, inner):
                other = next((each for each in rest if self._try_in(shares[domain], label, each, inner)), None)
                if other is None:
                    return False
                rest.remove(other)
        return True

    def _one_after_the_other(self, open_: list[int], label: str, inner: Levels) -> bool:
        """Put as many items as go into a domain, then into the next, those in use first; return whether that took all."""
        before, mark = self._gang.checkpoint()
        settled = self._settled(label)
        left = list(open_)
        for domain in [*settled, *(each for each in self._candidates([], label) if each not in settled)]:
            low, high = 0, len(left)
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self._would_fit(left[:middle], label, domain, inner) else (low, middle - 1)
            if low and self._try_in(left[:low], label, domain, inner):
                left = left[low:]
            if not left:
                return True
        self._gang.back_to(before, mark)
        return False

    def _anywhere(self, open_: list[int]) -> bool:
        return self._gang.place_on_nodes(open_, self._gang.strategies[self._team])

    # Domains

    def _hosts(self) -> list[Host]:
        """Return where items of the team lie already, in the domain that is just being tried."""
        return [
            host
            for host in self._gang.team_hosts(self._team)
            if self._gang.within is None or self._gang.within >> host.node & 1
        ]

    def _settled(self, label: str) -> list[str]:
        found = (domain_of(self._nodes, label, host.node) for host in self._hosts())
        return list(dict.fromkeys(domain for domain in found if domain is not None))

    def _candidates(self, open_: list[int], label: str) -> list[str]:
        """Return the domains in the order in which they are tried: those without GPUs first, unless somebody wants one; then
        the one with the fewest nodes for what is hardest to place. Those that cannot hold all are left out."""
        gang = self._gang
        kinds = {self._kinds[index]: gang.items[index] for index in open_}
        nodes = [gang.nodes_for(item, item.resources) for item in kinds.values()]
        spared = 0
        if not any("GPU" in item.resources for item in gang.items):
            spared = gang.cluster.totals.at_least(ANY_GPU)
        ranked = []
        for domain in domains_of(self._nodes, label):
            inside = in_domain(self._nodes, label, domain)
            if gang.within is not None:
                inside &= gang.within
            counts = [(some & inside).bit_count() for some in nodes]
            if inside and all(counts):
                ranked.append((bool(inside & spared), min(counts, default=0), domain))
        return [domain for _, _, domain in sorted(ranked)]

    def _try_in(self, open_: list[int], label: str, domain: str, inner: Levels) -> bool:
        gang = self._gang
        outer = gang.within
        before, mark = gang.checkpoint()
        inside = in_domain(self._nodes, label, domain)
        gang.within = inside if outer is None else inside & outer
        try:
            if self.place(open_, inner):
                return True
            gang.back_to(before, mark)
            return False
        finally:
            gang.within = outer

    def _would_fit(self, open_: list[int], label: str, domain: str, inner: Levels) -> bool:
        before, mark = self._gang.checkpoint()
        fits = self._try_in(open_, label, domain, inner)
        self._gang.back_to(before, mark)
        return fits

    # Equal items on nodes

    def _fill(self, open_: list[int], strategy: str) -> bool | None:
        """Pack equal items of a PACK team onto the nodes of a domain of the physical cluster, those that hold most first:
        exact, and without a search. Return whether that went; None where they are not of that kind."""
        gang = self._gang
        if strategy != "PACK" or gang.space is not None or len({self._kinds[index] for index in open_}) > 1:
            return None
        item = gang.items[open_[0]]
        nodes = gang.nodes_for(item, item.resources)
        with_gpu = gang.cluster.totals.at_least(ANY_GPU) if "GPU" not in item.resources else 0
        room = [
            (bool(with_gpu >> number & 1), -self._room(number, item.resources.pairs), number)
            for number in _in_use_first(nodes, self._hosts())
        ]
        if -sum(each for _, each, _ in room) < len(open_):
            return False
        left = list(open_)
        for _, count, number in sorted(room):
            some, left = left[:-count], left[-count:]
            if not gang.take(some, Host(None, number, None)):
                return False
            if not left:
                return True
        return False

    def _room(self, number: int, pairs: tuple[tuple[str, int], ...]) -> int:
        held = self._gang.cluster.available.amounts(number)
        return min([held.get(name, 0) // units for name, units in pairs])


def _in_use_first(nodes: NodeSet, hosts: list[Host]) -> list[int]:
    used = 0
    for host in hosts:
        used |= 1 << host.node
    return [*members(nodes & used), *members(without(nodes, used))]
