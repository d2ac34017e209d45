"""Hear calls as bytes and answer them as bytes: what goes wrong is an answer too, never a traceback."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from remora.errors import ControllerAwayError, RemoraError
from remora.wire.calls import (
    ANSWERED_BY_HOST,
    Call,
    DropGroup,
    Enter,
    MakeGroup,
    Reclaim,
    Several,
    Withdraw,
    decode_call,
    encode_answer,
    encode_error,
)
from remora.wire.fences import LATER
from remora.wire.group_plans import GroupPlan

MOST_KEPT = 24
"""So many questions of a kind are kept until there is an answer. Who asks beyond that is heard, and told to ask again later:
with all threads taken, those who wait could not say that they still do."""

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """What decides. May be called from several threads at once."""

    def answer(self, call: Call, told: Sequence[Call] = ()) -> Any:
        """Return the answer in plain values; raise what the caller gets. ``Enter`` and ``Reclaim`` may take ``patience``. What
        was told with it is taken in before."""

    def close(self) -> None:
        """Stop whatever goes on by itself."""


class GroupKeeper(Protocol):
    """What creates placement groups, and keeps those that wait."""

    def make(self, plan: GroupPlan) -> dict[str, Any]: ...

    def drop(self, group_id: str) -> None: ...

    def stop(self) -> None: ...


class Hearing:
    """``withdrawn`` is called when everything is to be withdrawn: from the first time on nothing else is heard."""

    def __init__(self, engine: Engine, groups: GroupKeeper, withdrawn: Callable[[], None]) -> None:
        self._engine = engine
        self._groups = groups
        self._withdrawn = withdrawn
        self._is_over = False
        self._kept = {Enter: threading.Semaphore(MOST_KEPT), Reclaim: threading.Semaphore(MOST_KEPT)}

    def answer(self, data: bytes) -> bytes:
        """Return the encoded answer to an encoded call."""
        told: list[Call] = []
        try:
            call: Call = decode_call(data)
            if isinstance(call, Several):
                told, call = [decode_call(each) for each in call.told], decode_call(call.asked)
        except RemoraError as error:
            return encode_error(error)
        if isinstance(call, ANSWERED_BY_HOST):
            for each in told:
                self._encoded(each, ())
        return self._encoded(call, told)

    def _encoded(self, call: Call, told: Sequence[Call]) -> bytes:
        try:
            return encode_answer(self._value(call, told))
        except RemoraError as error:
            return encode_error(error)
        except Exception as error:  # noqa: BLE001 - whatever it was, its caller gets an answer
            _log.exception("the controller failed over %s", type(call).__name__)
            return encode_error(error)

    def _value(self, call: Call, told: Sequence[Call]) -> Any:
        if self._is_over and not isinstance(call, Withdraw):
            raise ControllerAwayError("the controller is being shut down: attach again in a moment")
        match call:
            case MakeGroup(plan=plan):
                return self._groups.make(plan)
            case DropGroup(group_id=group_id):
                return self._groups.drop(group_id)
            case Withdraw():
                self._is_over = True
                self._groups.stop()
                self._withdrawn()
            case Enter() | Reclaim():
                return self._keep(call)
        return self._engine.answer(call, told)

    def _keep(self, call: Enter | Reclaim) -> Any:
        with _taken(self._kept[type(call)]) as is_taken:
            if is_taken:
                return self._engine.answer(call)
        answer = self._engine.answer(msgspec.structs.replace(call, patience=0.0))
        return LATER if answer is None else answer


@contextlib.contextmanager
def _taken(semaphore: threading.Semaphore) -> Iterator[bool]:
    is_taken = semaphore.acquire(blocking=False)
    try:
        yield is_taken
    finally:
        if is_taken:
            semaphore.release()
