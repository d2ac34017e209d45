"""The layer of one process: the job's defaults, the classes that are known to exist, the way to the controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.model.groups import GroupRequest
from remora.model.taints import rare_taints
from remora.ray_seam import clusters, raw
from remora.ray_seam.hints import Hint, Hints
from remora.ray_seam.proxy import Given, Ticket
from remora.ray_seam.waiting import Waiting
from remora.wire.classes import IDLE_SECONDS
from remora.wire.groups import encode_group
from remora.wire.leases import encode_ask
from remora.wire.options import Defaults, Rewritten, rewrite
from remora.wire.tokens import TAKEN, class_token

CONTROLLER = "remora-controller"
NAMESPACE = "remora"

_SEEN_SECONDS = 5.0
_AGAIN_SECONDS = IDLE_SECONDS / 3


class Layer:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.waiting = Waiting(self._what_waits)
        self.stopped = threading.Event()
        self._controller: Any = None
        self._alive: set[str] = set()
        self._known: dict[str, Rewritten] = {}
        self._tickets: dict[str, Ticket] = {}
        self._tolerant: dict[tuple[str, str], Ticket] = {}
        self._inside: dict[tuple[str, str], Ticket] = {}
        self._hints = Hints(self._tell)
        plain = rewrite({}, defaults)
        self._plain = Ticket(plain.spec.class_id, plain.spec)

    def default(self) -> Ticket:
        """For work that says nothing about where it runs."""
        return self._plain

    def rewrite(self, options: dict[str, Any], resources: dict[str, float]) -> Rewritten:
        """As ``wire.options.rewrite``; the same options are worked out once."""
        key = repr(sorted(options.items())) + (repr(sorted(resources.items())) if options.get("fallback_strategy") else "")
        found = self._known.get(key)
        if found is None:
            found = rewrite(options, self.defaults, resources)
            if len(self._known) < 10_000 and " at 0x" not in key:  # an object that shows its address has no lasting key
                self._known[key] = found
        return found

    def ticket(self, rewritten: Rewritten) -> Ticket:
        """One for each class: it remembers when the class was last mentioned."""
        spec = rewritten.spec
        found = self._tickets.get(spec.class_id)
        if found is None:
            found = self._tickets[spec.class_id] = Ticket(spec.class_id, spec)
        return found

    def tokens(self, ticket: Ticket, resources: dict[str, float]) -> dict[str, float]:
        """What work takes beside its resources: of its class, and in a virtual cluster of its share."""
        if self.defaults.rare:
            ticket = self._for_rare(ticket, resources)
        cluster_id = clusters.current()
        if cluster_id is None:
            return {self._token(ticket): TAKEN}
        ticket = self._within(ticket, cluster_id)
        if ticket.spec is not None:
            self._hints.note(ticket.spec, resources)
        return {self._token(ticket): TAKEN, **clusters.shares(cluster_id, ticket.spec, resources)}

    def _token(self, ticket: Ticket) -> str:
        """The token to take. The controller is told of its class, one way and once in a while in this process: no call on
        the way of a task."""
        now = time.monotonic()
        if now - ticket.mentioned_at > _AGAIN_SECONDS and ticket.spec is not None:
            self.controller().ensure.remote(ticket.spec.encode())
            ticket.mentioned_at = now
        return ticket.token

    def place(
        self,
        asked: Rewritten,
        kind: str,
        held: Mapping[str, float],
        demand: Mapping[str, float],
        namespace: str | None,
    ) -> Given:
        """One call: the kernel decides where this one goes."""
        context = ray.get_runtime_context()
        keys = rare_taints((name for name, amount in demand.items() if amount), self.defaults.rare)
        ask = asked.ask(kind, held, demand, namespace or context.namespace, keys)
        text = encode_ask(ask._replace(request=replace(ask.request, cluster=clusters.current())))
        slot, node_id = ray.get(self.controller().place.remote(text, context.get_job_id()))
        return Given(slot, node_id, text)

    def claim(self, slot: str, actor_id: str) -> None:
        self.controller().claim.remote(slot, actor_id)

    def give_up(self, slot: str) -> None:
        self.controller().give_up.remote(slot)

    def give_up_when_done(self, slot: str, made: Any) -> None:
        """A task has ended when its first result is there. Of one that streams, the controller sees it later."""
        if isinstance(made, list) and made:
            made[0]._on_completed(lambda _: self.give_up(slot))

    def offer_group(self, request: GroupRequest) -> dict[str, Any]:
        """Which option to create now, or why none. Returns when its tokens can be seen: Ray does not look again at a
        placement group that it found infeasible."""
        offer: dict[str, Any] = ray.get(self.controller().offer_group.remote(encode_group(request)))
        until = time.monotonic() + _SEEN_SECONDS
        wanted = {class_token(class_id): set(nodes) for class_id, nodes in offer["nodes"].items()}
        while wanted and time.monotonic() < until:
            # The view that placement groups are placed by; others are a moment ahead of it or behind.
            totals = raw.total_resources_per_node()
            wanted = {token: nodes for token, nodes in wanted.items() if any(token not in totals.get(n, {}) for n in nodes)}
            if wanted:
                time.sleep(0.01)
        return offer

    def names_no_node(self, strategy: Any) -> bool:
        """A node affinity to a node that is not there: Ray says so itself. It is only asked about nodes not seen yet."""
        if not isinstance(strategy, NodeAffinitySchedulingStrategy) or strategy.node_id in self._alive:
            return False
        self._alive = {node["NodeID"] for node in raw.nodes() if node["Alive"]}
        return strategy.node_id not in self._alive

    def _what_waits(self, keys: list[str]) -> list[Any]:
        """Of a process that has disconnected nothing waits; and asking would connect it again."""
        if not ray.is_initialized():
            return [None] * len(keys)
        answer: list[Any] = ray.get(self.controller().waiting.remote(keys))
        return answer

    def controller(self) -> Any:
        if self._controller is None:
            self._controller = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
        return self._controller

    def _tell(self, hints: list[Hint]) -> None:
        if ray.is_initialized():
            self.controller().want.remote(hints)

    def stop(self) -> None:
        self.stopped.set()
        self.waiting.stop()

    def _within(self, ticket: Ticket, cluster_id: str) -> Ticket:
        """The same class in a virtual cluster; a ticket that a guard hands on is there already."""
        if ticket.spec is None:
            return ticket
        known = (ticket.class_id, cluster_id)
        if known not in self._inside:
            spec = replace(ticket.spec, cluster=cluster_id)
            self._inside[known] = Ticket(spec.class_id, spec)
        return self._inside[known]

    def _for_rare(self, ticket: Ticket, resources: Mapping[str, float]) -> Ticket:
        keys = rare_taints((name for name, amount in resources.items() if amount), self.defaults.rare)
        if not keys or ticket.spec is None:
            return ticket
        known = (ticket.class_id, ",".join(keys))
        if known not in self._tolerant:
            spec = ticket.spec.tolerating(keys)
            self._tolerant[known] = Ticket(spec.class_id, spec)
        return self._tolerant[known]
