"""What this process waits for on its own account: no wait of the user's, so nothing is lent meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_quiet = threading.local()


def is_quiet() -> bool:
    """Return whether what this thread waits for just now is our own business, and no wait of the user's."""
    return getattr(_quiet, "depth", 0) > 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What this thread waits for inside of it is our own business."""
    _quiet.depth = getattr(_quiet, "depth", 0) + 1
    try:
        yield
    finally:
        _quiet.depth -= 1
