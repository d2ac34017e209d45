"""Several ways of packing, of which the best is kept.

A way is an order of the kinds and a score of the bins. One of them is what Ray's own autoscaler does, in whole numbers and many
equal bins at a time: so never more bins are added than Ray would add. What is best: little is left over, then what it costs
where costs are known, then few bins, then few GPU bins without GPU work in them, then priority, then small bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remora.kernel.packing.bins import COMING, NO_LIMIT, THERE, TO_ADD, Bin, Fill, Filled, Kind, Packing, Problem
from remora.kernel.packing.filling import Score, greedy, in_turn
from remora.model.resources import UNIT

_BY_NUMBER = (("ray", "ray"), ("dominant", "most"), ("dominant", "volume"), ("choosy", "most"), ("ray", "most"))
_BY_COST = (*_BY_NUMBER, ("dominant", "value"), ("choosy", "value"), ("ray", "value"))
_FEW = (("ray", "ray"), ("dominant", "most"))
_MANY_KINDS = 500
_CROWD = 48

_APART = ((THERE,), (COMING,), (TO_ADD,))
_TOGETHER = ((THERE, COMING), (TO_ADD,))


def pack(bins: Sequence[Bin], kinds: Sequence[Kind], most: int = NO_LIMIT) -> Packing:
    """Return the best packing found; at most ``most`` bins are added."""
    crowd = [number for number, each in enumerate(bins) if each.tier == THERE]
    if len(crowd) > _CROWD:
        return _pack_in_two_steps(bins, kinds, most, crowd)
    problem = Problem(bins, kinds, most)
    ways = _FEW if len(kinds) > _MANY_KINDS else _BY_COST if problem.priced else _BY_NUMBER
    # Whatever came of an earlier packing fits again if it is filled as it was then, whether it is there by now or not.
    both = any(each.tier == THERE for each in bins) and any(each.tier == COMING for each in bins)
    orders, scores = _orders(problem), _scores(problem)
    best: Packing | None = None
    least: Any = None
    for tiers in (_APART, _TOGETHER) if both else (_APART,):
        for order, score in ways:
            found = greedy(problem, orders[order], scores[score], tiers, exact=order == score == "ray")
            if problem.priced:
                found = _smaller_bins(problem, found)  # which is cheapest shows only then
            key = _key(problem, found)
            if least is None or key < least:
                best, least = found, key
    assert best is not None
    return best if problem.priced else _smaller_bins(problem, best)


def _pack_in_two_steps(bins: Sequence[Bin], kinds: Sequence[Kind], most: int, crowd: list[int]) -> Packing:
    """Fill what is there once, each bin in its turn, and only the rest in several ways: where there is a crowd of bins that are
    all different, weighing each against each would take longer than it is worth."""
    problem = Problem(bins, kinds)
    first = in_turn(problem, _orders(problem)["dominant"], crowd)
    others = [each if each.tier != THERE else each._replace(left=0, tier=COMING) for each in bins]
    second = pack(others, [replace(kind, count=count) for kind, count in zip(kinds, first.left, strict=True)], most)
    return Packing([*first.filled, *second.filled], second.left)


def _key(problem: Problem, packing: Packing) -> tuple[Any, ...]:
    bins = problem.bins
    cost, added, wasted, priority, size, awaited = 0.0, 0, 0, 0, 0.0, 0
    for number, times, content in packing.filled:
        if bins[number].tier == TO_ADD:
            added += times
            size += problem.size[number] * times
            priority -= bins[number].priority * times
            wasted += times * _wastes(problem, number, content)
            if problem.cost is not None:
                cost += problem.cost[number] * times
        elif bins[number].tier == COMING:
            awaited += times
    return sum(packing.left), cost, added, wasted, priority, round(size, 9), awaited


def _wastes(problem: Problem, number: int, content: Fill) -> bool:
    return problem.has_gpu[number] and not any(problem.wants_gpu[kind] for kind, _ in content)


def _smaller_bins(problem: Problem, packing: Packing) -> Packing:
    """Return the packing with cheaper or smaller bins where these hold the same."""
    bins = problem.bins
    open_ = [number for number, each in enumerate(bins) if each.tier == TO_ADD]
    if len(open_) < 2:
        return packing
    left = {number: bins[number].left for number in open_}
    for number, times, _ in packing.filled:
        if number in left:
            left[number] -= times
    filled = []
    for number, times, content in packing.filled:
        best = number
        if number in left:
            for other in open_:
                better = left[other] >= times and _rank(problem, other, content) < _rank(problem, best, content)
                if better and _holds(problem, other, content):
                    best = other
            if best != number:
                left[best] -= times
                left[number] += times
        filled.append(Filled(best, times, content))
    return Packing(filled, packing.left)


def _rank(problem: Problem, number: int, content: Fill) -> tuple[Any, ...]:
    cost = problem.cost[number] if problem.cost is not None else 0.0
    return cost, _wastes(problem, number, content), -problem.bins[number].priority, problem.size[number]


def _holds(problem: Problem, number: int, content: Fill) -> bool:
    held = problem.amounts[number]
    used = [0] * len(held)
    for kind, taken in content:
        if not problem.kinds[kind].bins >> number & 1:
            return False
        for resource, units in problem.needs[kind]:
            used[resource] += units * taken
    return all(units <= total for units, total in zip(used, held, strict=True))


def _orders(problem: Problem) -> dict[str, list[int]]:
    """Return the kinds in the orders in which they are put into a bin; whoever has to be beside others comes after them."""
    kinds, numbers = problem.kinds, range(len(problem.kinds))
    found = {
        "ray": sorted(numbers, key=lambda kind: _as_ray_sorts(kinds[kind]), reverse=True),
        "dominant": sorted(numbers, key=lambda kind: (problem.dominant[kind], problem.volume[kind]), reverse=True),
        "choosy": sorted(numbers, key=lambda kind: (kinds[kind].bins.bit_count(), -problem.dominant[kind])),
    }
    if problem.ruled:
        depth = _depths(kinds)
        found = {name: sorted(order, key=depth.__getitem__) for name, order in found.items()}
    return found


def _as_ray_sorts(kind: Kind) -> tuple[Any, ...]:
    return kind.labelled, len(kind.need), sum(units for _, units in kind.need), sorted(kind.need)


def _depths(kinds: Sequence[Kind]) -> list[int]:
    """Return how many others have to be in a bin, one because of the next, before each kind may be."""
    depth = [0] * len(kinds)
    for _ in kinds:
        before = list(depth)
        for number, kind in enumerate(kinds):
            for some in kind.beside:
                least = min((before[other] for other in range(len(kinds)) if some >> other & 1), default=0)
                depth[number] = max(depth[number], min(least + 1, len(kinds)))
        if depth == before:
            break
    return depth


def _scores(problem: Problem) -> dict[str, Score]:
    needs, wants_gpu, has_gpu = problem.needs, problem.wants_gpu, problem.has_gpu
    priority = [each.priority for each in problem.bins]
    labelled = [kind.labelled > 0 for kind in problem.kinds]
    whole = [[(number, units / UNIT) for number, units in enumerate(held) if units] for held in problem.amounts]

    def ray(number: int, free: list[int], content: Fill) -> tuple[Any, ...]:
        held = problem.amounts[number]
        names: set[int] = set()
        gpu, by_label = not has_gpu[number], False
        for kind, _ in content:
            for resource, _units in needs[kind]:
                names.add(resource)
            gpu = gpu or wants_gpu[kind]
            by_label = by_label or labelled[kind]
        used = [total * ((held[resource] - free[resource]) / held[resource]) ** 3 for resource, total in whole[number]]
        unused = problem.unneeded[number]
        least = 0.0 if unused or not used else min(used)
        return by_label, gpu, len(names), least, sum(used) / (len(used) + unused or 1), priority[number]

    def weighed(weights: list[float], costs: list[float] | None = None) -> Score:
        def score(number: int, _: list[int], content: Fill) -> tuple[Any, ...]:
            gpu, worth = not has_gpu[number], 0.0
            for kind, taken in content:
                worth += weights[kind] * taken
                gpu = gpu or wants_gpu[kind]
            value = worth if costs is None else worth / (costs[number] or 1e-9)
            return gpu, value, priority[number], -problem.size[number]

        return score

    return {
        "ray": ray,
        "most": weighed(problem.dominant),
        "volume": weighed(problem.volume),
        "value": weighed(problem.volume, problem.cost),
    }
