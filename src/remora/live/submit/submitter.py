"""What one process submits with: the job's defaults, and what the tokens of its work are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from remora.errors import InvalidStrategyError
from remora.live.adapter import labels_now, unpatched
from remora.live.clusters import entering, scopes
from remora.live.link import link
from remora.live.submit import library_fixes, waiting_groups
from remora.live.submit.hints import Hints
from remora.live.submit.tickets import FREE, STOCK, Ticket
from remora.live.submit.wait_warnings import Waiting
from remora.model.taints import rare_taints
from remora.wire.calls import EnsureClass, GetWaiting, Hint, RequestShares, WantShares
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import NEW_OPTIONS, Defaults, Rewritten, check_handles, is_ours, rewrite
from remora.wire.shapes import names_in
from remora.wire.timing import HEARD_SECONDS, MENTION_SECONDS, SHARES_SECONDS
from remora.wire.tokens import TAKEN, TASKS

_OURS = frozenset({*NEW_OPTIONS, "label_selector", "fallback_strategy", "scheduling_strategy"})
_MOST_KEPT = 10_000
_NODES_SECONDS = 1.0
_TOKENLESS = (STOCK, FREE)
_NO_NODE = "0" * 55 + "1"
"""The id of no node."""


class _Shares(NamedTuple):
    """What work takes in a virtual cluster, for a while."""

    ticket: Ticket
    shares: dict[str, float]
    until: float


class Submitter:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.waiting = Waiting(self._what_waits)
        self._totals: dict[str, dict[str, float]] = {}
        self._totals_at = 0.0
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
            check_handles(found.placement.affinities)
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

    def ticketed(self, options: dict[str, Any], *, is_actor: bool, made_from: str = "") -> dict[str, Any]:
        """Options that Ray understands, with everything that it does not in a ticket. ``made_from`` is the name of an
        actor's class."""
        if is_actor and scopes.peek() is not None:
            options = library_fixes.actor_options(options, str(scopes.peek()))
        if self.defaults.label_selector and options.get("label_selector") is None and _names_a_node(options):
            options = {**options, "label_selector": {}}  # which says something else than the job
        if made_from:
            # In a group it lies where the bundles lie.
            in_group = bool(self.defaults.spreads) and get_current_placement_group() is not None
            options = self.defaults.spread(options, made_from, in_group=in_group)
        if _OURS.isdisjoint(options) and not self.defaults.labels:
            return options
        strategy: Any = options.get("scheduling_strategy")
        if isinstance(options.get("label_selector"), Ticket):
            return options
        if is_hard_pin(strategy) and self._fails_at(frozenset((strategy.node_id,)), options):
            return _for_ray(options, strategy)
        at_once = is_hard_pin(strategy) and bool(getattr(strategy, "_fail_on_unavailable", False))
        if at_once and scopes.peek() is None:
            is_admitted = self._is_admitted(strategy, options)
            return _for_ray(options, strategy if is_admitted else NodeAffinitySchedulingStrategy(_NO_NODE, soft=False))
        if is_hard_pin(strategy) and scopes.peek() is not None and not _demand(options):
            if is_actor and library_fixes.is_next_to_us(strategy):
                strategy = library_fixes.loosened(strategy)
                options = {**options, "scheduling_strategy": strategy}
            elif not any(options.get(name) for name in ("labels", "affinity")) and self._is_admitted(strategy, options):
                return _for_ray(options, strategy, FREE)
        ours = is_ours(strategy) and not at_once
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
        asked["scheduling_strategy"] = None if in_group or at_once else strategy
        given = {name: value for name, value in asked.items() if value is not None}
        rewritten = self.rewrite(given, _demand(options))
        named = [choice.named_nodes for choice in rewritten.choices]
        nodes = frozenset(node_id for each in named for node_id in each or ())
        if None not in named and not in_group and self._fails_at(nodes, options):
            return _for_ray(options, NodeAffinitySchedulingStrategy(_NO_NODE, soft=False))
        if None not in named and not in_group and scopes.peek() is not None and not _demand(options) and not rewritten.labels:
            free = [node_id for node_id in sorted(nodes) if any(labels_now.admits(each, node_id) for each in rewritten.choices)]
            if free and not rewritten.placement.is_leased:
                return _for_ray(options, NodeAffinitySchedulingStrategy(free[0], soft=False), FREE)
        lease = rewritten if rewritten.placement.is_leased or (rewritten.labels and (is_actor or "labels" in given)) else None
        if lease is not None and lease.placement.is_leased and in_group:
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
        return None if ticket.__class__ is not Ticket or ticket.lease is not None or ticket in _TOKENLESS else ticket

    def tokens(self, ticket: Ticket, resources: dict[str, float], takers: str = TASKS) -> dict[str, float]:
        """What work takes beside its resources: of its class, and in a virtual cluster of its share."""
        ticket = self._classed(ticket, resources, takers)
        cluster_id = scopes.current()
        if cluster_id is None:
            return {self._token(ticket): TAKEN}
        key = (ticket.class_id, ticket.spec is None, cluster_id, *resources.items())
        found = self._shares.get(key)
        if found is None or time.monotonic() > found.until:
            inside = self._within(ticket, cluster_id)
            shares = entering.shares(cluster_id, inside.spec, resources)
            if len(self._shares) >= _MOST_KEPT:
                self._shares.clear()
            found = self._shares[key] = _Shares(inside, shares, time.monotonic() + SHARES_SECONDS)
            self._announce(inside, resources)
        elif found.ticket.spec is not None:
            self._hints.note(found.ticket.spec, resources)
        return {self._token(found.ticket): TAKEN, **found.shares}

    def cluster(self) -> str | None:
        """The virtual cluster that work submitted now belongs to."""
        return scopes.current()

    def with_share(self, resources: dict[str, float]) -> dict[str, float]:
        """What work with a lease takes: in a virtual cluster of its share too."""
        cluster_id = scopes.current()
        return resources if cluster_id is None else {**resources, **entering.shares(cluster_id, None, resources)}

    def _token(self, ticket: Ticket) -> str:
        """The token to take. The controller is told of its class, one way and once in a while in this process: no call on
        the way of a task."""
        now = time.monotonic()
        if now - ticket.mentioned_at > MENTION_SECONDS and ticket.spec is not None:
            link.tell(EnsureClass(ticket.spec.encode()))
            ticket.mentioned_at = now
        return ticket.token

    def request(self, cluster_id: str, asked: list[tuple[dict[str, str], dict[str, float], int]]) -> None:
        """A virtual cluster should have room for all of this together: selector, amounts and how often."""
        hints: list[Hint] = []
        for selector, amounts, count in asked:
            plain = self.ticket(self.rewrite({"label_selector": selector} if selector else {}, amounts))
            spec = self._within(plain, cluster_id).spec
            if spec is not None:
                hints.append(Hint(spec.encode(), amounts, count))
        link.tell(RequestShares(cluster_id, hints))

    def _fails_at(self, node_ids: frozenset[str], options: dict[str, Any]) -> bool:
        """Return whether what names these nodes can only fail: none of them is there, or none could ever hold it."""
        need = _demand(options)
        return not any(_holds(self._total_of(node_id), need) for node_id in node_ids)

    def _is_admitted(self, strategy: Any, options: dict[str, Any]) -> bool:
        """Return whether the node that is named is what is asked for by its labels and taints, as they are now."""
        asked = {name: options[name] for name in _OURS if options.get(name) is not None}
        choices = self.rewrite(asked, _demand(options)).choices
        return any(labels_now.admits(choice, strategy.node_id) for choice in choices)

    def _total_of(self, node_id: str) -> dict[str, float] | None:
        """Return what a living node has; None where there is none of that id. Nodes are asked for where they are not known yet,
        or were asked for some time ago."""
        now = time.monotonic()
        if node_id not in self._totals or now - self._totals_at > _NODES_SECONDS:
            self._totals = {node["NodeID"]: node["Resources"] for node in unpatched.nodes() if node["Alive"]}
            self._totals_at = now
        return self._totals.get(node_id)

    def _what_waits(self, keys: list[str]) -> list[Any]:
        """Of a process that has disconnected nothing waits; and asking would connect it again."""
        if not ray.is_initialized():
            return [None] * len(keys)
        groups = {key: waiting_groups.why(key) for key in keys if waiting_groups.is_group(key)}
        shapes = [key for key in keys if key not in groups]
        self._mention_again(shapes)
        found = dict(zip(shapes, link.ask(GetWaiting(shapes)) if shapes else [], strict=True))
        return [groups[key] if key in groups else found[key] for key in keys]

    def _mention_again(self, shapes: list[str]) -> None:
        """Tell the controller of the classes of what has waited for long: the first message may have been lost, as one to a
        controller that was just being shut down is, and nobody else knows what a class stands for."""
        for ticket in (self.plain, *list(self._tickets.values()), *list(self._others.values())):
            if ticket.spec is not None and any(ticket.token in names_in(key) for key in shapes):
                link.tell(EnsureClass(ticket.spec.encode()))

    def stop(self) -> None:
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

    def _announce(self, ticket: Ticket, resources: Mapping[str, float]) -> None:
        """One of this is about to be submitted, in a virtual cluster where none like it was for a while. That has to be heard
        before: Ray fails queued work that no node has enough tokens for, and what was lent on top of a share is taken back
        with care only for the sizes that the controller knows of."""
        if ticket.spec is not None:
            message = link.tell(WantShares([Hint(ticket.spec.encode(), dict(resources), 1)]))
            link.until_heard([message], HEARD_SECONDS)

    def _tell(self, hints: list[Hint]) -> None:
        link.tell(WantShares(hints))


