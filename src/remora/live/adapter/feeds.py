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
_BATCH = 1_000

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
        # Here: gRPC and these modules are needed in the controller only, and workers import this package.
        from ray._private import gcs_pubsub

        kinds = (
            gcs_pubsub.GcsAioNodeInfoSubscriber,
            gcs_pubsub.GcsAioActorSubscriber,
            gcs_pubsub.GcsAioJobSubscriber,
            gcs_pubsub.GcsAioWorkerDeltaSubscriber,
        )
        following = [asyncio.ensure_future(self._follow(kind)) for kind in kinds]
        await self._stopped.wait()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    async def _follow(self, kind: Any) -> None:
        while True:
            try:
                feed = kind(address=self._address)
                await feed.subscribe()
                self._wake(None)  # what happened before we listened
                while batch := await feed.poll(batch_size=_BATCH):
                    for key, message in batch:
                        self._wake(messages.told(key.hex(), message))
            except Exception:  # noqa: BLE001 - GCS may be away for a while; the rounds go on meanwhile
                _log.info("a feed of GCS broke; subscribing again", exc_info=True)
            await asyncio.sleep(_RETRY_SECONDS)
