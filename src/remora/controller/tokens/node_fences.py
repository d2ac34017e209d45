"""Fences: what workers of a node may not start there without asking. Written under one key for each node, which workers
read."""

from __future__ import annotations

from collections.abc import Collection

from remora.controller.context import Context
from remora.controller.store import Store
from remora.wire.fences import fence_key, read_fence, write_fence
from remora.wire.tokens import class_of_token, class_token

_NONE: frozenset[str] = frozenset()


class Fences:
    """Of each node the class tokens that it no longer accepts, and the virtual clusters that use more there than they may."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store
        self._classes: dict[str, frozenset[str]] = {}
        self._full: dict[str, frozenset[str]] = {}
        self._confirmed_at: dict[str, float] = {}
        self._full_since: dict[str, dict[str, float]] = {}  # by node and cluster: since when workers can read it

    def classes(self, node_id: str) -> frozenset[str]:
        """Return the class tokens that are fenced on a node."""
        return self._classes.get(node_id, _NONE)

    def full(self, node_id: str) -> frozenset[str]:
        """Return the virtual clusters of which nothing starts on a node without admission."""
        return self._full.get(node_id, _NONE)

    def fenced_nodes(self) -> list[str]:
        return list(self._classes)

    def nodes_with(self, token: str) -> list[str]:
        """Return the nodes that a class token is fenced on."""
        return [node_id for node_id, names in self._classes.items() if token in names]

    def full_nodes(self) -> list[str]:
        return [node_id for node_id, clusters in self._full.items() if clusters]

    @property
    def any_full(self) -> bool:
        return any(self._full.values())

    def is_confirmed(self, node_id: str) -> bool:
        """Return whether the fence of a node is stored as it should be."""
        return self._store.is_confirmed(fence_key(node_id))

    def confirmed_for(self, node_id: str) -> float:
        """Return for how many seconds workers could read the fence of a node as it is; 0 when they cannot yet."""
        if not self.is_confirmed(node_id):
            return 0.0
        return self._context.now() - self._confirmed_at.get(node_id, 0.0)

    def full_for(self, node_id: str, cluster_id: str) -> float:
        """Return for how many seconds workers could read that a cluster is full on a node; 0 when they cannot yet."""
        since = self._full_since.get(node_id, {}).get(cluster_id)
        return 0.0 if since is None or cluster_id not in self.full(node_id) else self._context.now() - since

    def fence(self, node_id: str, tokens: frozenset[str]) -> None:
        """Say which class tokens a node no longer accepts."""
        before = self.classes(node_id)
        if tokens == before:
            return
        if tokens:
            self._classes[node_id] = tokens
        else:
            del self._classes[node_id]
        self._write(node_id)
        self._context.note("fence", node_id, f"up for {len(tokens)} of the classes in use" if tokens else "down")

    def fill(self, node_id: str, clusters: Collection[str]) -> None:
        """Say which virtual clusters use more of a node than they may."""
        if self.full(node_id) != clusters:
            self._full[node_id] = frozenset(clusters)
            self._write(node_id)

    def confirm(self, key: str, value: bytes | None) -> None:
        """A fence was stored."""
        node_id, now = key.removeprefix(fence_key("")), self._context.now()
        self._confirmed_at[node_id] = now
        before, full = self._full_since.get(node_id, {}), read_fence(value).full
        if full:
            self._full_since[node_id] = {cluster_id: before.get(cluster_id, now) for cluster_id in full}
        else:
            self._full_since.pop(node_id, None)

    def restore(self, node_id: str, data: bytes) -> None:
        """What a controller before us wrote: it holds until something else is decided."""
        fence = read_fence(data)
        self._full[node_id] = fence.full
        if fence.classes:
            self._classes[node_id] = frozenset(map(class_token, fence.classes))
        self.confirm(fence_key(node_id), data)

    def renew(self, node_id: str) -> None:
        """Write the fence of a node as it should be, whatever stands there."""
        self._write(node_id)

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        for table in (self._classes, self._full, self._confirmed_at, self._full_since):
            table.pop(node_id, None)
        self._store.set(fence_key(node_id), None)

    def _write(self, node_id: str) -> None:
        classes = [class_id for name in self.classes(node_id) if (class_id := class_of_token(name)) is not None]
        full = self.full(node_id)
        if classes or full or self._store.get(fence_key(node_id)) is not None:
            self._store.set(fence_key(node_id), write_fence(classes, full))
