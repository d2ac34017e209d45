"""A controller that is run step by step, in one thread, over any port: what tests of the controller talk to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from remora.controller.answering import Pending
from remora.controller.commands import begin
from remora.controller.controller import Controller
from remora.controller.effects import Done, Effect, perform
from remora.controller.recovery import recover
from remora.errors import ControllerError
from remora.port.contract import Port, Work
from remora.wire import calls


class Stepping:
    """Everything that is planned is performed at once; what the controller knows is validated after every step. Nothing may be
    set aside, but where ``allows_failures``.

    With a ``chance``, what is planned is performed in any order, the answers come in any other, and the controller goes on
    planning meanwhile.
    """

    def __init__(
        self,
        port: Port,
        clock: Callable[[], float],
        chance: random.Random | None = None,
        *,
        allows_failures: bool = False,
    ) -> None:
        self.port = port
        self.chance = chance
        self.allows_failures = allows_failures
        self.controller: Controller = recover(port, clock)
        self.performed: list[Effect] = []
        self.deaf = False  # feeds say nothing
        self._told: list[Work | None] = []
        self._stop_watching: Callable[[], None] | None = None
        self.listen()
        self.pump()

    def listen(self) -> None:
        """Hear what the feeds tell, until ``stop``."""
        self.stop()
        self._stop_watching = self.port.watch(self._told.append)

    def stop(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
        self._stop_watching = None

    def ask(self, call: calls.Call) -> Any:
        """Return the answer to a call; raise its error. None while there is no answer yet."""
        pending = self.begin(call)
        for _ in range(50):
            reply = pending.poll()
            if reply is not None:
                self.pump()
                return reply.result()
            if not self.pump():
                break
        reply = pending.poll()
        return reply.result() if reply is not None else None

    def begin(self, call: calls.Call) -> Pending:
        """Take a call in, and do nothing about it yet."""
        self.hear()
        self.controller.report(self.port.observe())
        return begin(self.controller, call)

    def round(self) -> None:
        """Hear, observe, decide, write."""
        self.hear()
        self.controller.report(self.port.observe())
        self.controller.round()
        self.pump()
        # What was just written is in the next report.
        self.controller.report(self.port.observe())
        self.controller.round()
        self.pump()

    def pump(self) -> int:
        """Perform effects until there are none. Return how many there were."""
        count = len(self.performed)
        flying: list[Effect] = []
        landed: list[Done] = []
        for _ in range(2000):
            self.hear()
            flying += self.controller.plan()
            if not flying and not landed:
                self.controller.validate()
                failures = self.controller.context.aside.rows()
                if failures and not self.allows_failures:
                    raise ControllerError(f"something was set aside: {failures}")
                return len(self.performed) - count
            if self.chance is None:
                for effect in flying:
                    self.controller.done(self.perform(effect))
                flying.clear()
            elif flying and (not landed or self.chance.random() < 0.5):
                landed.append(self.perform(flying.pop(self.chance.randrange(len(flying)))))
            else:
                self.controller.done(landed.pop(self.chance.randrange(len(landed))))
        raise ControllerError(f"it never ends: {self.performed[-20:]}")

    def hear(self) -> None:
        while self._told and not self.deaf:
            self.controller.tell(self._told.pop(0))

    def perform(self, effect: Effect) -> Done:
        """Do it, and return what came of it; whoever asks tells the controller."""
        self.performed.append(effect)
        return perform(self.port, effect)
