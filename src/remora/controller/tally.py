"""What has been done so far, in numbers: counted where it happens, read by whoever exports it."""

from __future__ import annotations

from collections import Counter, deque

_MOST_DURATIONS = 4096


class Tally:
    """Counts only go up. ``durations`` are those since somebody last took them; several threads add to both."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, deque[float]] = {}

    def count(self, what: str, kind: str = "", times: int = 1) -> None:
        self.counts[what, kind] += times

    def took(self, what: str, seconds: float) -> None:
        """Note how long something took; of very many the last."""
        self._durations.setdefault(what, deque(maxlen=_MOST_DURATIONS)).append(seconds)

    def take_durations(self) -> dict[str, list[float]]:
        """Return what took how long, and forget it."""
        found: dict[str, list[float]] = {}
        for what, line in list(self._durations.items()):
            taken = found[what] = []
            while line:
                taken.append(line.popleft())
        return found
