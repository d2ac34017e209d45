"""Adding one bin after the other: fill one of each, take the best by a score, as often as that stays the best.

A fill stays what it is as long as there is enough left of every kind in it: counts only go down, and what did not fit beside
it still does not. So most fills are made once, and equal bins are added many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remora.kernel.packing.bins import TO_ADD, Fill, Filled, Packing, Problem

Score = Callable[[int, list[int], Fill], Any]
"""How good a fill is: the number of the bin, what stays free in it, what is in it. More is better."""

Fills = list[tuple[Fill, Any] | None]

_TIDY_EVERY = 16


def greedy(problem: Problem, order: list[int], score: Score, tiers: tuple[tuple[int, ...], ...], *, exact: bool) -> Packing:
    """Return a packing that fills bins tier after tier, kinds in this order.

    ``exact``: equal bins are added together only where adding them singly would have decided the same each time, and of bins
    that are equally good it is their turn, which is what Ray does.
    """
    state = _State(problem, order, score, exact)
    for tier in tiers:
        pool = [number for number, each in enumerate(problem.bins) if each.tier in tier]
        state.pack(pool, counted=TO_ADD in tier)
    return Packing(state.filled, state.counts)


def in_turn(problem: Problem, order: list[int], pool: list[int]) -> Packing:
    """Return a packing that fills these bins one after the other, kinds in this order."""
    place = {kind: index for index, kind in enumerate(order)}
    counts, filled = list(problem.counts), []
    fill = _fill_by_rules if problem.ruled else _fill
    for number in pool:
        listed = sorted(problem.admitted[number], key=place.__getitem__)
        left = problem.bins[number].left
        while left:
            content, _ = fill(problem, number, listed, counts)
            if not content:
                break
            times = min(left, *(counts[kind] // taken for kind, taken in content))
            for kind, taken in content:
                counts[kind] -= taken * times
            filled.append(Filled(number, times, content))
            left -= times
    return Packing(filled, counts)


class _State:
    def __init__(self, problem: Problem, order: list[int], score: Score, exact: bool) -> None:
        self.problem = problem
        self.score = score
        self.exact = exact
        self.counts = list(problem.counts)
        place = {kind: index for index, kind in enumerate(order)}
        self.listed = [sorted(kinds, key=place.__getitem__) for kinds in problem.admitted]
        self.filled: list[Filled] = []
        self.waiting = sum(1 for count in self.counts if count)
        self.most = problem.most

    def pack(self, pool: list[int], *, counted: bool) -> None:
        """Add bins of this pool until nothing more goes into any of them; ``counted`` ones only as long as more may be."""
        bins = self.problem.bins
        left = {number: bins[number].left for number in pool if self.listed[number]}
        pool = [number for number in pool if number in left]
        fills: Fills = [None] * len(bins)
        while self.waiting and (self.most > 0 or not counted):
            best, tie = self._best(pool, left, fills)
            if best < 0:
                return
            known = fills[best]
            assert known is not None
            content = known[0]
            room = min(left[best], self.most) if counted else left[best]
            times = self._times(content, room, tie, fills)
            if self.exact:
                pool.remove(best)
                pool.append(best)
            self.filled.append(Filled(best, times, content))
            left[best] -= times
            if counted:
                self.most -= times
            self._take(content, times, fills)

    def _best(self, pool: list[int], left: dict[int, int], fills: Fills) -> tuple[int, bool]:
        """Return the bin with the best fill, -1 when there is none, and whether another is as good."""
        best, highest, tie = -1, None, False
        problem = self.problem
        for number in pool:
            if left[number] <= 0:
                continue
            known = fills[number]
            if known is None:
                fill = _fill_by_rules if problem.ruled else _fill
                content, free = fill(problem, number, self.listed[number], self.counts)
                known = fills[number] = (content, self.score(number, free, content) if content else None)
            if not known[0]:
                continue
            if best < 0 or known[1] > highest:
                best, highest, tie = number, known[1], False
            elif known[1] == highest:
                tie = True
        return best, tie

    def _times(self, content: Fill, room: int, tie: bool, fills: Fills) -> int:
        """Return how often the same bin is added before anything would be decided differently."""
        times = room
        for kind, taken in content:
            often = self.counts[kind] // taken
            if often < times:
                times = often
        if not self.exact or times == 1:
            return times
        if tie:
            return 1
        takes = dict(content)
        for known in fills:
            for kind, taken in known[0] if known is not None else ():
                each = takes.get(kind)
                if each:
                    if self.counts[kind] <= taken:
                        return 1  # that fill took all there were, and takes fewer the next time
                    often = (self.counts[kind] - taken) // each + 1
                    if often < times:
                        times = often
        return times

    def _take(self, content: Fill, times: int, fills: Fills) -> None:
        counts = self.counts
        for kind, taken in content:
            counts[kind] -= taken * times
            if not counts[kind]:
                self.waiting -= 1
        for number, known in enumerate(fills):
            if known is not None:
                for kind, taken in known[0]:
                    if counts[kind] < taken:
                        fills[number] = None
                        break
        if len(self.filled) % _TIDY_EVERY == 0:
            self.listed = [[kind for kind in kinds if counts[kind]] for kinds in self.listed]


def _fill(problem: Problem, number: int, listed: list[int], counts: list[int]) -> tuple[Fill, list[int]]:
    """Return what one empty bin takes, as many as go in of each kind in turn, and what stays free."""
    free = problem.amounts[number][:]
    needs = problem.needs
    content: Fill = []
    for kind in listed:
        most = counts[kind]
        if most:
            need = needs[kind]
            for resource, units in need:
                fit = free[resource] // units
                if fit < most:
                    most = fit
                    if not most:
                        break
            if most:
                for resource, units in need:
                    free[resource] -= units * most
                content.append((kind, most))
    return content, free


def _fill_by_rules(problem: Problem, number: int, listed: list[int], counts: list[int]) -> tuple[Fill, list[int]]:
    """Return the same where some kinds may not be, or have to be, in one bin with others."""
    free = problem.amounts[number][:]
    content: Fill = []
    present = 0
    for kind in listed:
        most = counts[kind]
        rules = problem.kinds[kind]
        if not most or rules.apart & present or not all(some & present for some in rules.beside):
            continue
        if rules.apart >> kind & 1:
            most = 1
        for resource, units in problem.needs[kind]:
            most = min(most, free[resource] // units)
        if most:
            for resource, units in problem.needs[kind]:
                free[resource] -= units * most
            content.append((kind, most))
            present |= 1 << kind
    return content, free
