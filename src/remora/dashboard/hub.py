"""One poller for all pages: it looks while anybody does, and tells each page what has changed.

While nobody looks it asks once in a while, for the history. However much there is to say, it keeps the controller busy for no
more than a fraction of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from remora.dashboard.backend import Backend
from remora.dashboard.recent import History
from remora.errors import RemoraError
from remora.wire.calls import GetOverview
from remora.wire.fences import ROOT

LOOK_SECONDS = 1.0
IDLE_SECONDS = 30.0
MOST_PAGES = 500

_FRACTION = 20
"""A look is followed by a pause of so many times as long as it took."""

_MOST_PAUSE = 5.0
_SLOW_SECONDS = 2.0
_HEARTBEAT_SECONDS = 15.0
_MOST_EVENTS = 500
_MOST_QUEUED = 8

_log = logging.getLogger(__name__)
_json = msgspec.json.Encoder()


class Page:
    """One open page, and what it has yet to be told. One that does not keep up is told everything anew."""

    def __init__(self) -> None:
        self.queue: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.behind = False


class Hub:
    """Looks from a thread of its own, and tells pages in the loop of the server."""

    def __init__(self, backend: Backend, *, look_seconds: float = LOOK_SECONDS, idle_seconds: float = IDLE_SECONDS) -> None:
        self.history = History()
        self.looks = 0
        self._backend = backend
        self._look_seconds = look_seconds
        self._idle_seconds = idle_seconds
        self._pages: set[Page] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._awake = threading.Event()
        self._stopped = False
        self._asked_at: float | None = None
        self._took = 0.0
        self._failure = ""
        self._lost_at: float | None = None
        self._seen: dict[str, Any] | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._number = 0

    # The server's side

    def start(self) -> None:
        """Begin to look. Called in the loop of the server."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="remora-hub", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._awake.set()
        self._tell(None)

    def wake(self) -> None:
        """Something was just changed: look at once."""
        self._awake.set()

    @property
    def pages(self) -> int:
        """How many are open."""
        return len(self._pages)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events: everything first, then what changes, for as long as the page listens."""
        page = Page()
        self._pages.add(page)
        told_state = ""
        try:
            self._awake.set()  # what was seen may be old
            if self._seen is not None and not self.state()["message"]:
                yield self._snapshot()
            told_at = time.monotonic()
            while not self._stopped:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(page.news.wait(), 1.0)
                page.news.clear()
                if page.behind:
                    page.behind = False
                    page.queue.clear()
                    yield self._snapshot()
                    told_at = time.monotonic()
                while page.queue:
                    yield page.queue.popleft()
                    told_at = time.monotonic()
                state = self.state()
                if state["state"] != told_state:
                    told_state = state["state"]
                    yield _event("state", state)
                elif time.monotonic() - told_at > _HEARTBEAT_SECONDS:
                    told_at = time.monotonic()
                    yield b": still there\n\n"
        finally:
            self._pages.discard(page)

    def state(self) -> dict[str, Any]:
        """Return whether the controller answers, or since when it does not and why."""
        now = time.monotonic()
        slow = self._asked_at is not None and now - self._asked_at > _SLOW_SECONDS
        if not self._failure and not slow:
            return {"state": "here", "message": "", "seconds": 0}
        since = self._lost_at or self._asked_at or now
        what = self._failure or "the controller does not answer: it is being restarted, or its node is gone"
        return {"state": "away", "message": what, "seconds": round(now - since, 1)}

    # The poller's side

    def _run(self) -> None:
        while not self._stopped:
            self._look()
            often = max(self._look_seconds, min(self._took * _FRACTION, _MOST_PAUSE)) if not self._failure else 1.0
            pause = often if self._pages else self._idle_seconds
            began = time.monotonic()
            self._awake.wait(pause)
            self._awake.clear()
            # Whoever wakes us does not make us look more often than a few times a second.
            time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))

    def _look(self) -> None:
        self._asked_at = began = time.monotonic()
        try:
            found: dict[str, Any] = self._backend.ask(GetOverview(self._number))
        except RemoraError as error:
            self._failure, self._lost_at = str(error), self._lost_at or began
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
            _log.exception("the dashboard could not look")
            self._failure, self._lost_at = f"{type(error).__name__}: {error}", self._lost_at or began
        else:
            self._took = time.monotonic() - began
            self._failure, self._lost_at = "", None
            self.looks += 1
            self._take(found)
        finally:
            self._asked_at = None
        self._tell(None)

    def _take(self, found: dict[str, Any]) -> None:
        rows = {str(row["node_id"]): row for row in found["nodes"]}
        before, known = self._seen, self._nodes
        if found["events"] and found["events"][-1]["number"] <= self._number:
            self._events.clear()  # another journal
        self._events.extend(found["events"])
        self._number = int(found["number"])
        found["virtual_clusters"] = _with_use_of_root(found["virtual_clusters"], rows)
        self._seen, self._nodes = found, rows
        self.history.add(float(found["now"]), found["virtual_clusters"])
        if before is None:
            self._tell(self._snapshot())
            return
        changes: dict[str, Any] = {
            name: found.get(name)
            for name in ("waiting", "kinds_left_out", "set_aside", "generation", "machines")
            if found.get(name) != before.get(name)
        }
        for name, now, then in (
            ("nodes", rows, known),
            ("virtual_clusters", _by_id(found["virtual_clusters"]), _by_id(before["virtual_clusters"])),
        ):
            changed = [row for row_id, row in now.items() if then.get(row_id) != row]
            gone = [row_id for row_id in then if row_id not in now]
            if changed or gone:
                changes[name] = {"changed": changed, "gone": gone}
        if found["events"]:
            changes["events"] = found["events"]
        if changes:
            self._tell(_event("changes", {**changes, "number": self._number, "now": found["now"]}))

    def _snapshot(self) -> bytes:
        assert self._seen is not None
        return _event("snapshot", {**self._seen, "events": list(self._events)})

    def _tell(self, message: bytes | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it is just being closed
                self._loop.call_soon_threadsafe(self._deliver, message)

    def _deliver(self, message: bytes | None) -> None:
        for page in list(self._pages):
            if message is not None and not page.behind:
                page.queue.append(message)
                page.behind = len(page.queue) > _MOST_QUEUED
            page.news.set()


def _by_id(clusters: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(row["cluster_id"]): row for row in clusters}


def _with_use_of_root(clusters: list[dict[str, Any]], nodes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the clusters, with what is really used of all nodes as the use of the root: what it is shown otherwise counts what
    its clusters only have."""
    used: dict[str, float] = {}
    total: dict[str, float] = {}
    for row in nodes.values():
        for name, amount in row["used"].items():
            used[name] = used.get(name, 0.0) + amount
        for name, amount in row["total"].items():
            total[name] = total.get(name, 0.0) + amount
    own = {"used": used, "total": total, "nodes": [], "position": 0, "reason": "", "priority": 0}
    return [{**row, **own} if row["cluster_id"] == ROOT else row for row in clusters]


def _event(kind: str, value: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _json.encode(value) + b"\n\n"
