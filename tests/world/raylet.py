"""One raylet: totals that clamp, a queue that takes what is returned at once, and Ray's own rules of dispatch.

A request is sent to a raylet, which chooses a node for it by what it knows: of itself exactly, of the others what they told it
last. It chooses the node that the request names as a wish if that could ever hold it; else one with room, itself first; else
one that could ever hold it. It may send the request on, once: a raylet that was sent one takes it or rejects it, and then its
home is asked again. A queue grants by what work *holds*, not by what it needs to be placed. Work that is queued where it can
never run any more, and that no other node could hold, is failed: decision 6 of the documents says why that matters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from remora.port.contract import NodeView

if TYPE_CHECKING:
    from tests.world.processes import Worker
    from tests.world.world import World

UNIT = 10_000
Units = dict[str, int]
Shape = tuple[tuple[str, int], ...]


def to_units(amounts: Mapping[str, float]) -> Units:
    return {name: round(amount * UNIT) for name, amount in amounts.items() if amount}


def to_floats(units: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / UNIT for name, amount in units.items()}


def fits(free: Mapping[str, int], need: Shape) -> bool:
    for name, units in need:  # noqa: SIM110 - asked more often than anything else
        if free.get(name, 0) < units:
            return False
    return True


class Owner(Protocol):
    """Who asks for workers: a process, or GCS for its actors."""

    @property
    def job_id(self) -> str: ...

    def granted(self, request: Request, worker: Worker) -> None:
        """This worker is its own until it is released."""

    def failed(self, request: Request) -> None:
        """No node could hold it any more."""

    def lost(self, request: Request) -> None:
        """The node that had it is gone."""


class Request:
    """Of one worker. ``placement`` must be free to be sent to a node, ``held`` to be granted there. ``home`` is the node of
    whoever asks; ``wish`` a node that it would like; ``spread``: another node each time."""

    __slots__ = ("ended", "held", "home", "key", "name", "number", "owner", "placement", "sent_on", "spread", "wish")

    def __init__(
        self,
        owner: Owner,
        name: str,
        placement: Units,
        held: Units,
        home: str,
        wish: str | None = None,
        *,
        spread: bool = False,
        key: object = None,
    ) -> None:
        self.owner = owner
        self.name = name
        self.placement: Shape = tuple(sorted(placement.items()))
        self.held: Shape = tuple(sorted(held.items()))
        self.home = home
        self.wish = wish
        self.spread = spread
        self.key = key
        self.number = 0
        self.sent_on = False
        self.ended = False


class Raylet:
    def __init__(self, world: World, node_id: str, total: Units, labels: Mapping[str, str], *, is_head: bool = False) -> None:
        self.world = world
        self.node_id = node_id
        self.labels = dict(labels)
        self.is_head = is_head
        self.total: Units = dict(total)
        self.available: Units = dict(total)
        self.others: dict[str, tuple[Units, Units]] = {}  # as they told it last
        self.queue: list[Request] = []  # to run here
        self.nowhere: list[Request] = []  # that no node could hold, as far as is known here
        self.workers: dict[str, Worker] = {}  # that are given to somebody
        self.idle: list[Worker] = []
        self.alive = True
        self.is_due = False  # it is about to tell the others of itself
        self.returned: dict[str, tuple[int, float]] = {}  # what work gave back since it was written last, and when
        self.node_type = ""
        self.draining = False
        self._idle_at = world.now
        self._busy: set[str] = set()  # resources in use, as Ray sees that for ending idle nodes
        self._dispatching = False
        self._again = False

    # What the cluster writes

    def resize(self, amounts: Mapping[str, float]) -> dict[str, float]:
        """Set totals. None goes below what is in use."""
        for name, amount in amounts.items():
            self._idles(name)
            self.returned.pop(name, None)
            used = self.total.get(name, 0) - self.available.get(name, 0)
            new = max(round(amount * UNIT), used)
            if new:
                self.total[name], self.available[name] = new, new - used
            else:
                self.total.pop(name, None)
                self.available.pop(name, None)
        if amounts:
            self.changed()
        return to_floats(self.total)

    def take(self, shape: Shape) -> None:
        for name, units in shape:
            self._busy.add(name)
            self.available[name] = self.available.get(name, 0) - units

    def give(self, shape: Shape) -> None:
        for name, units in shape:
            if name in self.total:  # else it was what a placement group had reserved, and that is gone
                self.available[name] = self.available.get(name, 0) + units
            if self.available.get(name, 0) >= self.total.get(name, 0):
                self._idles(name)
        self.changed()

    def add_total(self, shape: Shape) -> None:
        """What a placement group has reserved is offered to its own work under other names."""
        for name, units in shape:
            self.total[name] = self.total.get(name, 0) + units
            self.available[name] = self.available.get(name, 0) + units
        self.changed()

    def drop_total(self, shape: Shape) -> None:
        for name, units in shape:
            self.total[name] = self.total.get(name, 0) - units
            self.available[name] = self.available.get(name, 0) - units
            if self.total[name] <= 0:
                del self.total[name], self.available[name]
        self.changed()

    def changed(self) -> None:
        self.world.tell_of(self)
        self.dispatch()

    def idle_since(self) -> float | None:
        """Return since when nothing is in use here, or None: the clock of whoever ends idle machines. It starts again whenever
        a total is set; and what is set counts as idle then, whatever holds it."""
        return None if self._busy or self.workers else self._idle_at

    def _idles(self, name: str) -> None:
        self._busy.discard(name)
        self._idle_at = self.world.now

    # Requests

    def ask(self, request: Request) -> None:
        """A request has arrived."""
        if request.ended or not self.alive:
            return
        target = self._choose(request)
        if target is None:
            self.nowhere.append(request)
            self.world.tell_of(self)
        elif target == self.node_id:
            self.queue.append(request)
            self.world.tell_of(self)
            self.dispatch()
        else:
            self._send_on(request, target)

    def forget_ended(self) -> None:
        """Somebody has died: nobody waits for what it asked for."""
        if any(request.ended for request in (*self.queue, *self.nowhere)):
            self.queue = [request for request in self.queue if not request.ended]
            self.nowhere = [request for request in self.nowhere if not request.ended]
            self.world.tell_of(self)

    def give_up(self, shapes: Collection[Shape]) -> None:
        """What waits here for just these fails."""
        lost = [request for request in (*self.queue, *self.nowhere) if request.placement in shapes and not request.ended]
        for request in lost:
            self.world.note("{} fails at {}: it was given up", request.name, self.node_id)
            request.ended = True
            request.owner.failed(request)
        self.forget_ended()

    def heard(self, node_id: str, total: Units | None, available: Units | None) -> None:
        """Another raylet has told of itself, or is gone."""
        if total is None or available is None:
            self.others.pop(node_id, None)
        else:
            self.others[node_id] = (total, available)
        if self.queue or self.nowhere:
            self.dispatch()

    def dispatch(self) -> None:
        """Grant what can be granted, in the order in which it came; what cannot goes elsewhere, or fails."""
        if self._dispatching:
            self._again = True
            return
        self._dispatching = True
        self._again = True
        while self._again and self.alive:
            self._again = False
            self._dispatch_once()
        self._dispatching = False

    def _dispatch_once(self) -> None:
        if self.nowhere:
            waiting, self.nowhere = self.nowhere, []
            for request in waiting:
                self.ask(request)
            if len(self.nowhere) != len(waiting):
                self.world.tell_of(self)
        stuck: set[Shape] = set()
        kept: list[Request] = []
        queue, self.queue = self.queue, []
        for request in queue:
            if request.ended:
                continue
            if request.placement in stuck:
                kept.append(request)
            elif fits(self.available, request.held):
                self._grant(request)
            else:
                target = self._choose(request)
                if target is None:
                    self.world.note("{} fails at {}: no node could hold it any more", request.name, self.node_id)
                    request.ended = True
                    request.owner.failed(request)
                elif target == self.node_id:
                    kept.append(request)
                    stuck.add(request.placement)
                else:
                    self._send_on(request, target)
        if len(kept) != len(queue):
            self.world.tell_of(self)  # less waits here
        self.queue = kept + self.queue

    def _choose(self, request: Request) -> str | None:
        need = request.placement
        views = [(self.node_id, self.total, self.available)]
        views += [(node_id, *view) for node_id, view in self.others.items()]
        if request.wish is not None:
            for node_id, total, _ in views:
                if node_id == request.wish and fits(total, need):
                    return node_id
        if len(views) > 1 and (request.spread or not fits(self.available, need)):
            turn = int(self.world.chance.of(f"choose {request.name}") * len(views))
            views = views[turn:] + views[:turn] if request.spread else views[:1] + views[1:][turn:] + views[1:][:turn]
        for node_id, _, available in views:
            if fits(available, need):
                return node_id
        if fits(self.total, need):
            return self.node_id
        for node_id, total, _ in views:
            if fits(total, need):
                return node_id
        return None

    def _send_on(self, request: Request, target: str) -> None:
        """To another node; what was sent here already goes home first, to ask again from there."""
        back, request.sent_on = request.sent_on, not request.sent_on
        self.world.send_request(request, request.home if back else target)

    def _grant(self, request: Request) -> None:
        request.ended = True
        self.take(request.held)
        self.world.tell_of(self)
        self.world.start_worker(self, request)

    # Workers

    def block(self, worker: Worker) -> None:
        """It waits in ray.get: its CPU is others' meanwhile, its tokens are not."""
        units = dict(worker.held).get("CPU", 0)
        if units and not worker.lent_cpu and worker.alive:
            worker.lent_cpu = units
            self.give((("CPU", units),))

    def unblock(self, worker: Worker) -> None:
        """It goes on without waiting for a CPU: there may be less than none left."""
        if worker.lent_cpu and worker.alive:
            self.take((("CPU", worker.lent_cpu),))
            worker.lent_cpu = 0
            self.world.tell_of(self)

    def released(self, worker: Worker) -> None:
        """The lease of a worker has ended, or the worker itself."""
        if self.workers.pop(worker.worker_id, None) is None:
            return
        held = tuple((name, units - (worker.lent_cpu if name == "CPU" else 0)) for name, units in worker.held)
        worker.lent_cpu, worker.held = 0, ()
        if self.alive:
            if worker.alive:
                self.idle.append(worker)
            self.note_returned(held)
            self.give(held)

    def note_returned(self, shape: Shape) -> None:
        """Work gives this back, and whoever is next in the queue gets it."""
        for name, units in shape:
            self.returned[name] = self.returned.get(name, (0, 0.0))[0] + units, self.world.now

    def take_idle(self, job_id: str) -> Worker | None:
        """Return a worker that idles: one that worked for a job works for no other."""
        worker = next((each for each in reversed(self.idle) if each.job_id == job_id), None)
        if worker is not None:
            self.idle.remove(worker)
        return worker

    # What is reported

    def view(self) -> NodeView:
        total, available = to_floats(self.total), to_floats(self.available)
        kind, draining = self.node_type, self.draining
        return NodeView(self.node_id, "127.0.0.1", self.labels, total, available, self.is_head, kind, draining)

    def demands(self) -> dict[Shape, int]:
        """What waits here. Of what waits for a node that it named and that could hold it, Ray reports nothing."""
        found: dict[Shape, int] = {}
        for request in (*self.queue, *self.nowhere):
            if not request.ended and not (request.wish == self.node_id and fits(self.total, request.placement)):
                found[request.placement] = found.get(request.placement, 0) + 1
        return found
