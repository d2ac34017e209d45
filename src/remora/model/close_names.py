"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def close_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like this one, or begins with it; None when none does."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1) or [other for other in known if other.startswith(name)]
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``": did you mean 'labels'?"``, or nothing."""
    near = close_name(name, known)
    return f": did you mean {near!r}?" if near is not None else ""
