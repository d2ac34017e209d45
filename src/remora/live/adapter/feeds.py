"""What GCS publishes about nodes, actors, jobs and worker processes: which actor changed, or that something did.

A lost message costs a moment, never the truth: after every break, and once in a while anyway, the tables are read whole.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from remora.live.adapter import messages
from remora.port.contract import Work

_RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Feeds:
    """One thread with the subscriptions, until it is stopped."""

    def __init__(self, gcs_address: str, wake: Callable[[Work | None], None]) -> None:
        self._address = gcs_address
        self._wake = wake
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        threading.Thread(target=self._run, name="feeds", daemon=True).start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._follow_all())

    async def _follow_all(self) -> None:
        following = [asyncio.ensure_future(self._follow(channel)) for channel in messages.CHANNELS]
        await self._stopped.wait()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    async def _follow(self, channel: int) -> None:
        while True:
            try:
                feed = subscriber(channel, self._address)
                await feed.subscribe()
                self._wake(None)  # what happened before we listened
                while await _has_more(feed):
                    self._wake(messages.told(feed._queue.popleft()))
            except Exception:  # noqa: BLE001 - GCS may be away for a while; the rounds go on meanwhile
                _log.info("a feed of GCS broke; subscribing again", exc_info=True)
            await asyncio.sleep(_RETRY_SECONDS)


def subscriber(channel: int, gcs_address: str) -> Any:
    """Return what reads a channel. Ray has a class for each of ours from 2.58 on. GCS published them before, and the
    base of these classes reads any."""
    # Here: gRPC and these modules are needed in the controller only, and workers import this package.
    from ray._private import gcs_pubsub

    return gcs_pubsub._AioSubscriber(channel, address=gcs_address)


async def _has_more(feed: Any) -> bool:
    """Wait for what it tells next; False where it ended without, as it does when GCS goes away."""
    await feed._poll()  # at once, while there is something
    return bool(feed._queue)
