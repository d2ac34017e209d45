"""The arguments of a call of the core worker, by name. Workers import this when they start, so it needs little."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ray._raylet import CoreWorker
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from remora.live.submit.tickets import Ticket


class Call:
    """The arguments of one call of the core worker, by name: ``call["resources"]``."""

    __slots__ = ("_at", "values")

    def __init__(self, at: dict[str, int], values: list[Any]) -> None:
        self._at = at
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.values[self._at[name]]

    def given(self, name: str) -> Any:
        """What stands there; None also where this release of Ray has no such argument."""
        return self.values[self._at[name]] if name in self._at else None

    def __setitem__(self, name: str, value: Any) -> None:
        self.values[self._at[name]] = value

    @property
    def ticket(self) -> Any:
        """What travels through Ray's own code in the place of the label selector: a ``Ticket``, or None."""
        return self["label_selector"]

    @property
    def is_actor(self) -> bool:
        return "placement_resources" in self._at

    @property
    def is_in_group(self) -> bool:
        return isinstance(self["scheduling_strategy"], PlacementGroupSchedulingStrategy)

    @property
    def is_leased(self) -> bool:
        """Whether the kernel places it by itself: not in a placement group, whose bundle lies where it lies."""
        ticket = self.ticket
        return isinstance(ticket, Ticket) and ticket.lease is not None and not self.is_in_group

    def drop_ticket(self) -> None:
        """Leave Ray neither a selector nor fallbacks: tokens stand for both."""
        self["label_selector"] = self["fallback_strategy"] = None


class _Signature:
    """Where each argument of a method of the core worker stands, and what stands there when it is left out."""

    def __init__(self, method: str) -> None:
        parameters = list(inspect.signature(getattr(CoreWorker, method)).parameters.values())[1:]
        self.at = {parameter.name: index for index, parameter in enumerate(parameters)}
        self._blank = [None if each.default is inspect.Parameter.empty else each.default for each in parameters]

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """All arguments by position, whichever way they came."""
        values = [*args, *self._blank[len(args) :]]
        for name, value in kwargs.items():
            values[self.at[name]] = value
        return values

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return Call(self.at, self.in_order(args, kwargs))


signature = functools.cache(_Signature)  # of what a process submits: workers that submit nothing look nothing up
