"""What every part of the controller has in common: the time, the journal, and where things are set aside that failed."""

from __future__ import annotations

from collections.abc import Callable

from remora.controller.journal import Journal
from remora.controller.set_aside import SetAside
from remora.wire.calls import By


class Context:
    """``clock`` returns seconds since the epoch; in tests it is moved by hand."""

    def __init__(self, clock: Callable[[], float], journal: Journal) -> None:
        self.now = clock
        self.journal = journal
        self.aside = SetAside(clock, self.note)

    def note(self, kind: str, subject: str, text: str, by: By | None = None) -> None:
        """Write one line into the journal; ``by`` says who did it."""
        self.journal.add(self.now(), kind, subject, text, by)
