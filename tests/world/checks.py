"""What must hold after every event: no start against a rule or beyond a maximum, nothing granted twice, nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from tests.world.failure import Failure
from tests.world.groups import CREATED, RESCHEDULING, GroupEntry
from tests.world.owning import STARTED, Run

from remora.controller.answering import Reply
from remora.model.labels import ACTOR_ID
from remora.model.requests import NodeClass
from remora.model.strategies import ACTOR, OBJECT, TASK, Affinity
from remora.model.taints import split_taints
from remora.wire.calls import Call, CreateCluster, Place
from remora.wire.classes import ClassSpec
from remora.wire.tokens import class_token

if TYPE_CHECKING:
    from tests.world.gcs import ActorEntry
    from tests.world.processes import Process, Worker
    from tests.world.raylet import Raylet, Request
    from tests.world.submitting import Scope
    from tests.world.world import World

SLACK_SECONDS = 5.0
"""So long after labels were changed something may still start by those before: nobody promises more."""

KNOWN_SECONDS = 3.0
"""So long after something has started everybody knows that it has; a controller may be away for that time."""


@dataclass
class Marks:
    """Labels and taints of a node, and from when to when they may be what holds."""

    labels: dict[str, str]
    taints: dict[str, str]
    begins: float
    ends: float = inf


@dataclass(eq=False)
class Placed:
    """Labelled work, or work with rules, on a node. ``asked_at`` is the earliest that it can have been decided there."""

    name: str
    kind: str
    labels: dict[str, str]
    rules: tuple[Affinity, ...]
    node_id: str
    asked_at: float
    began: float
    ended: float = inf
    actor_id: str = ""
    is_inside: bool = False  # in a virtual cluster, where a domain is made of the cluster's own nodes


@dataclass(eq=False)
class Asked:
    """Work that somebody has asked a slot for: it may be decided from then on."""

    kind: str
    labels: dict[str, str]
    actor_id: str
    started_at: float = inf


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._marks: dict[str, list[Marks]] = {}
        self._placed: list[Placed] = []
        self._by_work: dict[object, Placed] = {}
        self._asked: list[Asked] = []
        self._slots: dict[str, list[tuple[str, Callable[[], bool]]]] = {}
        self._given: dict[str, tuple[str, Process, float]] = {}

    # Nodes and their marks

    def node_joined(self, node_id: str, labels: Mapping[str, str]) -> None:
        plain, taints = split_taints(labels)
        self._marks[node_id] = [Marks(plain, taints, self._world.now)]

    def marks(self, node_id: str) -> Marks:
        """What holds now, or will in a moment."""
        return self._marks[node_id][-1]

    def changes(self, node_id: str, labels: Mapping[str, str | None], taints: Mapping[str, str | None]) -> Callable[[], None]:
        """Somebody has asked for other labels or taints. Return whom to tell when that was answered."""
        before = self._marks[node_id][-1]
        after = Marks(_changed(before.labels, labels), _changed(before.taints, taints), self._world.now)
        self._marks[node_id].append(after)

        def answered() -> None:
            before.ends = self._world.now + (SLACK_SECONDS if labels else 0.0)

        return answered

    def admits(self, spec: ClassSpec, node_id: str, since: float, scope: Scope | None) -> bool:
        """Whether a node was one of a class's at any moment since."""
        return any(
            _admits(choice, node_id, marks, scope)
            for marks in self._marks.get(node_id, ())
            if marks.begins <= self._world.now and marks.ends >= since
            for choice in spec.choices
        )

    # Starts

    def started(self, run: Run) -> None:
        """A task has passed the guard: its function begins."""
        worker = run.worker
        assert worker is not None
        self._world.note("{} starts on {}", run.name, worker.worker_id)
        if run.node_class is not None and not self.admits(run.node_class, worker.node_id, self._world.now, run.scope):
            self._breaks(run.name, worker.node_id, run.node_class)
        if run.rules is not None and run.slot is not None:
            placed = self._place(run, run.name, TASK, run.rules, worker.node_id, run.waits_since)
            self._check_rules(placed)
        if not run.group:
            self._check_maximum(run.name, run.scope, run.real)

    def resumed(self, run: Run) -> None:
        """It is back from ``ray.get``: that may be more than the maximum, but nothing starts then."""
        self._world.note("{} goes on", run.name)

    def object_put(self, object_id: str, labels: Mapping[str, str], owner: Process) -> None:
        """An object lies on a node from now on, as far as its owner knows."""
        now = self._world.now
        placed = Placed(object_id, OBJECT, dict(labels), (), owner.node_id, now, now)
        self._by_work[object_id] = placed
        self._placed.append(placed)
        self._asked.append(Asked(OBJECT, dict(labels), object_id))  # when it is known of is another matter

    def asks(self, kind: str, labels: Mapping[str, str], actor_id: str = "") -> None:
        """A slot is asked for."""
        self._asked.append(Asked(kind, dict(labels), actor_id))

    def actor_granted(self, entry: ActorEntry, worker: Worker) -> None:
        """A raylet has given it a worker: that cannot be undone."""
        spec = entry.node_class
        if spec is not None and not (
            self.admits(spec, worker.node_id, self._world.now, entry.scope)
            or self._was_just_returned(class_token(spec.class_id), worker.raylet, dict(worker.held))
        ):
            self._breaks(entry.actor_id, worker.node_id, spec)
        has_lease = entry.node_class is None and entry.rules is not None and not entry.spec.group
        since = entry.waits_since if entry.restarts < entry.spec.max_restarts else entry.asked_at
        before = next((each for each in reversed(self._placed) if each.actor_id == entry.actor_id), None)
        if before is not None and self._world.now - before.began < KNOWN_SECONDS:
            since = min(since, before.asked_at)  # nobody may know yet that it had started: its token stands as before
        placed = self._place(entry, entry.actor_id, ACTOR, entry.rules if has_lease else None, worker.node_id, since)
        placed.actor_id = entry.actor_id
        if has_lease and entry.rules is not None:
            choices = ClassSpec(entry.rules.choices)
            if not self.admits(choices, worker.node_id, since, entry.scope):
                self._breaks(entry.actor_id, worker.node_id, choices)
            self._check_rules(placed)

    def _was_just_returned(self, token: str, raylet: Raylet, taken: Mapping[str, int]) -> bool:
        """Whether all that was free of a token is what others have just given back: a raylet hands that on before anybody can
        take it away, and no guard can stop an actor or a group (the limits of taints, in the documents)."""
        units, at = raylet.returned.get(token, (0, 0.0))
        free = raylet.available.get(token, 0) + taken.get(token, 0)
        return free <= units and self._world.now - at <= KNOWN_SECONDS

    def actor_started(self, entry: ActorEntry) -> None:
        """It has passed the guard: its constructor begins."""
        self._world.note("{} begins", entry.actor_id)
        entry.has_started = True
        if not entry.spec.group:
            self._check_maximum(entry.actor_id, entry.scope, entry.real)

    def group_reserved(self, entry: GroupEntry) -> None:
        scope = self._world.scopes.get(entry.cluster or "")
        if entry.pinned is not None:
            return
        self._check_maximum(entry.group_id, scope, group_amounts(entry))
        # In a virtual cluster its tokens stand where it was decided, and are taken away when that is no longer welcome.
        since = self._world.now - (KNOWN_SECONDS if entry.cluster is not None else 0.0)
        for index in entry.fresh if entry.classes else ():
            node_id, spec, bundle = entry.nodes[index], entry.classes[index], dict(entry.bundles[index])
            if node_id is not None and not (
                self.admits(spec, node_id, since, scope)
                or self._was_just_returned(class_token(spec.class_id), self._world.raylets[node_id], bundle)
            ):
                self._breaks(entry.group_id, node_id, spec)

    def ended(self, work: object) -> None:
        placed = self._by_work.pop(work, None)
        if placed is not None:
            placed.ended = self._world.now
            self._asked_again(placed.actor_id, self._world.now + KNOWN_SECONDS)  # so long it may be thought to restart

    def restarts(self, actor_id: str) -> None:
        """It may be decided anew from now on."""
        self._asked_again(actor_id, inf)

    def _asked_again(self, actor_id: str, until: float) -> None:
        for asked in self._asked if actor_id else ():
            if asked.actor_id == actor_id:
                asked.started_at = until

    # Maxima

    def _check_maximum(self, name: str, scope: Scope | None, amounts: Mapping[str, float]) -> None:
        for cluster in scope.chain() if scope is not None else ():
            used = self.used_in(cluster)
            for resource in amounts:
                cap = cluster.most(resource)
                if cap is not None and used.get(resource, 0.0) > cap + 1e-6:
                    who = ", ".join(f"{who} ({amount:g})" for who, amount in self.users_of(cluster, resource))
                    raise Failure(
                        "a start beyond a maximum",
                        f"{name} starts in {cluster.name} ({cluster.cluster_id}), of which {used[resource]:g} {resource} "
                        f"are used and at most {cap:g} may be: {who}",
                    )

    def used_in(self, cluster: Scope) -> dict[str, float]:
        used: dict[str, float] = {}
        for _, scope, amounts in self._uses():
            if scope is not None and cluster in scope.chain():
                for name, amount in amounts.items():
                    used[name] = used.get(name, 0.0) + amount
        return used

    def users_of(self, cluster: Scope, resource: str) -> list[tuple[str, float]]:
        return [
            (name, amounts[resource])
            for name, scope, amounts in self._uses()
            if scope is not None and cluster in scope.chain() and amounts.get(resource)
        ]

    def _uses(self) -> list[tuple[str, Scope | None, Mapping[str, float]]]:
        """Everything that runs, and what it uses; what runs in a placement group uses what that has reserved."""
        found: list[tuple[str, Scope | None, Mapping[str, float]]] = []
        for raylet in self._world.raylets.values():
            for worker in raylet.workers.values():
                run, actor = worker.run_now, worker.actor
                if run is not None and run.state == STARTED and not run.group:
                    found.append((run.name, run.scope, run.real))
                if actor is not None and actor.has_started and actor.worker is worker and not actor.spec.group:
                    found.append((actor.actor_id, actor.scope, actor.real))
        groups = [each for each in self._world.gcs.groups.entries.values() if each.state in (CREATED, RESCHEDULING)]
        scopes = self._world.scopes
        found += [
            (each.group_id, scopes.get(each.cluster or ""), group_amounts(each)) for each in groups if each.pinned is None
        ]
        return found

    # Affinity

    def placed_on(self, node_id: str) -> list[Placed]:
        """Work with labels or rules that is there now."""
        return [placed for placed in self._by_work.values() if placed.node_id == node_id]

    def _place(self, work: object, name: str, kind: str, rules: Any, node_id: str, asked_at: float) -> Placed:
        labels, affinities = (dict(rules.labels), rules.placement.affinities) if rules is not None else ({}, ())
        inside = getattr(work, "scope", None) is not None
        placed = Placed(name, kind, labels, affinities, node_id, asked_at, self._world.now, is_inside=inside)
        for asked in self._asked:
            if asked.actor_id in (name, f"actor-{name}") or (asked.kind == TASK == kind and asked.actor_id == name):
                asked.started_at = self._world.now
        self._by_work[work] = placed
        self._placed.append(placed)
        return placed

    def _check_rules(self, placed: Placed) -> None:
        self._check_refused(placed)
        for affinity in placed.rules:
            if affinity.any_of:
                continue
            for term in affinity.hard:
                if term.topology and (placed.is_inside or self._were_relabelled()):
                    continue  # what was a domain when it was decided, nobody can say here
                others = [
                    each
                    for each in self._placed
                    if each is not placed and self.are_beside(each.node_id, placed.node_id, term.topology)
                ]
                matching = [each for each in others if _matches(affinity.owner, term, each)]
                if term.positive:
                    self._check_near(placed, affinity, term, matching)
                else:
                    self._check_away(placed, matching, term.topology)

    def are_beside(self, node_id: str, other: str, topology: str) -> bool:
        """Whether two nodes are the same one, or in the same domain."""
        if not topology:
            return node_id == other
        domains = [self._marks[each][-1].labels.get(topology) for each in (node_id, other)]
        return domains[0] is not None and domains[0] == domains[1]

    def _were_relabelled(self) -> bool:
        return any(before.labels != after.labels for marks in self._marks.values() for before, after in pairwise(marks))

    def _check_refused(self, placed: Placed) -> None:
        """Nobody joins what refuses it."""
        for each in self._by_work.values():
            is_old = each.began + KNOWN_SECONDS < placed.asked_at
            if each is placed or each.node_id != placed.node_id or not is_old:
                continue
            for affinity in each.rules:
                if affinity.symmetric and any(
                    not t.positive and not t.topology and _matches(affinity.owner, t, placed) for t in affinity.hard
                ):
                    raise Failure("a hard rule is broken", f"{placed.name} starts beside {each.name}, which refuses it")

    def _check_near(self, placed: Placed, affinity: Affinity, term: Any, matching: list[Placed]) -> None:
        if any(each.ended >= placed.asked_at for each in matching):
            return
        if any(each.started_at > placed.asked_at and _could_match(affinity.owner, term, each) for each in self._asked):
            return  # one that was decided there and has not come
        raise Failure(
            "a hard rule is broken",
            f"{placed.name} starts on {placed.node_id}, but wants to be near {term.show()}, and nothing like that was there "
            f"since {placed.asked_at:.3f}",
        )

    def _check_away(self, placed: Placed, matching: list[Placed], topology: str) -> None:
        for each in matching:
            was_there = each.began + KNOWN_SECONDS < placed.asked_at and each.ended > self._world.now
            mutual = each.ended > self._world.now and any(
                not term.positive and term.topology == topology and _matches(affinity.owner, term, placed)
                for affinity in each.rules
                if not affinity.any_of
                for term in affinity.hard
            )
            if was_there or mutual:
                raise Failure(
                    "a hard rule is broken",
                    f"{placed.name} starts on {placed.node_id} beside {each.name}, which it keeps away from"
                    + (" (and that from it)" if mutual else ""),
                )

    def _breaks(self, name: str, node_id: str, spec: ClassSpec) -> None:
        marks = self._marks[node_id][-1]
        raise Failure(
            "a hard rule is broken",
            f"{name} ({spec.describe() or 'any node'}) starts on {node_id}, which has the labels {marks.labels} and the taints "
            f"{marks.taints}",
        )

    # Slots, answers, losses

    def answered(self, sender: Process, call: Call, answer: Reply) -> None:
        if isinstance(call, CreateCluster) and not answer.error:
            self._world.cluster_ids[call.ask] = answer.value["cluster_id"]
        if isinstance(call, Place) and not answer.error:
            slot = str(answer.value[0])
            for ask, is_live in self._slots.get(slot, ()):
                if ask != call.ask and is_live():
                    raise Failure("a slot is given twice", f"{slot} is given for {call.ask}, and {ask} has it still")
            began = self._world.now
            self._slots.setdefault(slot, []).append((call.ask, lambda: sender.alive and self._world.now - began < 0.05))
            self._given[slot] = (call.ask, sender, began)

    def uses_slot(self, slot: str, is_live: Callable[[], bool]) -> None:
        """What a slot was given for has been created."""
        self._slots[slot] = [each for each in self._slots[slot] if each[1]()]
        self._slots[slot].append((self._given[slot][0], is_live))

    def unschedulable(self, name: str, scope: Scope | None, need: Mapping[str, float], request: Request) -> None:
        for cluster in scope.chain() if scope is not None else ():
            if any((cap := cluster.cap(resource)) is not None and amount > cap for resource, amount in need.items()):
                return  # it could never have started: while a share was lent it only seemed so
        raise Failure(
            "work is lost",
            f"{name}{f' in {scope.name}' if scope else ''} was queued at a raylet, and no node could hold "
            f"{dict(request.placement)} any more",
        )


