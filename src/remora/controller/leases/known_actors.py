"""Every actor that has not ended, as the cluster told of it last; and those that have to be looked up."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from remora.controller.clusters.registry import Registry
from remora.controller.context import Context
from remora.controller.effects import Find
from remora.port.contract import ENDED, RUNNING, Work
from remora.wire.timing import BURIED_SECONDS
from remora.wire.tokens import CLUSTER_LABEL

_LOOK_AGAIN_SECONDS = 0.3
_NEVER = float("inf")


class KnownActors:
    """The only writer of what is known of actors. ``registry`` is told which of them are in a virtual cluster."""

    def __init__(self, context: Context, registry: Registry) -> None:
        self._context = context
        self._registry = registry
        self._actors: dict[str, Work] = {}
        self._ended: dict[str, float] = {}  # those that have, and when: what is told of them later is old
        self._looks: dict[str, tuple[int, float]] = {}  # those to be looked up: how often so far, and when again

    def __contains__(self, actor_id: str) -> bool:
        return actor_id in self._actors

    def get(self, actor_id: str) -> Work | None:
        return self._actors.get(actor_id)

    def node_of(self, actor_id: str) -> str | None:
        """Return the node where an actor was seen last."""
        known = self._actors.get(actor_id)
        return next(iter(known.node_ids), None) if known is not None else None

    def has_ended(self, actor_id: str) -> bool:
        return actor_id in self._ended

    def missing_in(self, living: Container[str]) -> list[str]:
        """Return the actors that are known, and not among these."""
        return [actor_id for actor_id in self._actors if actor_id not in living]

    def is_old(self, work: Work) -> bool:
        """Return whether a message about an actor is older than what is known of it: messages may come late, and twice."""
        known = self._actors.get(work.work_id)
        if known is None or work.state == ENDED:
            return False
        # Each time that it restarts, it waits first and runs then.
        return (work.restarts, work.state == RUNNING) < (known.restarts, known.state == RUNNING)

    def note(self, work: Work) -> Work:
        """Keep in mind how an actor is. Return that with what is known of it: a message of a feed says only what changed."""
        if work.state == ENDED:
            self._actors.pop(work.work_id, None)
            self._ended[work.work_id] = self._context.now()
            self._registry.actor_ended(work.work_id)
            return work
        known = self._actors.get(work.work_id)
        if known is not None and not work.labels:
            work = replace(work, labels=known.labels, shapes=known.shapes, namespace=work.namespace or known.namespace)
        self._actors[work.work_id] = work
        cluster_id = work.labels.get(CLUSTER_LABEL)
        if cluster_id is not None:
            self._registry.see_actor(work.work_id, cluster_id)
        return work

    def forget_ended(self) -> None:
        """Forget those that ended so long ago that nobody tells of them any more."""
        oldest = self._context.now() - BURIED_SECONDS
        for actor_id, at in list(self._ended.items()):
            if at >= oldest:
                return
            del self._ended[actor_id]

    # Looking up

    def look_up(self, actor_id: str) -> None:
        """Ask the cluster about an actor, soon."""
        if actor_id not in self._looks:
            self._looks[actor_id] = 0, self._context.now()

    def is_looked_up(self, actor_id: str) -> bool:
        return actor_id in self._looks

    def due(self) -> list[Find]:
        """Return the questions that are to be asked now."""
        now = self._context.now()
        return [Find(actor_id) for actor_id, (_, at) in self._looks.items() if at <= now]

    def looking(self, actor_id: str) -> None:
        """A question is on its way."""
        looks, _ = self._looks.get(actor_id, (0, 0.0))
        self._looks[actor_id] = looks + 1, _NEVER

    def look_again(self, actor_id: str, looks: int = 0) -> None:
        """It could not be answered, or not yet: it is asked again in a moment."""
        self._looks[actor_id] = looks, self._context.now() + _LOOK_AGAIN_SECONDS

    def looked(self, actor_id: str) -> int:
        """It was answered. Return how often it was asked."""
        looks, _ = self._looks.pop(actor_id, (0, 0.0))
        return looks

    @property
    def settled(self) -> bool:
        return not self._looks
