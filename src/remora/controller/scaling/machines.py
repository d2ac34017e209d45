"""Machines: which types may be started, what was asked for, is coming, failed or came in vain. The only writer of that.

What stands out there is compared with what is wanted, and written when it differs. A request names the nodes that are there, so
to make it twice changes nothing, and a controller that comes after us finds what stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remora.controller.context import Context
from remora.controller.effects import AskForMachines, Done, LookAtMachines, ReadNodeTypes
from remora.controller.picture import real
from remora.kernel.packing.bins import NO_LIMIT
from remora.kernel.provisioning.plans import show_machines
from remora.kernel.state.type_table import TypeTable
from remora.model.node_types import NodeTypes
from remora.model.resources import Resources
from remora.port.contract import NodeView
from remora.port.scaler import Request, Survey

TYPES_SECONDS = 30.0
"""How often it is looked whether the types are declared otherwise."""

LOOK_SECONDS = 2.0
"""How often it is looked what became of what was asked for."""

JOINED_SECONDS = 2.5
"""So long after a machine joined, work that it has started may still be reported as waiting: no more are asked for."""

LATE_SECONDS = 300.0
"""A machine that has not come by then cannot be had now."""

REST_SECONDS = 30.0
MOST_REST_SECONDS = 600.0
"""A type that cannot be had rests, each time twice as long."""

YIELD_SECONDS = 12.0
"""Where ours and somebody else's requests cannot be had together, ours is withdrawn for so long: theirs was there first, and
what is begun for it counts against the maxima when ours is made again."""

TRIED_SECONDS = 15.0
_IN_VAIN = 2
_WORKED_WITH = ("CPU", "GPU")


@dataclass(frozen=True)
class _Rest:
    """Why a type rests and until when; ``times`` is how often it did, ``at`` when what it rests for happened. ``hopeless`` is
    whether not even machines that were granted are counted on."""

    reason: str
    at: float
    until: float
    times: int
    hopeless: bool


class Machines:
    """``table`` are the types for the kernel: as declared, and as their nodes have shown themselves; None while unknown."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.is_on = False
        self.is_after_another = False  # a controller was here before us, and may have asked for what just joined
        self.problem = ""
        self.types: NodeTypes | None = None
        self.table: TypeTable | None = None
        self.survey: Survey | None = None
        self._rare: frozenset[str] = frozenset()
        self._shown: dict[str, tuple[Resources, dict[str, str]]] = {}  # by type: what all its nodes had
        self._wanted: dict[str, int] = {}
        self._goals: dict[str, int] = {}  # by type: how many there would be with those that are wanted
        self._asked_at: dict[str, float] = {}
        self._joined_at: dict[str, float] = {}
        self._joined_since: dict[str, int] = {}  # by type: machines that joined since the last look at what is coming
        self._arrived: dict[str, tuple[str, float]] = {}  # nodes that came for something: their types, and when
        self._in_vain: dict[str, int] = {}
        self._resting: dict[str, _Rest] = {}
        self._live: dict[str, str] = {}
        self._head = ""
        self._read_at = self._looked_at = -1e9
        self.watches = False  # whether somebody wants to know which nodes are busy
        self.is_stale = False
        self._yield_until = self._go_on_until = -1e9
        self._is_told = False  # whether somebody has said what is wanted since it is known what stands

    # What others ask

    @property
    def wanted(self) -> Mapping[str, int]:
        """Return how many machines of each type are wanted beside those that are there."""
        return self._wanted

    @property
    def coming(self) -> dict[str, int]:
        """Return the machines that are being started, of types that are known: without those that joined since that was
        looked at, and never more than there may be."""
        found, room = {}, self._room()
        for name, count in self.survey.coming.items() if self.survey is not None else ():
            each = self.table.types.get(name) if self.table is not None else None
            if each is not None:
                left = min(count - self._joined_since.get(name, 0), room)
                left = left if each.most is None else min(left, each.most - self.count(name))
                if left > 0:
                    found[name] = left
                    room -= left
        return found

    @property
    def doubtful(self) -> dict[str, int]:
        """Return how many of those that are coming are of types that cannot be had now: nobody is to wait for them. What was
        granted comes all the same, where the type only failed."""
        found, now = {}, self._context.now()
        granted = self.survey.granted if self.survey is not None else {}
        for name, count in self.coming.items():
            rest = self._resting.get(name)
            if rest is not None and rest.until > now:
                sure = 0 if rest.hopeless else max(granted.get(name, 0) - self._joined_since.get(name, 0), 0)
                found[name] = max(count - sure, 0)
        return found

    @property
    def obstacle(self) -> str:
        """Return why nothing is started for what is asked for, though the types would do; empty where it is."""
        if self.survey is None or not self.survey.others or not (self.survey.refused or self._is_yielding):
            return ""
        return (
            "somebody else's request (request_resources) cannot be had, or not together with this, and Ray starts nothing for "
            "both"
        )

    @property
    def _is_yielding(self) -> bool:
        return self._context.now() < self._yield_until

    def asked_at(self, node_type: str) -> float | None:
        """Return since when machines of a type are asked for."""
        return self._asked_at.get(node_type)

    def count(self, node_type: str) -> int:
        """Return how many machines of a type are there."""
        return sum(name == node_type for name in self._live.values())

    @property
    def resting(self) -> dict[str, str]:
        """Return the types that cannot be had now, with why."""
        now = self._context.now()
        return {name: rest.reason for name, rest in self._resting.items() if rest.until > now}

    # What happens

    def see(self, views: Mapping[str, NodeView], rare: frozenset[str]) -> None:
        """Take in which nodes are there; those that are new say what their types are really like."""
        if not self.is_on:
            return
        now = self._context.now()
        is_new = self._live.keys() != views.keys()
        for node_id in self._live.keys() - views.keys() if is_new else ():
            del self._live[node_id]
            self._arrived.pop(node_id, None)
        for node_id in [each for each in views if each not in self._live] if is_new else ():
            view = views[node_id]
            self._live[node_id] = view.node_type
            self._head = node_id if view.is_head else self._head
            if view.node_type:
                self._join(view, now)
        self.is_stale = self.is_stale or rare != self._rare
        self._rare = rare
        self._judge(views, now)

    def want(self, wanted: Mapping[str, int], whom: Mapping[str, str]) -> None:
        """Say how many machines of each type there should be beside those that are there, and for whom. Nothing is said before
        it is known what stands."""
        if self.survey is None:
            return
        now = self._context.now()
        self._is_told = True
        if now < self._go_on_until:  # what waits has yet to be reported, and to become old enough
            asked = {name: self._goals.get(name, 0) - self.count(name) for name in self.survey.asked}
            wanted = self._beside({name: count for name, count in asked.items() if count > 0}, wanted)
        limited = {name: self._limited(name, count, now) for name, count in wanted.items()}
        before, self._wanted = self._wanted, {name: count for name, count in sorted(limited.items()) if count > 0}
        self._goals = {name: count + self.count(name) for name, count in self._wanted.items()}
        self._asked_at = {name: self._asked_at.get(name, now) for name in self._wanted}
        for name, count in self._wanted.items():
            if count > before.get(name, 0):
                self._context.note(
                    "machines", name, f"{show_machines({name: count})} asked for, for {whom.get(name) or 'what waits'}"
                )
        for name in before.keys() - self._wanted.keys():
            self._context.note("machines", name, f"no more nodes of type {name} are asked for")

    def refresh(self) -> bool:
        """Bring the types up to date. Return whether they are others than before."""
        if self.types is None:
            return False
        resting = self.resting
        if self.table is not None and not self.is_stale and resting == self.table.resting:
            return False
        self.is_stale = False
        seen = [(name, total, labels) for name, (total, labels) in self._shown.items()]
        types = self.types.isolating(self._rare).seen(seen)
        if self.table is not None and self.table.types == types and self.table.resting == resting:
            return False
        self.table = TypeTable(types, resting)
        return True

    def learned(self, done: Done) -> None:
        """Take in the types, or why they cannot be learned: then the last ones hold."""
        self._read_at = self._context.now()
        problem = done.error
        if problem and problem != self.problem:
            self._context.note("machines", "", f"the node types cannot be learned: {problem}")
        self.problem = problem
        if not problem and done.answer != self.types:
            found: NodeTypes = done.answer
            self.types, self.is_stale = found, True
            listed = ", ".join(each.name for each in found) or "none"
            self._context.note("machines", "", f"node types: {listed}")

    def looked(self, done: Done) -> None:
        """Take in what became of what was asked for."""
        self._looked_at = self._context.now()
        if done.error:
            return
        survey: Survey = done.answer
        if self.survey is None:
            self._go_on(survey)
        self.survey = survey
        self._joined_since.clear()
        if survey.refused and survey.others and survey.asked and not self._is_yielding:
            is_new = self._looked_at - self._yield_until > YIELD_SECONDS
            self._yield_until = self._looked_at + YIELD_SECONDS
            if is_new:
                self._context.note("machines", "", f"what is asked for is withdrawn for {YIELD_SECONDS:g} s: {self.obstacle}")
        for failure in survey.failed:
            self._fail(failure.node_type, failure.reason, failure.at)

    def asked(self, done: Done) -> None:
        """Take in that it was asked. After an error it is looked what stands."""
        ask = done.effect
        assert isinstance(ask, AskForMachines)
        if done.error or self.survey is None:
            self._looked_at = -1e9
            return
        standing = {name: Request(count, self._known(name, ask.nodes)) for name, count in ask.wanted.items()}
        self.survey = replace(self.survey, asked=standing)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is asked for in our name any more, as far as is known."""
        return self.survey is None or not self.survey.asked

    def end(self) -> None:
        """Ask for nothing any more."""
        self._wanted, self.is_on = {}, False

    # Effects

    def plan(self) -> list[ReadNodeTypes | LookAtMachines | AskForMachines]:
        """Return what has to be read, looked at or asked now."""
        now = self._context.now()
        if not self.is_on:
            return [AskForMachines({}, {}, self._head)] if not self.is_over else []
        effects: list[ReadNodeTypes | LookAtMachines | AskForMachines] = []
        if now - self._read_at >= TYPES_SECONDS:
            effects.append(ReadNodeTypes())
        if self.types is None:
            return effects
        standing = self.survey.asked if self.survey is not None else None
        if standing is not None and self._is_told and self._differs(standing):
            wanted = {} if self._is_yielding else dict(self._wanted)
            effects.append(AskForMachines(wanted, dict(self._live), self._head))
        elif standing is None or ((standing or self._wanted or self.watches) and now - self._looked_at >= LOOK_SECONDS):
            effects.append(LookAtMachines())
        return effects

    # The rest

    def _go_on(self, survey: Survey) -> None:
        """What one before us asked for goes on. Of the machines that are there some may just have joined: work that they have
        started is still reported as waiting."""
        now = self._context.now()
        self._asked_at = dict.fromkeys(survey.asked, now)
        if not self.is_after_another:
            return
        self._go_on_until = now + JOINED_SECONDS
        for name, request in survey.asked.items():
            self._goals[name] = len(self._known(name, self._live) & request.known) + request.count
        for name in filter(None, set(self._live.values())):
            self._joined_at[name] = now

    def _differs(self, standing: Mapping[str, Request]) -> bool:
        if {name: each.count for name, each in standing.items()} != ({} if self._is_yielding else self._wanted):
            return True
        return any(not self._known(name, self._live) <= each.known for name, each in standing.items())

    def _known(self, name: str, nodes: Mapping[str, str]) -> frozenset[str]:
        return frozenset(node_id for node_id, node_type in nodes.items() if node_type == name)

    def _room(self) -> int:
        """Return how many more machines there may be of all types together."""
        most = self.table.types.most if self.table is not None else None
        return NO_LIMIT if most is None else max(most - sum(bool(name) for name in self._live.values()), 0)

    def _beside(self, asked: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
        """Return what is asked for already, and of what is wanted besides as many as there may be."""
        found, room = dict(asked), self._room() - sum(asked.values())
        for name, count in wanted.items():
            more = min(count - found.get(name, 0), room)
            if more > 0:
                found[name] = found.get(name, 0) + more
                room -= more
        return found

    def _limited(self, name: str, count: int, now: float) -> int:
        if now - self._joined_at.get(name, -1e9) >= JOINED_SECONDS:
            return count
        return min(count, max(self._goals.get(name, self.count(name)) - self.count(name), 0))

    def _join(self, view: NodeView, now: float) -> None:
        name, total = view.node_type, real(view.total)
        self._joined_since[name] = self._joined_since.get(name, 0) + 1
        known = self._shown.get(name)
        if known is None:
            self._shown[name], self.is_stale = (total, dict(view.labels)), True
        else:
            least = Resources({each: min(units, total.get(each, 0)) for each, units in known[0].items()})
            labels = {key: value for key, value in known[1].items() if view.labels.get(key) == value}
            if (least, labels) != known:
                self._shown[name], self.is_stale = (least, labels), True
        if self._wanted.get(name):
            self._joined_at[name] = now
            self._arrived[view.node_id] = name, now
            self._asked_at[name] = now
            rest = self._resting.get(name)
            if rest is not None and rest.until <= now:
                del self._resting[name]

    def _judge(self, views: Mapping[str, NodeView], now: float) -> None:
        """Find out which machines came and helped nobody, and which were asked for and do not come."""
        for node_id, (name, at) in list(self._arrived.items()):
            view = views[node_id]
            if any(
                view.available.get(each, 0.0) < amount for each, amount in view.total.items() if each == "CPU" or each == "GPU"
            ):
                self._in_vain[name] = 0
                del self._arrived[node_id]
            elif now - at >= TRIED_SECONDS:
                del self._arrived[node_id]
                self._in_vain[name] = self._in_vain.get(name, 0) + 1 if self._wanted.get(name) else 0
                if self._in_vain[name] >= _IN_VAIN:
                    self._in_vain[name] = 0
                    why = f"{_IN_VAIN} nodes of it came and took nothing of what waits"
                    self._fail(name, why, now, MOST_REST_SECONDS, hopeless=True)
        for name, at in list(self._asked_at.items()):
            if self._wanted.get(name) and now - at >= LATE_SECONDS:
                self._fail(name, f"asked for {round(now - at)} s ago, and none came", now, hopeless=True)

    def _fail(self, name: str, reason: str, at: float, least: float = REST_SECONDS, *, hopeless: bool = False) -> None:
        """Let a type rest. What fails while it rests was begun before, and says nothing new."""
        known = self._resting.get(name)
        if known is not None and at <= max(known.at, known.until):
            return
        times = known.times + 1 if known is not None else 1
        seconds = max(min(REST_SECONDS * 2 ** (times - 1), MOST_REST_SECONDS), least)
        until = at + seconds
        self._resting[name] = _Rest(reason, at, until, times, hopeless)
        self._asked_at.pop(name, None)
        if until > self._context.now():
            self._context.note("machines", name, f"type {name} cannot be had now: {reason}; it rests for {seconds:g} s")