def group_amounts(entry: GroupEntry) -> dict[str, float]:
    """What a group has reserved."""
    found: dict[str, float] = {}
    for bundle, node in zip(entry.bundles, entry.nodes, strict=True):
        for name, units in bundle if node is not None else ():
            if "/" not in name:
                found[name] = found.get(name, 0.0) + units / 10_000
    return found


def _admits(choice: NodeClass, node_id: str, marks: Marks, scope: Scope | None) -> bool:
    labels = marks.labels
    above = scope.chain() if scope is not None else []
    fixed = [dict(node.labels) for each in above for nodes in each.spec.fixed_size_nodes for node in nodes.nodes]
    return (
        (choice.node_id in (None, node_id))
        and choice.tolerations.tolerates(marks.taints)
        and any(choice.selector.matches({**labels, **own}) for own in ({}, *fixed))
    )


def _changed(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def _matches(owner: str, term: Any, placed: Placed) -> bool:
    """Whether work is what an expression names, be it to be near it or away from it."""
    if term.key == ACTOR_ID:
        return placed.actor_id in term.values
    return placed.kind == owner and placed.labels.get(term.key) in term.values


def _could_match(owner: str, term: Any, asked: Asked) -> bool:
    if term.key == ACTOR_ID:
        return asked.actor_id in term.values
    return asked.kind == owner and asked.labels.get(term.key) in term.values
