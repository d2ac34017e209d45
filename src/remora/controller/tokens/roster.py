"""Which classes are offered: those that somebody uses, or said lately that they will. The others are only remembered.

Every class is a token on many nodes, and a node with thousands of tokens is slow. A class that sleeps wakes when a client
says that it needs it, or when work that waits for its token is seen.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from remora.controller.context import Context
from remora.controller.store import Store
from remora.wire.classes import ClassSpec
from remora.wire.keys import CLASSES
from remora.wire.timing import IDLE_SECONDS

MOST_OFFERED = 900
"""Beyond this even classes that were used a moment ago make room, the one unused for longest first."""

_MOMENT_SECONDS = 5.0  # what was said to be needed may not be seen as waiting or running any sooner
_MOST_REMEMBERED = 10_000
_SWEEP_SECONDS = 1.0


class Roster:
    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store
        self._classes: dict[str, ClassSpec] = {}
        self._offered: dict[str, ClassSpec] = {}
        self._used_at: dict[str, float] = {}
        self._swept_at = 0.0
        self.changes = 0
        """Goes up whenever a class is offered or no longer is."""

    @property
    def classes(self) -> Mapping[str, ClassSpec]:
        """Every class that is remembered, by id."""
        return self._classes

    @property
    def offered(self) -> Mapping[str, ClassSpec]:
        return self._offered

    def is_saved(self, class_id: str) -> bool:
        """Return whether the store is known to have a class."""
        return self._store.is_confirmed(CLASSES.key(class_id))

    def restore(self, spec: ClassSpec) -> None:
        """One that a controller before us remembered: somebody may be using it."""
        self._classes[spec.class_id] = spec
        self._offer(spec)

    def need(self, spec: ClassSpec) -> bool:
        """Note that somebody uses this class. Return whether it was not offered."""
        if spec.class_id in self._offered:
            self._use(spec.class_id)
            return False
        if spec.class_id not in self._classes:
            self._store.set(CLASSES.key(spec.class_id), CLASSES.write(spec.to_body()))
            self._classes[spec.class_id] = spec
        self._offer(spec)
        return True

    def see(self, in_use: Iterable[str]) -> list[str]:
        """Note that these are held or waited for. Return those that had been asleep."""
        known = [class_id for class_id in in_use if class_id in self._classes]
        return [class_id for class_id in known if self.need(self._classes[class_id])]

    def tend(self, waited: set[str], counts: Mapping[str, int], clusters: Container[str]) -> None:
        """Offer classes that are waited for, and now and then look for those that nobody uses, or whose virtual cluster is
        gone. ``counts`` says how many nodes have somebody who holds a class."""
        for class_id in self.see(waited):
            self._context.note("class", class_id, "waited for: offered again")
        if self._context.now() - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = self._context.now()
        for class_id, spec in list(self._offered.items()):
            if spec.cluster is not None and spec.cluster not in clusters:
                self.drop(class_id)
        in_use = waited | {class_id for class_id, count in counts.items() if count > 0}
        self.see(in_use)
        for class_id in self.sweep(in_use):
            self._context.note("class", class_id, "not used any more: no longer offered")

    def sweep(self, in_use: set[str]) -> list[str]:
        """Let the idle ones sleep, and forget those that have slept for longest. Return those that went to sleep."""
        now = self._context.now()
        idle = [class_id for class_id in self._used_at if class_id in self._offered and class_id not in in_use]
        too_many = len(self._offered) - MOST_OFFERED
        asleep: list[str] = []
        for class_id in idle:
            age = now - self._used_at[class_id]
            if age > IDLE_SECONDS or (age > _MOMENT_SECONDS and len(asleep) < too_many):
                del self._offered[class_id]
                asleep.append(class_id)
        self.changes += len(asleep)
        if len(self._used_at) > _MOST_REMEMBERED:
            sleeping = [class_id for class_id in self._used_at if class_id not in self._offered]
            for class_id in sleeping[: len(self._used_at) - _MOST_REMEMBERED]:
                self.drop(class_id)
        return asleep

    def drop(self, class_id: str) -> None:
        """Forget a class that nobody will ever use again."""
        if self._classes.pop(class_id, None) is not None:
            self._store.set(CLASSES.key(class_id), None)
        if self._offered.pop(class_id, None) is not None:
            self.changes += 1
        self._used_at.pop(class_id, None)

    def clear(self) -> None:
        for class_id in list(self._classes):
            self.drop(class_id)

    def _offer(self, spec: ClassSpec) -> None:
        self._offered[spec.class_id] = spec
        self.changes += 1
        self._use(spec.class_id)

    def _use(self, class_id: str) -> None:
        self._used_at.pop(class_id, None)
        self._used_at[class_id] = self._context.now()  # the order is that of use
