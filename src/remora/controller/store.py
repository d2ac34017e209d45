"""What is remembered beyond our own life: what should stand under each key, and what is known to stand there."""

from __future__ import annotations

from collections.abc import Mapping

from remora.controller.effects import Done, Put
from remora.controller.lanes import Lanes


class Store:
    """The only writer of the cluster's key-value store. A value that was set is *confirmed* when the store has answered."""

    def __init__(self, lanes: Lanes, found: Mapping[str, bytes]) -> None:
        self._lanes = lanes
        self._stored: dict[str, bytes] = dict(found)
        self._wanted: dict[str, bytes | None] = {}

    def get(self, key: str) -> bytes | None:
        """Return what was set last, or found when we began."""
        return self._wanted[key] if key in self._wanted else self._stored.get(key)

    def all_keys(self) -> list[str]:
        return self.keys("")

    def keys(self, prefix: str) -> list[str]:
        """Return every key that has a value or is about to have or to lose one."""
        return sorted(key for key in {*self._stored, *self._wanted} if key.startswith(prefix))

    def set(self, key: str, value: bytes | None) -> None:
        """Remember a value; None forgets it."""
        if key not in self._wanted and self._stored.get(key) == value:
            return
        self._wanted[key] = value

    def is_confirmed(self, key: str) -> bool:
        """Return whether what was set last is known to be stored."""
        return key not in self._wanted

    @property
    def settled(self) -> bool:
        return not self._wanted

    def plan(self) -> list[Put]:
        """Return the writes that may be made now."""
        return [Put(key, value) for key, value in self._wanted.items() if self._lanes.is_free(f"kv {key}")]

    def done(self, done: Done) -> None:
        """Take in what came of a write. What was set meanwhile has yet to be written."""
        put = done.effect
        assert isinstance(put, Put)
        if done.error:
            return
        if put.value is None:
            self._stored.pop(put.key, None)
        else:
            self._stored[put.key] = put.value
        if put.key in self._wanted and self._wanted[put.key] == put.value:
            del self._wanted[put.key]
