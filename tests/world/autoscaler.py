"""Whoever starts and ends machines: starts what is asked for, soon, late or not at all, and ends what is idle by Ray's clock.

Of what stands in the controller's name it holds that no more is asked for than there may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.world.failure import Failure as Broken
from tests.world.faults import MACHINES_FAIL, MACHINES_SLOW

from remora.model.node_types import NodeType, NodeTypes
from remora.model.taints import taint_label
from remora.port.scaler import Failure, Request, Survey
from remora.wire.classes import ClassSpec

if TYPE_CHECKING:
    from tests.world.raylet import Raylet
    from tests.world.world import World

IDLE_SECONDS = 6.0
"""A machine on which nothing was in use for so long is ended."""

REST_SECONDS = 700.0
"""So long after machines of a type could not be had nobody promises to ask for more of them."""

_TOO_MANY = "more machines are asked for than there may be"
_TICK_SECONDS = 0.5
_DRAIN_SECONDS = 0.3


class Autoscaler:
    """``Scaler`` over the machines of the world."""

    def __init__(self, world: World, types: NodeTypes) -> None:
        self._world = world
        self.types = types
        self.asked: dict[str, Request] = {}
        self.failed: list[Failure] = []
        self._coming: list[str] = []
        self._made = 0
        world.after(_TICK_SECONDS, self._tick)

    # As the controller sees it

    def node_types(self) -> NodeTypes:
        return self.types

    def survey(self) -> Survey:
        coming = {name: self._coming.count(name) for name in self._coming}
        busy = frozenset(raylet.node_id for raylet in self._world.raylets.values() if raylet.idle_since() is None)
        recent = tuple(each for each in self.failed if self._world.now - each.at < 60.0)
        return Survey(dict(self.asked), coming, recent, busy)

    def ask(self, wanted: Mapping[str, int], nodes: Mapping[str, str], head: str) -> None:
        for name, count in wanted.items():
            self._judge(name, count, [node_id for node_id, kind in nodes.items() if kind == name])
        if self.types.most is not None:
            there = [node_id for node_id, kind in nodes.items() if kind and node_id in self._world.raylets]
            if len(there) + sum(wanted.values()) > self.types.most and wanted:
                raise Broken(_TOO_MANY, f"{wanted} beside {len(there)} machines, of at most {self.types.most} together")
        self.asked = {
            name: Request(count, frozenset(node_id for node_id, kind in nodes.items() if kind == name))
            for name, count in wanted.items()
            if count
        }

    def _judge(self, name: str, count: int, known: list[str]) -> None:
        each = self.types.get(name)
        there = sum(node_id in self._world.raylets for node_id in known)
        if each is None or (each.most is not None and there + count > each.most):
            raise Broken(_TOO_MANY, f"{count} {name} beside {there}, of at most {each.most if each is not None else 0}")

    # What it does

    def _tick(self) -> None:
        for each in self.types:
            self._start(each)
        for raylet in [raylet for raylet in self._world.raylets.values() if raylet.node_type]:
            self._end(raylet)
        self._world.after(_TICK_SECONDS * self._world.patience, self._tick)

    def _start(self, each: NodeType) -> None:
        there, coming = self.machines(each.name), self._coming.count(each.name)
        request = self.asked.get(each.name, Request(0))
        lack = max(request.count - sum(node not in request.known for node in there), each.least - len(there)) - coming
        for _ in range(min(lack, self.room(each))):
            self._coming.append(each.name)
            most = 20.0 if self._world.is_bad(MACHINES_SLOW) else 3.0
            self._world.after(self._world.chance.between(f"starts {each.name}", 0.5, most), self._arrive, each)
            self._world.note("a machine of type {} is started", each.name)

    def _arrive(self, each: NodeType) -> None:
        self._coming.remove(each.name)
        if self._world.is_bad(MACHINES_FAIL) and self._world.chance.happens(f"fails {each.name}", 0.7):
            self.failed.append(Failure(each.name, "there is none left", self._world.now))
            self._world.note("a machine of type {} cannot be had", each.name)
            return
        self._made += 1
        labels = {**dict(each.labels), **{taint_label(key): value for key, value in each.taints}}
        self._world.note("{}{} joins", each.name, self._made)
        self._world.join(f"{each.name}{self._made}", each.resources.to_dict(), labels, each.name)

    def _end(self, raylet: Raylet) -> None:
        since, each = raylet.idle_since(), self.types.get(raylet.node_type)
        is_asked = raylet.node_type in self.asked  # a request keeps those of its type from being ended
        is_extra = each is not None and len(self.machines(each.name)) > each.least
        if since is None or self._world.now - since < IDLE_SECONDS or is_asked or not is_extra or raylet.draining:
            return
        raylet.draining = True
        self._world.note("{} is idle and about to be ended", raylet.node_id)
        self._world.tell_of(raylet)
        self._world.after(_DRAIN_SECONDS, self._drained, raylet)

    def _drained(self, raylet: Raylet) -> None:
        """A raylet refuses when something has begun there meanwhile."""
        if raylet.node_id not in self._world.raylets:
            return
        if raylet.idle_since() is None:
            raylet.draining = False
            self._world.tell_of(raylet)
        else:
            self._world.machine_ends(raylet)

    # What there is

    def machines(self, name: str = "") -> list[str]:
        """Return the machines of a type that live, or all."""
        found = self._world.raylets.values()
        return [raylet.node_id for raylet in found if (raylet.node_type == name if name else raylet.node_type)]

    def room(self, each: NodeType) -> int:
        """Return how many more machines of a type there may be."""
        of_type = 1_000 if each.most is None else each.most - len(self.machines(each.name)) - self._coming.count(each.name)
        most = self.types.most
        together = 1_000 if most is None else most - len(self.machines()) - len(self._coming)
        return max(min(of_type, together), 0)

    def would_help(self, spec: ClassSpec, need: Mapping[str, float]) -> str:
        """Return a type of which there may be one more, and whose machines could hold this when nothing else is on them; empty
        where there is none beyond doubt."""
        first = spec.choices[0]
        for each in self.types:
            fits = all(each.resources.to_dict().get(name, 0.0) >= amount for name, amount in need.items())
            welcome = first.selector.matches(dict(each.labels)) and first.tolerations.tolerates(dict(each.taints))
            rests = any(failure.node_type == each.name for failure in self.failed)
            if fits and welcome and first.node_id is None and not rests and not first.any_of and self.room(each):
                return each.name
        return ""

    def left_over(self) -> str:
        """Return what is kept though nobody needs it: empty when nothing is."""
        extra = [each.name for each in self.types if len(self.machines(each.name)) > each.least]
        return f"{self.asked} is asked for, and of {extra} there are more than the least" if self.asked or extra else ""