def _names_a_node(options: dict[str, Any]) -> bool:
    """Return whether work asks for the resource by which a node is known, as Ray Serve does of the head."""
    return any(str(name).startswith("node:") for name in options.get("resources") or ())


def is_hard_pin(strategy: Any) -> bool:
    """Return whether this is Ray's node affinity, and no mere wish."""
    return isinstance(strategy, NodeAffinitySchedulingStrategy) and not strategy.soft


def _for_ray(options: dict[str, Any], strategy: Any, ticket: Ticket = STOCK) -> dict[str, Any]:
    """Return the options of what Ray shall decide alone, without any token: it says what is wrong with the node."""
    rays = {name: value for name, value in options.items() if name not in _OURS}
    return {**rays, "scheduling_strategy": strategy, "label_selector": ticket}


def _holds(total: dict[str, float] | None, need: dict[str, float]) -> bool:
    return total is not None and all(total.get(name, 0.0) >= amount for name, amount in need.items())


def _lasts(key: str) -> bool:
    """Whether it says the same of the same: an object that shows its address may be another next time."""
    return " at 0x" not in key


def _demand(options: dict[str, Any]) -> dict[str, float]:
    """What the work needs to be placed at all, for choosing among fallbacks."""
    cpus = options.get("num_cpus")
    demand = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus") or 0, **(options.get("resources") or {})}
    for name in ("memory", "object_store_memory"):
        demand[name] = options.get(name) or 0
    return {name: amount for name, amount in demand.items() if amount}
