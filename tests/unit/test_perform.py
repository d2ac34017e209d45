"""Going through a protocol: blocking, on an event loop, many at once; whatever interrupts it is told to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from remora.live.perform import Body, Several, Until, perform, perform_async
from remora.protocol.steps import Ask, Pause, Say, Steps, Tell
from remora.wire.calls import GetEvents, GetStatus, Withdraw


class Told(Body):
    """Nobody hears it."""

    def __init__(self, given: Any = None) -> None:
        super().__init__(given)
        self.heard: list[Any] = []

    def ask(self, call: Any) -> Any:
        self.heard.append(call)
        return "answer"

    def tell(self, call: Any) -> None:
        self.heard.append(call)


def tidy(pause: float = 0.0) -> Steps[str]:
    """Wait, and say so whatever ends that."""
    try:
        yield Pause(pause)
        answer: str = yield Ask(GetStatus())
    except GeneratorExit:
        raise
    except BaseException:
        yield Tell(Withdraw())
        raise
    return answer


def test_the_answer_of_each_step_is_what_came_of_it() -> None:
    assert perform(tidy(), Told()) == "answer"
    assert asyncio.run(perform_async(tidy(), Told())) == "answer"


def test_an_interrupt_is_told_to_the_protocol_and_comes_out() -> None:
    body = Told({Pause: lambda _: (_ for _ in ()).throw(KeyboardInterrupt)})
    with pytest.raises(KeyboardInterrupt):
        perform(tidy(), body)
    assert body.heard == [Withdraw()]


def test_a_task_that_is_cancelled_tells_its_protocol_and_the_loop_was_never_blocked() -> None:
    body, ticks = Told(), []

    async def main() -> None:
        task = asyncio.create_task(perform_async(tidy(60), body))
        for _ in range(5):
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert body.heard == [Withdraw()]
    assert ticks[-1] - ticks[0] < 1


def test_what_has_to_be_undone_is_undone_however_it_ends() -> None:
    undone: list[str] = []
    for pause in (lambda _: None, lambda _: 1 / 0):
        body = Told({Pause: pause})
        body.closing.callback(undone.append, "closed")
        with contextlib.suppress(ZeroDivisionError):
            perform(tidy(), body)
    assert undone == ["closed"] * 2


def test_an_answer_that_takes_a_while_is_looked_for_until_its_time_is_over() -> None:
    answers: Iterator[Any] = iter([None, None, 7])
    assert perform(_one(), Told({Pause: lambda _: Until(lambda: next(answers), 5.0, "late", 0.001)})) == 7
    assert perform(_one(), Told({Pause: lambda _: Until(lambda: None, 0.02, "late", 0.001)})) == "late"


def _one() -> Steps[Any]:
    return (yield Pause(1.0))


def test_many_go_on_in_one_thread_and_one_that_fails_stops_no_other() -> None:
    several, done, threads = Several("test-several"), threading.Barrier(21), set()
    said: list[str] = []

    def wait(number: int) -> Steps[None]:
        for _ in range(3):
            yield Pause(0.01 * (number % 5))
        if number == 7:
            raise ValueError("the seventh")
        yield Say(str(number))

    class Counting(Told):
        def __init__(self) -> None:
            super().__init__({Say: self._say})
            self.closing.callback(lambda: threading.Thread(target=done.wait, args=(20,)).start())

        def _say(self, step: Say) -> None:
            threads.add(threading.current_thread().name)
            said.append(step.text)

    for number in range(20):
        several.add(wait(number), Counting())
    done.wait(20)
    assert sorted(map(int, said)) == [number for number in range(20) if number != 7]
    assert threads == {"test-several"}


def test_one_that_is_added_later_wakes_the_thread_again() -> None:
    several, over = Several("test-several"), [threading.Event(), threading.Event()]
    for event in over:
        several.add(tidy_none(), Told({Say: lambda _, event=event: event.set()}))
        assert event.wait(10)
        time.sleep(0.05)


def tidy_none() -> Steps[None]:
    yield Tell(GetEvents())
    yield Say("over")
