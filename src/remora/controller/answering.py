"""How a call is answered: a reply, what is polled until there is one, and who answers which call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from remora.wire.calls import Call

if TYPE_CHECKING:
    from remora.controller.controller import Controller

C = TypeVar("C", bound=Call)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a value, or the error that the caller gets."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Pending:
    """A call that was taken in. ``poll`` returns its reply, or None while something has to happen first."""

    def __init__(self, poll: Callable[[], Reply | None]) -> None:
        self._poll = poll

    def poll(self) -> Reply | None:
        """Whatever goes wrong is the caller's answer."""
        try:
            return self._poll()
        except Exception as error:  # noqa: BLE001 - one call that fails stops no other
            return Reply(error=error)


handlers: dict[type, Callable[[Controller, Any], Pending]] = {}
"""Who answers which call."""


def answers(kind: type[C]) -> Callable[[Callable[[Controller, C], Pending]], Callable[[Controller, C], Pending]]:
    """Answer calls of this kind with the function that follows."""

    def register(handler: Callable[[Controller, C], Pending]) -> Callable[[Controller, C], Pending]:
        handlers[kind] = handler
        return handler

    return register


def value(found: Any) -> Pending:
    """Answer at once."""
    return Pending(lambda: Reply(found))
