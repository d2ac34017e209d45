"""Resources in Ray's exact unit: whole ten-thousandths, so that nothing drifts.

Inside Remora an amount is an ``int`` of units; floats exist only where users write or read them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

from remora.errors import InvalidResourceError

MEMORY = "memory"
UNIT = 10_000
TOKEN_PREFIX = "remora/"

Amounts = Mapping[str, int]
"""Resource name to units."""


_BYTES = ("memory", "object_store_memory")
_MARKS = ("accelerator_type:", "node:")


def to_units(name: str, amount: Any) -> int:
    """Return a user's amount in units, as Ray counts it: 1/3 is 3,333. Refuse what is none."""
    if isinstance(amount, bool) or not isinstance(amount, numbers.Real):
        raise InvalidResourceError(f"the amount {amount!r} of {name} is not a number; for example {{{name!r}: 1}}")
    if amount < 0 and amount != -math.inf:
        raise InvalidResourceError(f"the amount {amount!r} of {name} is negative; for example {{{name!r}: 1}}")
    if isinstance(amount, numbers.Integral):
        return int(amount) * UNIT
    try:
        scaled = float(amount) * UNIT
    except OverflowError:
        scaled = math.inf
    if not math.isfinite(scaled):
        raise InvalidResourceError(f"the amount {amount!r} of {name} is not finite; for example {{{name!r}: 1}}")
    # Sums such as 0.1 + 0.2 miss a whole unit by a little; what is finer than a unit Ray cuts off.
    units = round(scaled)
    if abs(scaled - units) > scaled * 1e-9:
        units = int(scaled)
    if not units and amount:
        raise InvalidResourceError(
            f"the amount {amount!r} of {name} is less than Ray's unit of {1 / UNIT}; for example {{{name!r}: {1 / UNIT}}}"
        )
    return units


def from_units(units: int) -> float:
    return units / UNIT


def to_ray(units: int) -> float:
    """Return a float that Ray, which cuts off what is finer than a unit, counts as just so many."""
    amount = units / UNIT
    return amount if int(amount * UNIT) == units else math.nextafter(amount, math.inf)


def show_amount(units: int) -> str:
    """``1``, ``0.5``: the shortest exact decimal."""
    whole, rest = divmod(abs(units), UNIT)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}" + (f".{rest:04d}".rstrip("0") if rest else "")


def show_pair(name: str, units: int) -> str:
    """``1 CPU``, ``9.5 GiB memory``; of what only marks a node, such as ``accelerator_type:A100``, no amount says anything."""
    if name in _BYTES:
        return f"{_show_bytes(units)} {name}"
    return name if name.startswith(_MARKS) and units < UNIT else f"{show_amount(units)} {name}"


def _show_bytes(units: int) -> str:
    """Whole bytes where the next unit would not say it exactly enough."""
    amount = units / UNIT
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def show_amounts(amounts: Amounts) -> str:
    """``1 CPU and 2 GPU``; ``nothing`` when empty."""
    parts = [show_pair(name, units) for name, units in sorted(amounts.items())]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) or "nothing"


def check_resource_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidResourceError(f"the resource name {name!r} is not a non-empty string; for example {{'CPU': 1}}")
    if name.startswith(TOKEN_PREFIX):
        raise InvalidResourceError(
            f"the resource name {name!r} begins with {TOKEN_PREFIX!r}, which is reserved; choose another, for example "
            f"{name.removeprefix(TOKEN_PREFIX) or 'my_resource'!r}"
        )
    return name


class Resources(Mapping[str, int]):
    """An immutable, hashable map of resource name to units; zero amounts are left out."""

    __slots__ = ("_hash", "_units", "pairs")

    pairs: tuple[tuple[str, int], ...]
    _units: dict[str, int]
    _hash: int

    def __init__(self, units: Mapping[str, int] | None = None) -> None:
        self.pairs = tuple(sorted((name, amount) for name, amount in (units or {}).items() if amount))
        self._units = dict(self.pairs)
        self._hash = hash(self.pairs)

    @classmethod
    def parse(cls, resources: Any, *, of: str = "resources") -> Resources:
        """Resources as users write them: ``{"CPU": 0.5}``."""
        if isinstance(resources, Resources):
            return resources
        if resources is None:
            return EMPTY
        if not isinstance(resources, Mapping):
            raise InvalidResourceError(
                f"{of} must be a mapping of names to amounts, not {resources!r}; for example {{'CPU': 1}}"
            )
        return cls({check_resource_name(name): to_units(name, amount) for name, amount in resources.items()})

    def __getitem__(self, name: str) -> int:
        return self._units[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self.pairs)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self.pairs == other.pairs if isinstance(other, Resources) else NotImplemented

    def __add__(self, other: Amounts) -> Resources:
        return Resources({name: self.get(name, 0) + other.get(name, 0) for name in {*self, *other}})

    def same_as(self, amounts: dict[str, int]) -> bool:
        """Return whether a plain dictionary without zeros has exactly these amounts."""
        return self._units == amounts

    def fits_in(self, amounts: Amounts) -> bool:
        return all(amounts.get(name, 0) >= units for name, units in self.pairs)

    def to_dict(self) -> dict[str, float]:
        return {name: from_units(units) for name, units in self.pairs}

    def __reduce__(self) -> tuple[Any, ...]:
        return Resources, (self._units,)

    def __repr__(self) -> str:
        return f"Resources({show_amounts(self)})"


EMPTY = Resources()
