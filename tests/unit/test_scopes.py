"""Which virtual cluster a thread or a coroutine is in: the one that it entered, or that was open where it was started."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from remora.live.attach import install
from remora.live.clusters import scopes
from remora.live.clusters.scopes import Scope
from remora.wire.rewrite import Defaults


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """One that is attached, and in no virtual cluster."""
    install.arrive(pickle.dumps(Defaults()))
    scopes.set_base(None)
    yield
    install.uninstall()


def in_thread(ask: Callable[[], str | None]) -> str | None:
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    thread.join()
    return answers[0]


def test_what_entered_nothing_is_in_the_cluster_of_the_process() -> None:
    assert scopes.current() is None
    scopes.set_base("vc1")
    assert scopes.current() == in_thread(scopes.current) == "vc1"


def test_a_thread_that_runs_already_is_not_in_what_another_enters() -> None:
    answers: list[str | None] = []
    go, seen = threading.Event(), threading.Event()

    def look() -> None:
        go.wait(10)
        answers.append(scopes.current())
        seen.set()

    thread = threading.Thread(target=look)
    thread.start()
    scope = Scope("vc1")
    scopes.enter(scope)
    go.set()
    seen.wait(10)
    scopes.leave(scope)
    thread.join()
    assert answers == [None]


def test_a_thread_that_is_started_inside_is_inside_for_as_long_as_that_lasts() -> None:
    outer, inner = Scope("vc1"), Scope("vc2")
    scopes.enter(outer)
    scopes.enter(inner)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(scopes.current).result() == "vc2"
        scopes.leave(inner)
        assert pool.submit(scopes.current).result() == "vc1"
        scopes.leave(outer)
        assert pool.submit(scopes.current).result() is None
    assert (outer.used, inner.used) == (True, True)


def test_what_is_given_to_a_pool_is_in_the_cluster_of_whoever_gives_it() -> None:
    """An event loop has one pool for all of its tenants."""

    async def tenant(name: str) -> str | None:
        scope = Scope(name)
        scopes.enter(scope)
        answer = await in_pool()
        scopes.leave(scope)
        return answer

    async def in_pool() -> str | None:
        return await asyncio.get_running_loop().run_in_executor(pool, scopes.current)

    async def main() -> list[str | None]:
        holder = Scope("vc-a")
        scopes.enter(holder)
        first = await in_pool()  # its thread is started here
        others = [await nobody.run(asyncio.create_task, tenant("vc-b")), await nobody.run(asyncio.create_task, in_pool())]
        scopes.leave(holder)
        return [first, *others, await in_pool()]

    nobody = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        assert asyncio.run(main()) == ["vc-a", "vc-b", None, None]


def test_what_was_given_to_a_pool_outside_is_outside_though_a_thread_runs_it_that_was_started_inside() -> None:
    go = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        pool.submit(go.wait, 10)
        busy = [pool.submit(go.wait, 10)]
        outside = pool.submit(scopes.current)  # nobody is free
        scope = Scope("vc1")
        scopes.enter(scope)
        inside = pool.submit(scopes.current)
        go.set()
        assert (outside.result(10), inside.result(10)) == (None, "vc1")
        scopes.leave(scope)
    assert busy[0].result() is True


def test_a_thread_that_is_started_outside_is_left_as_it_is() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert "run" not in vars(thread)


def test_threads_and_pools_are_stock_again_in_a_process_that_is_detached() -> None:
    scopes.enter(Scope("vc1"))
    ours: list[Any] = [threading.Thread.start, ThreadPoolExecutor.submit]
    install.uninstall()
    stock = [threading.Thread.start, ThreadPoolExecutor.submit]
    assert [function.__module__ for function in stock] == ["threading", "concurrent.futures.thread"]
    assert [function.__wrapped__ for function in ours] == stock


def test_who_replaced_them_after_us_stays_when_the_process_is_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    ours: Any = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", ours.__wrapped__)  # what is put back after this test
    started: list[threading.Thread] = []

    @functools.wraps(ours)
    def start(thread: threading.Thread) -> None:
        started.append(thread)
        ours(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    scopes.enter(Scope("vc1"))
    assert in_thread(scopes.current) == "vc1"
    install.uninstall()
    scopes.set_base(None)
    assert threading.Thread.start is start
    assert in_thread(scopes.current) is None
    assert len(started) == 2


def test_a_threads_own_cluster_wins() -> None:
    scopes.enter(Scope("vc1"))

    def own() -> str | None:
        scope = Scope("vc2")
        scopes.enter(scope)
        try:
            return scopes.current()
        finally:
            scopes.leave(scope)

    assert in_thread(own) == "vc2"
    assert scopes.current() == "vc1"


def test_two_coroutines_are_each_in_their_own() -> None:
    seen: dict[str, list[str | None]] = {"a": [], "b": [], "child": []}

    async def tenant() -> None:
        scope = Scope("vc-a")
        scopes.enter(scope)
        child = asyncio.create_task(looks("child", 2))
        for _ in range(2):
            seen["a"].append(scopes.current())
            await asyncio.sleep(0.01)
        await child
        scopes.leave(scope)

    async def looks(name: str, times: int) -> None:
        for _ in range(times):
            seen[name].append(scopes.current())
            await asyncio.sleep(0.01)

    async def both() -> None:
        await asyncio.gather(tenant(), looks("b", 3))
        assert scopes.current() is None

    asyncio.run(both())
    assert seen == {"a": ["vc-a"] * 2, "b": [None] * 3, "child": ["vc-a"] * 2}


def test_what_outlives_a_with_is_no_longer_in_it() -> None:
    async def main() -> tuple[str | None, str | None]:
        scope = Scope("vc1")
        scopes.enter(scope)
        left = asyncio.Event()

        async def late() -> str | None:
            await left.wait()
            return scopes.current()

        task = asyncio.create_task(late())
        await asyncio.sleep(0)
        scopes.leave(scope)
        left.set()
        return await task, scopes.current()

    assert asyncio.run(main()) == (None, None)


def test_to_look_is_not_to_use() -> None:
    scope = Scope("vc1")
    scopes.enter(scope)
    assert scopes.peek() == "vc1"
    assert not scope.used
    scopes.current()
    assert scope.used
