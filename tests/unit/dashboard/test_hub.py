"""One poller for all pages: it looks while anybody does, and tells each what has changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from tests.served import MemoryBackend

from remora.dashboard.hub import Hub
from remora.dashboard.recent import History
from remora.wire import calls

QUICK = {"look_seconds": 0.05, "idle_seconds": 0.3}


async def heard(stream: AsyncIterator[bytes], kind: str) -> dict[str, Any]:
    """Return the next message of a kind."""

    async def next_one() -> dict[str, Any]:
        async for message in stream:
            lines = message.decode().splitlines()
            if lines[0] == f"event: {kind}":
                value: dict[str, Any] = json.loads(lines[1].removeprefix("data: "))
                return value
        raise AssertionError("the stream ended")

    return await asyncio.wait_for(next_one(), 20)


def test_a_page_hears_everything_first_and_then_what_changes(backend: MemoryBackend) -> None:
    async def life() -> None:
        hub = Hub(backend, **QUICK)
        hub.start()
        stream = hub.stream()
        first = await heard(stream, "snapshot")
        assert [row["node_id"] for row in first["nodes"]] == ["aaaa1111", "bbbb2222"]
        assert first["virtual_clusters"][0]["total"] == {"CPU": 8}
        await asyncio.to_thread(backend.ask, calls.LabelNode("aaaa1111", (("zone", "z"),), []))
        while not (change := await heard(stream, "changes")).get("nodes"):
            pass
        assert [row["labels"]["zone"] for row in change["nodes"]["changed"]] == ["z"]
        backend.port.leave("bbbb2222")
        while (change := await heard(stream, "changes")).get("nodes", {}).get("gone") != ["bbbb2222"]:
            pass
        hub.stop()

    asyncio.run(life())


def test_all_pages_share_one_look_and_nobody_looks_for_nobody(backend: MemoryBackend) -> None:
    async def life() -> None:
        hub = Hub(backend, look_seconds=0.1, idle_seconds=60)
        hub.start()
        streams = [hub.stream() for _ in range(50)]
        await asyncio.gather(*(heard(stream, "snapshot") for stream in streams))
        before, began = backend.asked.count("GetOverview"), time.monotonic()
        while (looks := backend.asked.count("GetOverview") - before) < 3 and time.monotonic() - began < 30:
            await asyncio.sleep(0.01)
        assert 3 <= looks <= (time.monotonic() - began) / 0.1 + 2
        assert hub.pages == 50
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        assert hub.pages == 0
        hub.wake()  # one more look, and then a minute of none
        before = backend.asked.count("GetOverview")
        await asyncio.sleep(1)
        assert backend.asked.count("GetOverview") - before <= 2
        hub.stop()

    asyncio.run(life())


def test_pages_hear_that_the_controller_is_away_and_that_it_is_back(backend: MemoryBackend) -> None:
    async def life() -> None:
        hub = Hub(backend, **QUICK)
        hub.start()
        stream = hub.stream()
        assert (await heard(stream, "state"))["state"] == "here"
        backend.away = True
        away = await heard(stream, "state")
        assert (away["state"], "no controller" in away["message"]) == ("away", True)
        backend.away = False
        assert (await heard(stream, "state"))["state"] == "here"
        hub.stop()

    asyncio.run(life())


def test_a_controller_that_does_not_answer_is_away(backend: MemoryBackend) -> None:
    async def life() -> None:
        hub = Hub(backend, **QUICK)
        hub.start()
        stream = hub.stream()
        await heard(stream, "snapshot")
        backend.engine._lock.acquire()
        try:
            while (await heard(stream, "state"))["state"] != "away":
                pass
        finally:
            backend.engine._lock.release()
        assert (await heard(stream, "state"))["state"] == "here"
        hub.stop()

    asyncio.run(life())


def test_a_page_that_does_not_keep_up_is_told_everything_anew(backend: MemoryBackend) -> None:
    async def life() -> None:
        hub = Hub(backend, **QUICK)
        hub.start()
        stream = hub.stream()
        await heard(stream, "snapshot")
        page = next(iter(hub._pages))
        for number in range(30):
            await asyncio.to_thread(backend.ask, calls.LabelNode("aaaa1111", (("n", str(number)),), []))
            hub.wake()
            await asyncio.sleep(0.12)
            if page.behind:
                break
        assert page.behind
        again = await heard(stream, "snapshot")
        assert again["nodes"][0]["labels"]["n"] == str(number)
        hub.stop()

    asyncio.run(life())


def test_the_history_keeps_fifteen_minutes_and_what_was_not_there_then() -> None:
    history = History()
    for second in range(0, 2000, 5):
        row = {"cluster_id": "vc1", "used": {"CPU": second}, "min": {}, "total": {"CPU": second}, "max": {"CPU": 9}}
        history.add(second, [row] if second >= 1500 else [])
    found = history.to_dict()
    assert (found["times"][0], found["times"][-1], len(found["times"])) == (1095, 1995, 181)
    line = found["clusters"]["vc1"]["CPU"]["used"]
    assert (line[0], line[-1], len(line)) == (None, 1995, 181)
    history.add(1996, [])
    assert history.to_dict()["times"][-1] == 1995  # not worth drawing
