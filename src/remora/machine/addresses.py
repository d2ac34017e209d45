"""Which Ray a command talks to: the address, and where that came from. No Ray is needed to say so.

In this order: what was typed, ``RAY_ADDRESS``, the cluster of ``remora up``, and the Ray that runs on this machine, by the rule
of Ray itself: the one that ``ray start`` began last, else any.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from remora.errors import InvalidInputError
from remora.machine.state import running_address

ADDRESS = "RAY_ADDRESS"
AUTO = "auto"

_RAYLET = "raylet"
_FLAG = "--gcs-address="
_REACH_SECONDS = 3
_EXAMPLE = "--address 10.0.0.1:6379"


@dataclass(frozen=True)
class Target:
    """The address of a Ray's GCS, and where it was found."""

    address: str
    source: str

    @property
    def line(self) -> str:
        """What a command says first."""
        return f"Ray at {self.address} ({self.source})"

    def to_dict(self) -> dict[str, str]:
        return {"address": self.address, "from": self.source}


def find_target(given: str | None, environ: Mapping[str, str], *, changes: bool = False) -> Target:
    """Return which Ray is meant, one that answers. A command that ``changes`` something does not guess among several."""
    target = named_target(given, environ)
    if target is None:
        running = running_rays()
        target = _by_default(environ, running)
        if target is None:
            raise no_cluster(None)
        if changes and len(running) > 1:
            listed = ", ".join(sorted(running))
            raise InvalidInputError(
                f"several Rays run on this machine ({listed}) and none is named: say which one to change, for example "
                f"--address {min(running)}, or set {ADDRESS}"
            )
    check_address(target.address)
    reach(target.address)
    return target


def named_target(given: str | None, environ: Mapping[str, str]) -> Target | None:
    """Return the Ray that was named; None where the one of this machine is meant."""
    if given is not None and given != AUTO:
        return Target(given, "--address")
    found = environ.get(ADDRESS)
    return Target(found, f"from {ADDRESS}") if given is None and found and found != AUTO else None


def running_rays() -> list[str]:
    """Return the addresses of all Rays that have a node on this machine."""
    return _addresses(process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))


def check_address(address: str) -> None:
    """Raise for what is no address of a GCS: Ray Client's and the dashboard's look like one."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "ray":
        raise InvalidInputError(
            f"the address {address!r} is one of Ray Client, which Remora can't work through: use the address of the GCS, for "
            f"example {_EXAMPLE}, on a machine that reaches it; or 'remora job submit'"
        )
    if separator:
        host = rest.split("/")[0].rpartition(":")[0] or "10.0.0.1"
        raise InvalidInputError(f"the address {address!r} is a web server's, not a GCS's: for example --address {host}:6379")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInputError(f"the address {address!r} is not HOST:PORT; for example {_EXAMPLE}")


def reach(address: str) -> None:
    """Raise unless somebody listens there: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, ValueError, OverflowError):
        raise no_cluster(address) from None


def no_cluster(address: str | None) -> InvalidInputError:
    where = f"at {address}" if address else "here"
    return InvalidInputError(f"no Ray cluster answers {where}: start one, or give --address, for example 10.0.0.1:6379")


def _by_default(environ: Mapping[str, str], running: list[str]) -> Target | None:
    own = running_address(environ)
    if own is not None:
        return Target(own, "from 'remora up'")
    latest = _latest(environ)
    if latest is not None and (latest in running or not running):
        others = f", of {len(running)} Rays on this machine" if len(running) > 1 else ""
        return Target(latest, f"what 'ray start' began last here{others}")
    if not running:
        return None
    return Target(running[0], "runs here" if len(running) == 1 else f"the first of {len(running)} Rays on this machine")


def _latest(environ: Mapping[str, str]) -> str | None:
    """Return what ``ray start`` has written down last, as Ray reads it."""
    try:
        text = Path(environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text.strip() or None


def _addresses(command_lines: Iterable[list[str] | None]) -> list[str]:
    found: dict[str, None] = {}
    for words in command_lines:
        if words and os.path.basename(words[0]) == _RAYLET:  # noqa: PTH119 - of a thousand processes, each second
            found.update(dict.fromkeys(word.removeprefix(_FLAG) for word in words if word.startswith(_FLAG)))
    return list(found)
