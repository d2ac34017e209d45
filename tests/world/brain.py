"""The controller as its host sees it, and what it may not do quietly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from tests.world.failure import Failure
from tests.world.port import WorldPort

from remora.controller.answering import Reply
from remora.controller.commands import begin
from remora.controller.effects import Done, Effect
from remora.controller.recovery import recover
from remora.port.contract import Observation, Work
from remora.wire.calls import Call


class Pending(Protocol):
    def poll(self) -> Reply | None: ...


class Brain(Protocol):
    """A controller."""

    @property
    def settled(self) -> bool: ...
    @property
    def report(self) -> Callable[[Observation], None]: ...
    @property
    def tell(self) -> Callable[[Work | None], Any]: ...
    def begin(self, call: Call) -> Pending: ...
    @property
    def round(self) -> Callable[[], None]: ...
    @property
    def plan(self) -> Callable[[], list[Effect]]: ...
    @property
    def done(self) -> Callable[[Done], None]: ...
    @property
    def validate(self) -> Callable[[], None]: ...


Make = Callable[[WorldPort, Callable[[], float]], Brain]


class _Aside(logging.Handler):
    """What the controller sets aside instead of failing. Of what the cluster does to it nothing is wrong with that; but what
    goes wrong inside of it is a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def raise_first(self) -> None:
        for record in self.records:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None:
                raise Failure("something is set aside", record.getMessage()) from error


ASIDE = _Aside()
_log = logging.getLogger("remora.controller.set_aside")
_log.handlers, _log.propagate = [ASIDE], False


class Recovered:
    """The real controller, from what is remembered and what the cluster reports."""

    def __init__(self, port: WorldPort, clock: Callable[[], float]) -> None:
        self.controller = recover(port, clock)
        self.report = self.controller.report
        self.tell = self.controller.tell
        self.round = self.controller.round
        self.plan = self.controller.plan
        self.done = self.controller.done
        self.validate = self.controller.validate

    @property
    def settled(self) -> bool:
        return self.controller.settled

    def begin(self, call: Call) -> Pending:
        return begin(self.controller, call)

    def unsettled(self) -> str:
        """What of it is not settled."""
        c = self.controller
        parts = {
            "classes": not c.class_tokens.unsettled(),
            "shares": c.shares.settled,
            "growing": c.growing.settled,
            "groups": c.groups.settled,
            "leases": c.leases.settled,
            "holds": c.holds.settled,
            "line": not c.lending.any_in_line,
            "fences": not c.fences.any_full,
            "lanes": not c.lanes.any_closed,
            "assumed": c.assumed.settled,
            "scaling": c.scaling.settled,
        }
        return ", ".join(name for name, is_settled in parts.items() if not is_settled)
