"""The layer of one process: the job's defaults, the classes that are known to exist, the way to the controller."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from remora.errors import InvalidStrategyError
from remora.model.groups import GroupRequest
from remora.model.strategies import ACTOR, TASK
from remora.model.taints import rare_taints
from remora.ray_seam import clusters, confine, raw, within
from remora.ray_seam.hints import Hint, Hints
from remora.ray_seam.lookup import Lookup
from remora.ray_seam.tickets import STOCK, Given, Making, Ticket
from remora.ray_seam.waiting import Waiting
from remora.wire.classes import IDLE_SECONDS, ClassSpec
from remora.wire.groups import encode_group
from remora.wire.leases import LEASE_LABEL, REQUEST_LABEL, encode_ask
from remora.wire.options import NEW_OPTIONS, Defaults, Rewritten, is_ours, rewrite
from remora.wire.tokens import GROUPS, TAKEN, TASKS, bundle_id, share_token

CONTROLLER = "remora-controller"
NAMESPACE = "remora"

_OURS = frozenset({*NEW_OPTIONS, "label_selector", "fallback_strategy", "scheduling_strategy"})
_MOST_KEPT = 10_000
_HANDLE_SECONDS = 2.0
_SEEN_SECONDS = 5.0
_CREATED_SECONDS = 1.0  # GCS tries again after a tenth of a second, and then more and more seldom
_SHARES_SECONDS = 5.0  # sooner than a name is used for another cluster
_AGAIN_SECONDS = IDLE_SECONDS / 3


class _Shares(NamedTuple):
    """What work takes in a virtual cluster, for a while."""

    ticket: Ticket
    shares: dict[str, float]
    until: float


class Layer:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.waiting = Waiting(self._what_waits)
        self.stopped = threading.Event()
        self._controller: Any = None
        self._looked_up_at = 0.0
        self._alive: set[str] = set()
        self._known: dict[str, Rewritten] = {}
        self._tickets: dict[str, Ticket] = {}
        self._others: dict[tuple[str, str], Ticket] = {}
        self._shares: dict[tuple[Any, ...], _Shares] = {}
        self._hints = Hints(self._tell)
        plain = rewrite({}, defaults)
        self.plain = Ticket(plain.spec.class_id, plain.spec)  # for work that says nothing about where it runs

    def rewrite(self, options: dict[str, Any], resources: dict[str, float]) -> Rewritten:
        """As ``wire.options.rewrite``; the same options are worked out once."""
        key = repr(options) + (repr(sorted(resources.items())) if options.get("fallback_strategy") else "")
        found = self._known.get(key)
        if found is None:
            found = rewrite(options, self.defaults, resources)
            if len(self._known) < _MOST_KEPT and _lasts(key):
                self._known[key] = found
        return found

    def ticket(self, rewritten: Rewritten) -> Ticket:
        """One for each class: it remembers when the class was last mentioned."""
        spec = rewritten.spec
        found = self._tickets.get(spec.class_id)
        if found is None:
            found = self._tickets[spec.class_id] = Ticket(spec.class_id, spec)
        return found

    def ticketed(self, options: dict[str, Any], *, is_actor: bool) -> dict[str, Any]:
        """Options that Ray understands, with everything that it does not in a ticket."""
        if is_actor and within.peek() is not None:
            options = confine.actor_options(options, str(within.peek()))
        if _OURS.isdisjoint(options) and not self.defaults.labels:
            return options
        strategy = options.get("scheduling_strategy")
        ours = is_ours(strategy) and not self.names_no_node(strategy)
        if isinstance(options.get("label_selector"), Ticket):
            return options
        asked = {name: options.pop(name) for name in NEW_OPTIONS if name in options}
        if not ours and not any(value is not None for value in asked.values()) and options.get("label_selector") is None:
            if not self.defaults.labels:
                return options
            if not is_actor:  # a call for each task would be too dear for what nobody asked for by name
                options.setdefault("_labels", dict(self.defaults.labels))
                return options
        for name in ("label_selector", "fallback_strategy"):
            asked[name] = options.pop(name, None)
        in_group = isinstance(strategy, PlacementGroupSchedulingStrategy)
        asked["scheduling_strategy"] = None if in_group else strategy
        given = {name: value for name, value in asked.items() if value is not None}
        rewritten = self.rewrite(given, _demand(options))
        lease = rewritten if rewritten.placement.affinities or (rewritten.labels and (is_actor or "labels" in given)) else None
        if lease is not None and lease.placement.affinities and in_group:
            raise InvalidStrategyError(
                "affinity inside a placement group: its bundles lie where they lie already; give either affinity= or a group, "
                "for example scheduling_strategy=actor_affinity(label_in('type', ['cat']))"
            )
        plain = self.ticket(rewritten)
        options["label_selector"] = plain if lease is None else Ticket(plain.class_id, plain.spec, lease)
        if ours:
            node_id = rewritten.node_id
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=True) if node_id else None
        if rewritten.labels:
            options["_labels"] = dict(rewritten.labels)
        return options

    def usual(self, ticket: Any) -> Ticket | None:
        """What a task with this in the place of its label selector takes its tokens by, where they are all that it takes; None
        where more has to be thought of."""
        if ticket is None:
            return self.plain
        return None if ticket.__class__ is not Ticket or ticket.lease is not None or ticket is STOCK else ticket

    def tokens(self, ticket: Ticket, resources: dict[str, float], takers: str = TASKS) -> dict[str, float]:
        """What work takes beside its resources: of its class, and in a virtual cluster of its share."""
        ticket = self._classed(ticket, resources, takers)
        cluster_id = within.current()
        if cluster_id is None:
            return {self._token(ticket): TAKEN}
        key = (ticket.class_id, ticket.spec is None, cluster_id, *resources.items())
        found = self._shares.get(key)
        if found is None or time.monotonic() > found.until:
            inside = self._within(ticket, cluster_id)
            shares = clusters.shares(cluster_id, inside.spec, resources)
            if len(self._shares) >= _MOST_KEPT:
                self._shares.clear()
            found = self._shares[key] = _Shares(inside, shares, time.monotonic() + _SHARES_SECONDS)
        if found.ticket.spec is not None:
            self._hints.note(found.ticket.spec, resources)
        return {self._token(found.ticket): TAKEN, **found.shares}

    def bundle_tokens(self, making: Making, bundles: list[dict[str, float]]) -> list[dict[str, float]]:
        """What each bundle of a placement group takes beside its resources: of its class, or in a virtual cluster of a share of
        its own, which stands where the bundle is to lie and nowhere else."""
        if making.berth is None:
            classed = [self._classed(*each, GROUPS) for each in zip(making.tickets, bundles, strict=True)]
            return [{self._token(ticket): TAKEN} for ticket in classed]
        owners = [bundle_id(making.berth, index) for index in range(len(bundles))]
        return [
            {share_token(owner, name): amount for name, amount in bundle.items() if amount}
            for owner, bundle in zip(owners, bundles, strict=True)
        ]

    def cluster(self) -> str | None:
        """The virtual cluster that work submitted now belongs to."""
        return within.current()

    def with_share(self, resources: dict[str, float]) -> dict[str, float]:
        """What work with a lease takes: in a virtual cluster of its share too."""
        cluster_id = within.current()
        return resources if cluster_id is None else {**resources, **clusters.shares(cluster_id, None, resources)}

    def _token(self, ticket: Ticket) -> str:
        """The token to take. The controller is told of its class, one way and once in a while in this process: no call on
        the way of a task."""
        now = time.monotonic()
        if now - ticket.mentioned_at > _AGAIN_SECONDS and ticket.spec is not None:
            self.controller().ensure.remote(ticket.spec.encode())
            ticket.mentioned_at = now
        return ticket.token

    def place_actor(
        self, asked: Rewritten, held: Mapping[str, float], demand: Mapping[str, float], namespace: str | None
    ) -> Given:
        return self._place(asked, ACTOR, held, demand, namespace)

    def place_task(self, asked: Rewritten, held: Mapping[str, float]) -> Given:
        return self._place(asked, TASK, held, held, None)

    def _place(
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
        text = encode_ask(ask._replace(request=replace(ask.request, cluster=within.current())))
        slot, node_id = ray.get(self.controller().place.remote(text, context.get_job_id()))
        return Given(slot, node_id, {LEASE_LABEL: slot, REQUEST_LABEL: text})

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
        ask = encode_group(request), ray.get_runtime_context().get_job_id(), uuid.uuid4().hex
        offer: dict[str, Any] = ray.get(self.controller().offer_group.remote(*ask))
        until = time.monotonic() + _SEEN_SECONDS
        wanted = {token: set(nodes) for token, nodes in offer["nodes"].items()}
        while wanted and time.monotonic() < until:
            # The view that placement groups are placed by; others are a moment ahead of it or behind.
            totals = raw.total_resources_per_node()
            wanted = {token: nodes for token, nodes in wanted.items() if any(token not in totals.get(n, {}) for n in nodes)}
            if wanted:
                time.sleep(0.01)
        return offer

    def take_berth(self, berth: str, group_id: Any) -> bool:
        """Whether GCS has reserved a group that was just created in a virtual cluster, or does in a moment. If not it is
        removed, and what was kept for it goes back: one that waited in GCS might get it when it may not."""
        lookup = Lookup(ray.get_runtime_context().gcs_address)
        if lookup.is_created(group_id, _CREATED_SECONDS, patient=True):
            self.controller().take_berth.remote(berth, group_id.hex())
            return True
        ray._private.worker.global_worker.core_worker.remove_placement_group(group_id)
        self.leave_berth(berth)
        return False

    def leave_berth(self, berth_or_group: str) -> None:
        """A group is gone; if it lay in a virtual cluster, that has its share back sooner."""
        with contextlib.suppress(ValueError):  # there is no controller any more
            self.controller().leave_berth.remote(berth_or_group)

    def request(self, cluster_id: str, asked: list[tuple[dict[str, str], dict[str, float], int]]) -> None:
        """A virtual cluster should have room for all of this together: selector, amounts and how often."""
        hints: list[Hint] = []
        for selector, amounts, count in asked:
            plain = self.ticket(self.rewrite({"label_selector": selector} if selector else {}, amounts))
            spec = self._within(plain, cluster_id).spec
            if spec is not None:
                hints.append((spec.encode(), amounts, count))
        self.controller().request.remote(cluster_id, hints)

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
        """Looked up again once in a while: it may have been shut down and started anew, and what is sent to the old one is lost
        without a word."""
        now = time.monotonic()
        if self._controller is None or now - self._looked_up_at > _HANDLE_SECONDS:
            try:
                self._controller = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
            except ValueError:
                if self._controller is None:
                    raise
            self._looked_up_at = now
        return self._controller

    def stop(self) -> None:
        self.stopped.set()
        self.waiting.stop()

    def _within(self, ticket: Ticket, cluster_id: str) -> Ticket:
        """The same class in a virtual cluster."""
        return self._like(ticket, f"in {cluster_id}", lambda spec: replace(spec, cluster=cluster_id))

    def _classed(self, ticket: Ticket, resources: Mapping[str, float], takers: str) -> Ticket:
        """The class whose token is taken, for what, and by whom."""
        if self.defaults.rare:
            ticket = self._for_rare(ticket, resources)
        return self._for_takers(ticket, takers) if takers else ticket

    def _for_takers(self, ticket: Ticket, takers: str) -> Ticket:
        return self._like(ticket, f"for {takers}", lambda spec: replace(spec, takers=takers))

    def _for_rare(self, ticket: Ticket, resources: Mapping[str, float]) -> Ticket:
        keys = rare_taints((name for name, amount in resources.items() if amount), self.defaults.rare)
        return self._like(ticket, f"tolerating {','.join(keys)}", lambda spec: spec.tolerating(keys)) if keys else ticket

    def _like(self, ticket: Ticket, how: str, other: Callable[[ClassSpec], ClassSpec]) -> Ticket:
        """The ticket of a class like this one, worked out once; a ticket that a guard hands on is what it has to be already."""
        if ticket.spec is None:
            return ticket
        known = (ticket.class_id, how)
        if known not in self._others:
            spec = other(ticket.spec)
            if len(self._others) >= _MOST_KEPT:
                self._others.clear()
            self._others[known] = Ticket(spec.class_id, spec)
        return self._others[known]

    def _tell(self, hints: list[Hint]) -> None:
        if ray.is_initialized():
            self.controller().want.remote(hints)


def _lasts(key: str) -> bool:
    """Whether it says the same of the same: an object that shows its address may be another next time."""
    return " at 0x" not in key


def _demand(options: dict[str, Any]) -> dict[str, float]:
    """What the work needs to be placed at all, for choosing among fallbacks."""
    cpus = options.get("num_cpus")
    demand = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus") or 0, **(options.get("resources") or {})}
    return {name: amount for name, amount in demand.items() if amount}
