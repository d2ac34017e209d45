"""Processes that were started before: whether they are still the same ones, and how they are stopped without a mistake.

A pid alone says nothing, it is given out again; a pid with its start time names one process. The kernel does not give out a
pid while it names a session, so one known member that is alive proves that the whole session is still the same.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    """One process of this boot, now or in the past; ``started`` in hundredths of a second since then."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        return process(self.pid) == self


@dataclass(frozen=True)
class Session:
    """A process that opened a session of its own, and others that were seen in it."""

    leader: Process
    members: tuple[Process, ...] = ()

    def living(self, now: Mapping[int, list[Process]] | None = None) -> list[Process]:
        """Everything that runs in it now; nothing when it cannot be told any more that it is the same session."""
        if not any(known.is_alive() for known in (self.leader, *self.members)):
            return []
        return (by_session() if now is None else now).get(self.leader.pid, [])


def process(pid: int) -> Process | None:
    """The process that has this pid now; a zombie is none."""
    try:
        return _identified(psutil.Process(pid))
    except psutil.Error:
        return None


def by_session() -> dict[int, list[Process]]:
    """Everything that runs on this machine, by the session it is in."""
    found: dict[int, list[Process]] = {}
    for pid in psutil.pids():
        seen = process(pid)
        try:
            session = os.getsid(pid)
        except OSError:  # it has ended meanwhile
            continue
        if seen is not None and seen.is_alive():  # else the session may be that of another with the same pid
            found.setdefault(session, []).append(seen)
    return found


def boot_id() -> str:
    """Another after each boot: start times count from it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def stop(sessions: Sequence[Session], patience: float) -> list[Process]:
    """Ask the leaders to end, then end whatever is left of their sessions. Returns what even that did not end."""
    sessions = seen_now(sessions)
    _signal([session.leader for session in sessions], signal.SIGTERM)
    deadline = time.monotonic() + patience
    while any(session.leader.is_alive() for session in sessions) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        sessions = seen_now(sessions)
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := _members(sessions)) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        sessions = seen_now(sessions)
    return left


def seen_now(sessions: Iterable[Session]) -> list[Session]:
    """The sessions with the members that they have now, which keep them known when their leaders are gone."""
    now = by_session()
    return [Session(session.leader, tuple(session.living(now))) for session in sessions]


def _members(sessions: Iterable[Session]) -> list[Process]:
    return [member for session in sessions for member in session.members]


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for each in processes:
        if each.is_alive():
            try:
                os.kill(each.pid, number)
            except ProcessLookupError:
                continue


def _identified(found: psutil.Process) -> Process | None:
    # Not by the time of day, which psutil adds: that of a process changes whenever somebody sets the clock.
    with found.oneshot():
        started = round((found.create_time() - psutil.boot_time()) * 100)
        return None if found.status() in _ENDED else Process(found.pid, started)
