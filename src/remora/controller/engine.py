"""The engine: one controller behind a lock, and everything that it wants done performed outside of it.

Effects are performed at the same time, by threads of a pool; what came of each is taken in as soon as it is there, so that one
that is slow holds nobody up who does not need it. Whoever has a call answered begins what the answer depends on; a thread of
the engine's own makes the rounds and begins the rest. Nothing is asked of the cluster while the lock is held.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from remora.controller.answering import Pending, Reply
from remora.controller.commands import begin
from remora.controller.effects import Done, Effect, Put, perform
from remora.controller.recovery import recover
from remora.controller.tally import Tally
from remora.controller.views.gauges import Gauges, gauges
from remora.errors import ControllerAwayError, ControllerError
from remora.port.contract import Port, Work
from remora.wire import calls
from remora.wire.keys import FENCES

FULL_ROUND_SECONDS = 1.0
"""However quiet the feeds are, this often everything is compared."""

UNSETTLED_SECONDS = 0.1
"""As often, while something is under way: what is given back is taken away before it is given on."""

LEAST_SECONDS = 0.05
"""Between two rounds, however much happens."""

FRESH_SECONDS = 0.2
"""What is decided about is at most this old."""

_ANSWER_SECONDS = 20.0
_WRITERS = 512
"""So many effects may be under way; a thread that waits for a raylet costs little, and there are no more than were needed."""

_FRESH = (calls.Place, calls.OfferGroup, calls.CreateCluster, calls.GetTree, calls.PreviewNode, calls.ResizeCluster)
_NEWEST = (calls.FindNode, calls.LabelNode, calls.TaintNode, calls.GetStatus, calls.Explain, calls.GetClusters, calls.PlanFor)

_log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """What has been done so far, how things are, and how long what was done lately took."""

    counts: Mapping[tuple[str, str], int]
    gauges: Gauges
    durations: Mapping[str, Sequence[float]]


class Engine:
    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._awake = threading.Event()
        self._stopped = False
        self._rounded_at = self._round_at = self._asked_at = time.monotonic()
        self._took = 0.0  # the last effect
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="remora-write")
        self._finished: deque[Done] = deque()
        self._tally = Tally()
        self._controller = recover(port, clock)
        self._stop_watching = port.watch(self._tell)
        self._thread = threading.Thread(target=self._run, name="remora-rounds", daemon=True)
        self._thread.start()

    def answer(self, call: calls.Call, told: Sequence[calls.Call] = ()) -> Any:
        """Return the answer to a call, or raise its error. What waits for admission is answered with None when its patience is
        over, to be asked again. What was told with it is taken in first, and nobody waits for what comes of that."""
        began = time.monotonic()
        if isinstance(call, calls.SentOn):
            self._tally.count("remora_handed_on")
        if isinstance(call, _NEWEST):
            self._observe()
            self._round()
        elif isinstance(call, _FRESH) and time.monotonic() - self._asked_at > FRESH_SECONDS:
            self._observe()
        with self._lock:
            for each in told:
                begin(self._controller, each)
            pending = begin(self._controller, call)
            reply = pending.poll()
        if reply is None:
            reply = self._wait(call, pending)
        self._awake.set()
        if isinstance(call, calls.Place):
            self._tally.count("remora_decisions")
            self._tally.took("remora_decision_seconds", time.monotonic() - began)
        return reply.result() if reply is not None else None

    def measure(self) -> Measured:
        """Return the numbers that are worth exporting; durations are given once."""
        with self._lock:
            now = gauges(self._controller)
        return Measured(self._tally.counts.copy(), now, self._tally.take_durations())

    def close(self) -> None:
        """Stop making rounds, and end what goes on."""
        if self._stopped:
            return
        self._stopped = True
        self._stop_watching()
        self._awake.set()
        with self._lock:
            self._changed.notify_all()
        self._thread.join()
        self._writers.shutdown(cancel_futures=True)

    # The rest

    def _wait(self, call: calls.Call, pending: Pending) -> Reply | None:
        """Begin effects, and look again whenever something has come of one, until there is a reply."""
        kept = isinstance(call, calls.Enter | calls.Reclaim)
        until = time.monotonic() + (call.patience if isinstance(call, calls.Enter | calls.Reclaim) else _ANSWER_SECONDS)
        while True:
            with self._lock:
                effects: list[Effect] = []
                reply = pending.poll()
                if reply is None and not self._stopped:  # otherwise what follows can wait until it was sent
                    effects = self._controller.remember() or self._controller.plan()
                    reply = pending.poll()  # by what was just looked at
                if reply is None and not effects and time.monotonic() < until and not self._stopped:
                    if kept or not self._controller.lanes.any_in_flight:
                        self._soon()
                    self._changed.wait(UNSETTLED_SECONDS)
                    reply = pending.poll()
            self._begin(effects)
            if reply is not None:
                return reply
            if self._stopped:
                raise ControllerAwayError("the controller is being shut down: attach again in a moment")
            if time.monotonic() >= until:
                if kept:
                    return None
                raise ControllerError(f"the controller could not finish {type(call).__name__} in {_ANSWER_SECONDS:g} s")

    def _begin(self, effects: list[Effect]) -> None:
        """Perform effects of different lanes at the same time. Nobody waits for one that is slow but whoever needs it."""
        own = next((effect for effect in reversed(effects) if isinstance(effect, Put)), None)
        with contextlib.suppress(RuntimeError):  # it was just closed
            for effect in effects:
                if effect is not own:
                    self._writers.submit(self._perform, effect)
        if own is not None:
            self._perform(own)  # it takes no longer than to wake a thread

    def _perform(self, effect: Effect) -> None:
        began = time.monotonic()
        done = perform(self._port, effect)
        self._finished.append(done)
        self._took = time.monotonic() - began
        self._count(done)
        with self._lock:
            if not self._finished:
                return  # somebody has taken it in
            while self._finished:
                self._controller.done(self._finished.popleft())
            self._changed.notify_all()
        self._awake.set()

    def _count(self, done: Done) -> None:
        kind = type(done.effect).__name__
        self._tally.count("remora_writes", kind)
        if done.error:
            self._tally.count("remora_write_errors", kind)
        elif isinstance(done.effect, Put) and done.effect.key.startswith(FENCES.prefix):
            self._tally.count("remora_fences")

    def _observe(self) -> None:
        """Take in a report. One that was asked for before another is not taken in after it."""
        asked_at = time.monotonic()
        observation = self._port.observe()
        with self._lock:
            if asked_at >= self._asked_at:
                self._controller.report(observation)
                self._asked_at = asked_at

    def _round(self) -> None:
        with self._lock:
            self._rounded_at = time.monotonic()
            self._controller.round()
            settled = self._controller.settled
            self._round_at = self._rounded_at + (FULL_ROUND_SECONDS if settled else UNSETTLED_SECONDS)
            self._changed.notify_all()
            self._tally.count("remora_rounds")
            self._tally.took("remora_round_seconds", time.monotonic() - self._rounded_at)

    def _tell(self, work: Work | None) -> None:
        with self._lock:
            soon = self._controller.tell(work)
        if soon:
            self._soon()
        self._awake.set()

    def _soon(self) -> None:
        """Make a round, though not more often than a few times a second."""
        self._round_at = min(self._round_at, self._rounded_at + LEAST_SECONDS)
        self._awake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._awake.wait(max(0.0, self._round_at - time.monotonic()))
            self._awake.clear()
            try:
                self._go_on()
            except Exception:  # noqa: BLE001 - whatever it was, the next round looks at the cluster anew
                _log.exception("a round failed")
                self._round_at = time.monotonic() + UNSETTLED_SECONDS

    def _go_on(self) -> None:
        if time.monotonic() >= self._round_at:
            self._try_to_observe()
            self._round()
        with self._lock:
            effects = self._controller.plan() if not self._stopped else []
            is_busy = bool(effects) or self._controller.lanes.any_in_flight
        self._begin(effects)
        # Raylets tell each other of all their tokens after every write: what comes meanwhile is written together.
        if is_busy and not self._stopped:
            time.sleep(min(self._took, LEAST_SECONDS))

    def _try_to_observe(self) -> None:
        """Without a report the round is made by the last one: there is more to it than nodes."""
        try:
            self._observe()
        except Exception as error:  # noqa: BLE001 - whatever the port fails with
            with self._lock:
                self._controller.context.aside.add("report", "of all nodes", error)
        else:
            with self._lock:
                self._controller.context.aside.well("report", "of all nodes")
