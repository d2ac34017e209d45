"""What work asks for, as one short text that client and controller spell alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.model.resources import UNIT


def shape_key(shapes: Iterable[Mapping[str, float]]) -> str:
    """Ray reports amounts as floats, and bundles in no lasting order."""
    return "|".join(sorted(map(_key, shapes)))


def names_in(key: str) -> frozenset[str]:
    """Return the names of all that is asked for in such a text."""
    return frozenset(each.rpartition(":")[0] for shape in key.split("|") for each in shape.split(";") if each)


def _key(shape: Mapping[str, float]) -> str:
    return ";".join(f"{name}:{round(amount * UNIT)}" for name, amount in sorted(shape.items()) if amount)
