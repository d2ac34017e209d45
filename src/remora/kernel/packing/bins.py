"""Bins, kinds of things that go into them, and a packing: which bins, how often, with what in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

GPU = "GPU"
"""Bins with GPUs are left to those who ask for GPUs as long as others do, as when work is placed."""

_GPU_WEIGHT = 3.0

THERE, COMING, TO_ADD = range(3)
"""Tiers: what is there is filled first, then what is on its way, and only then is anything added."""

NO_LIMIT = 1 << 60


class Bin(NamedTuple):
    """``left`` equal bins. ``cost`` is known of all that can be added or of none; of equals the higher ``priority`` wins."""

    name: str
    amounts: Mapping[str, int]
    left: int
    tier: int = TO_ADD
    cost: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """``count`` equal things. ``bins``, ``apart`` and each of ``beside`` are bit sets: of bins that admit it, of kinds (perhaps
    itself) that may not be in the same bin, of kinds of which one has to be there already."""

    need: tuple[tuple[str, int], ...]
    count: int
    bins: int
    apart: int = 0
    beside: tuple[int, ...] = ()
    labelled: int = 0


Fill = list[tuple[int, int]]
"""What one bin takes: kind and how many of it."""


class Filled(NamedTuple):
    """So many bins of this number, each with this in it."""

    bin: int
    times: int
    content: Fill


class Packing(NamedTuple):
    """``left`` is what finds no bin, by kind."""

    filled: list[Filled]
    left: list[int]

    def added(self, bins: Sequence[Bin]) -> dict[str, int]:
        """Return how many bins of each name are added."""
        counts: dict[str, int] = {}
        for number, times, _ in self.filled:
            if bins[number].tier == TO_ADD:
                counts[bins[number].name] = counts.get(bins[number].name, 0) + times
        return counts


class Problem:
    """Bins and kinds as lists by resource number, with what every way of packing asks for."""

    def __init__(self, bins: Sequence[Bin], kinds: Sequence[Kind], most: int = NO_LIMIT) -> None:
        self.bins = bins
        self.kinds = kinds
        self.most = most
        names = sorted({name for kind in kinds for name, _ in kind.need})
        index = {name: number for number, name in enumerate(names)}
        self.needs = [tuple([(index[name], units) for name, units in kind.need]) for kind in kinds]
        self.amounts = [[each.amounts.get(name, 0) for name in names] for each in bins]
        self.counts = [kind.count for kind in kinds]
        self.ruled = any(kind.apart or kind.beside for kind in kinds)
        self.has_gpu = [bool(each.amounts.get(GPU)) for each in bins]
        gpu = index.get(GPU, -1)
        self.wants_gpu = [any(number == gpu for number, _ in need) for need in self.needs]
        # How much of the largest bin a unit is: what is scarce weighs more.
        largest = [max((held[number] for held in self.amounts), default=0) or 1 for number in range(len(names))]
        weights = [(_GPU_WEIGHT if number == gpu else 1.0) / largest[number] for number in range(len(names))]
        self.dominant = [max([units / largest[number] for number, units in need], default=0.0) for need in self.needs]
        self.volume = [sum([units * weights[number] for number, units in need]) for need in self.needs]
        self.admitted = [self._admitted(number) for number in range(len(bins))]
        self.size = [self._size(number, weights) for number in range(len(bins))]
        self.cost = self._costs()
        # What no kind needs is empty in every bin, which counts in Ray's score.
        self.unneeded = [sum(1 for name, units in each.amounts.items() if units and name not in index) for each in bins]

    @property
    def priced(self) -> bool:
        """Return whether anything is known of what bins cost."""
        return self.cost is not None

    def _admitted(self, number: int) -> list[int]:
        """Return the kinds of which at least one fits into an empty bin."""
        held = self.amounts[number]
        found: list[int] = []
        if not self.bins[number].left:
            return found
        for kind, need in enumerate(self.needs):
            if self.kinds[kind].bins >> number & 1 and self.counts[kind]:
                for resource, units in need:
                    if held[resource] < units:
                        break
                else:
                    found.append(kind)
        return found

    def _size(self, number: int, weights: list[float]) -> float:
        """Return how large a bin is by what is asked for, and a little by all that it has."""
        asked = sum([units * weight for units, weight in zip(self.amounts[number], weights, strict=True)])
        return asked + 1e-12 * sum(self.bins[number].amounts.values())

    def _costs(self) -> list[float] | None:
        """Return what each bin costs; what is there costs nothing any more."""
        if all(each.cost is None for each in self.bins):
            return None
        return [0.0 if each.tier != TO_ADD else each.cost or 0.0 for each in self.bins]
