"""Ids of Ray's, as people read them."""

from __future__ import annotations

_SHORT = 12
_LEAST = 28
_HEX = frozenset("0123456789abcdef")


def short_id(name: str) -> str:
    """Return the beginning of an id of Ray's, by which every command finds it; anything else, such as a name, as it is."""
    return name[:_SHORT] if len(name) >= _LEAST and _HEX.issuperset(name) else name
