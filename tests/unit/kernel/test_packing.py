"""Packing by the numbers: how many bins of which kind, within limits, and not more than the best there is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remora.kernel.packing.bins import COMING, THERE, TO_ADD, Bin, Kind, Packing
from remora.kernel.packing.portfolio import pack

SMALL, LARGE, GPU = {"CPU": 4}, {"CPU": 16}, {"CPU": 16, "GPU": 4}


def kind(count: int, bins: int = -1, apart: int = 0, beside: tuple[int, ...] = (), **need: int) -> Kind:
    return Kind(tuple(sorted(need.items())), count, bins & (1 << 300) - 1, apart, beside)


# bins, kinds, limit, what is added, what is left
CASES: dict[str, tuple[list[Bin], list[Kind], int, dict[str, int], list[int]]] = {
    "nothing": ([Bin("a", SMALL, 9)], [], 9, {}, []),
    "equal ones": ([Bin("a", SMALL, 9)], [kind(9, CPU=1)], 9, {"a": 3}, [0]),
    "the smaller where it does": ([Bin("a", SMALL, 9), Bin("b", LARGE, 9)], [kind(2, CPU=2)], 9, {"a": 1}, [0]),
    "the larger where it saves": ([Bin("a", SMALL, 9), Bin("b", LARGE, 9)], [kind(4, CPU=4)], 9, {"b": 1}, [0]),
    "each to its own": (
        [Bin("a", SMALL, 9), Bin("b", SMALL, 9)],
        [kind(2, 1, CPU=1), kind(2, 2, CPU=1)],
        9,
        {"a": 1, "b": 1},
        [0, 0],
    ),
    "a limit of one": ([Bin("a", SMALL, 1)], [kind(9, CPU=1)], 9, {"a": 1}, [5]),
    "a limit of all": ([Bin("a", SMALL, 9), Bin("b", {"CPU": 2}, 9)], [kind(9, CPU=1)], 2, {"a": 2}, [1]),
    "none admits it": ([Bin("a", SMALL, 9)], [kind(1, 0, CPU=1)], 9, {}, [1]),
    "too large for all": ([Bin("a", SMALL, 9)], [kind(1, CPU=5)], 9, {}, [1]),
    "large and small together": ([Bin("a", SMALL, 9)], [kind(2, CPU=3), kind(2, CPU=1)], 9, {"a": 2}, [0, 0]),
    "what is there first": ([Bin("", {"CPU": 3}, 1, THERE), Bin("a", SMALL, 9)], [kind(5, CPU=1)], 9, {"a": 1}, [0]),
    "then what comes": (
        [Bin("", {"CPU": 1}, 1, THERE), Bin("a", SMALL, 1, COMING), Bin("a", SMALL, 9)],
        [kind(6, CPU=1)],
        9,
        {"a": 1},
        [0],
    ),
    "GPU bins only for GPUs": ([Bin("a", SMALL, 9), Bin("g", GPU, 9)], [kind(8, CPU=1)], 9, {"a": 2}, [0]),
    "GPU bins where nothing else is left": ([Bin("a", SMALL, 1), Bin("g", GPU, 9)], [kind(8, CPU=1)], 9, {"a": 1, "g": 1}, [0]),
    "beside GPU work": ([Bin("a", SMALL, 9), Bin("g", GPU, 9)], [kind(1, CPU=1, GPU=1), kind(8, CPU=1)], 9, {"g": 1}, [0, 0]),
    "apart from itself": ([Bin("a", LARGE, 9)], [kind(3, apart=1, CPU=1)], 9, {"a": 3}, [0]),
    "apart from others": ([Bin("a", LARGE, 9)], [kind(2, apart=2, CPU=1), kind(2, apart=1, CPU=1)], 9, {"a": 2}, [0, 0]),
    "apart, with others between": ([Bin("a", SMALL, 9)], [kind(2, apart=1, CPU=1), kind(6, CPU=1)], 9, {"a": 2}, [0, 0]),
    "beside another": (
        [Bin("a", SMALL, 9), Bin("b", LARGE, 9)],
        [kind(1, CPU=3), kind(3, beside=(1,), CPU=3)],
        9,
        {"b": 1},
        [0, 0],
    ),
    "beside nobody": ([Bin("a", SMALL, 9)], [kind(1, beside=(0,), CPU=1)], 9, {}, [1]),
    "cheaper though more": (
        [Bin("a", SMALL, 9, cost=1.0), Bin("b", LARGE, 9, cost=5.0)],
        [kind(16, CPU=1)],
        9,
        {"a": 4},
        [0],
    ),
    "priority among equals": ([Bin("a", SMALL, 9), Bin("b", SMALL, 9, priority=1)], [kind(8, CPU=1)], 9, {"b": 2}, [0]),
    "two hundred different rooms": (
        [*(Bin("", {"CPU": 1 + index % 7, "x": index}, 1, THERE) for index in range(200)), Bin("a", SMALL, 9)],
        [kind(800, CPU=1)],
        9,
        {"a": 2},
        [0],
    ),
}


def used(packing: Packing, bins: list[Bin], kinds: list[Kind]) -> None:
    """Fail unless the packing is one."""
    times_of: dict[int, int] = {}
    placed = [0] * len(kinds)
    for number, times, content in packing.filled:
        times_of[number] = times_of.get(number, 0) + times
        held = dict(bins[number].amounts)
        present = {each for each, _ in content}
        for each, count in content:
            assert kinds[each].bins >> number & 1
            assert not any(kinds[each].apart >> other & 1 for other in present - {each})
            assert count == 1 or not kinds[each].apart >> each & 1
            assert all(any(some >> other & 1 for other in present) for some in kinds[each].beside)
            placed[each] += count * times
            for name, units in kinds[each].need:
                held[name] = held.get(name, 0) - units * count
        assert min(held.values(), default=0) >= 0
    assert all(times <= bins[number].left for number, times in times_of.items())
    assert [each.count for each in kinds] == [a + b for a, b in zip(placed, packing.left, strict=True)]


@pytest.mark.parametrize(("bins", "kinds", "most", "want", "left"), CASES.values(), ids=CASES)
def test_what_is_added_and_what_is_left(
    bins: list[Bin], kinds: list[Kind], most: int, want: dict[str, int], left: list[int]
) -> None:
    packing = pack(bins, kinds, most)
    used(packing, bins, kinds)
    assert (packing.added(bins), packing.left) == (want, left)


def small_case(seed: int) -> tuple[list[Bin], list[Kind], int]:
    """Return up to four types and ten demands. GPU types are for GPU work, as where they are tainted."""
    dice = random.Random(seed)
    bins, zones = [], []
    for number in range(dice.randint(1, 4)):
        amounts = {"CPU": dice.choice([2, 4, 8, 16])}
        if dice.random() < 0.6:
            amounts["memory"] = dice.choice([4, 8, 16, 32])
        if dice.random() < 0.3:
            amounts["GPU"] = dice.choice([1, 2, 4])
        bins.append(Bin(f"t{number}", amounts, dice.choice([1, 2, 3, 100])))
        zones.append(dice.choice("ab"))
    kinds: list[Kind] = []
    left = dice.randint(1, 10)
    while left > 0 and len(kinds) < 5:
        count = dice.randint(1, min(left, 4))
        left -= count
        need = {"CPU": dice.choice([1, 2, 3, 4, 5])}
        if dice.random() < 0.4:
            need["memory"] = dice.choice([1, 2, 4, 6, 8])
        if dice.random() < 0.25:
            need["GPU"] = dice.choice([1, 2])
        zone = dice.choice("ab") if dice.random() < 0.3 else None
        admits = 0
        for number, each in enumerate(bins):
            if zone in (None, zones[number]) and ("GPU" in need or "GPU" not in each.amounts):
                admits |= 1 << number
        kinds.append(Kind(tuple(sorted(need.items())), count, admits, labelled=int(zone is not None)))
    return bins, kinds, dice.choice([2, 3, 5, 100])


class BruteForce:
    """The least that is left, and of that the fewest bins: every way to put one demand after the other into open bins or new
    ones, but for those that are equal."""

    def __init__(self, bins: list[Bin], kinds: list[Kind], most: int) -> None:
        self.bins, self.kinds, self.most = bins, kinds, most
        self.items = [number for number, each in enumerate(kinds) for _ in range(each.count)]
        self.items.sort(key=lambda number: -sum(units for _, units in kinds[number].need))
        self.left = [each.left for each in bins]
        self.open: list[tuple[int, dict[str, int]]] = []
        self.best = (len(self.items), 0)
        self._try(0, 0, 0)

    def _try(self, place: int, unplaced: int, since: int) -> None:
        if (unplaced, len(self.open)) >= self.best:
            return
        if place == len(self.items):
            self.best = (unplaced, len(self.open))
            return
        number = self.items[place]
        each = self.kinds[number]
        again = place > 0 and self.items[place - 1] == number
        seen: set[Any] = set()
        for index, (bin_, free) in enumerate(self.open):
            alike = (bin_, tuple(sorted(free.items())))
            if alike in seen or (again and index < since) or not each.bins >> bin_ & 1:
                continue
            seen.add(alike)
            if all(free.get(name, 0) >= units for name, units in each.need):
                self._move(free, each, -1)
                self._try(place + 1, unplaced, index)
                self._move(free, each, 1)
        if len(self.open) < self.most:
            for bin_, made in enumerate(self.bins):
                fits = all(made.amounts.get(name, 0) >= units for name, units in each.need)
                if self.left[bin_] and fits and each.bins >> bin_ & 1:
                    self.left[bin_] -= 1
                    free = dict(made.amounts)
                    self._move(free, each, -1)
                    self.open.append((bin_, free))
                    self._try(place + 1, unplaced, len(self.open) - 1)
                    self.open.pop()
                    self.left[bin_] += 1
        self._try(place + 1, unplaced + 1, 0)

    def _move(self, free: dict[str, int], each: Kind, sign: int) -> None:
        for name, units in each.need:
            free[name] = free.get(name, 0) + sign * units


def test_within_two_percent_of_the_best_on_small_cases() -> None:
    ours = best = placed = possible = 0
    for seed in range(600):
        bins, kinds, most = small_case(seed)
        packing = pack(bins, kinds, most)
        used(packing, bins, kinds)
        least, fewest = BruteForce(bins, kinds, most).best
        total = sum(each.count for each in kinds)
        placed, possible = placed + total - sum(packing.left), possible + total - least
        assert sum(packing.left) >= least
        if sum(packing.left) == least:
            ours, best = ours + sum(packing.added(bins).values()), best + fewest
    assert best > 500
    assert ours <= 1.02 * best
    assert placed >= 0.98 * possible


def test_the_work_depends_on_the_kinds_not_on_the_demands() -> None:
    bins, kinds, _ = small_case(7)
    many = [Kind(each.need, each.count * 10**9, each.bins) for each in kinds]
    bins = [each._replace(left=10**15) for each in bins]
    used(pack(bins, many), bins, many)


def test_what_a_packing_added_holds_the_same_again() -> None:
    """Asked again while its bins are on their way, or some of them there, it adds no more."""
    for seed in range(300):
        bins, kinds, most = small_case(seed)
        first = pack(bins, kinds, most)
        added = first.added(bins)
        dice = random.Random(seed)
        for there in (0, 1, 2):
            coming = [each._replace(left=added.get(each.name, 0), tier=COMING) for each in bins]
            arrived = [0 if there == 0 else each.left if there == 2 else dice.randint(0, each.left) for each in coming]
            again = [
                *(each._replace(left=each.left - added.get(each.name, 0)) for each in bins),
                *(each._replace(left=each.left - here) for each, here in zip(coming, arrived, strict=True)),
                *(each._replace(left=here, tier=THERE) for each, here in zip(coming, arrived, strict=True)),
            ]
            wide = [
                Kind(k.need, k.count, k.bins | k.bins << len(bins) | k.bins << 2 * len(bins), labelled=k.labelled)
                for k in kinds
            ]
            second = pack(again, wide, most - sum(added.values()))
            assert sum(second.left) <= sum(first.left)
            if sum(second.left) == sum(first.left):
                assert not second.added(again), (seed, there)
    assert TO_ADD not in (COMING, THERE)


def test_no_bin_could_be_exchanged_for_a_cheaper_one() -> None:
    for seed in range(1500):
        dice = random.Random(seed)
        bins, kinds, most = small_case(seed)
        bins = [each._replace(cost=float(dice.randint(1, 9)), left=10**6) for each in bins]
        kinds = [Kind(each.need, each.count * (37 if seed % 2 else 1), each.bins, labelled=each.labelled) for each in kinds]
        for number, _, content in pack(bins, kinds, most * 10**4).filled:
            needed: dict[str, int] = {}
            for each, count in content:
                for name, units in kinds[each].need:
                    needed[name] = needed.get(name, 0) + units * count
            for other, each_bin in enumerate(bins):
                if all(kinds[each].bins >> other & 1 for each, _ in content):
                    holds = all(each_bin.amounts.get(name, 0) >= units for name, units in needed.items())
                    assert not holds or (each_bin.cost or 0) >= (bins[number].cost or 0), seed
