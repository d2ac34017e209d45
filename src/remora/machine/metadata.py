"""What the cloud says about this machine: GCE, AWS and Azure are asked at once, for one second in all, and may say anything."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPDefaultErrorHandler, HTTPErrorProcessor, HTTPHandler, OpenerDirector, Request

from remora.errors import InvalidLabelError
from remora.machine.label_keys import MARKET_TYPE, ON_DEMAND, SPOT, ZONE
from remora.model.labels import validate_label_value

SWITCH = "REMORA_METADATA"
DEFAULT_BASE = "http://169.254.169.254"
TOTAL_SECONDS = 1.0
# From within a container the token's answer may never come, while version 1 answers.
_TOKEN_SECONDS = 0.4
_MOST_BYTES = 65_536

_Pairs = Iterator[tuple[str, str]]


def ask_clouds(wanted: Iterable[str], environ: Mapping[str, str], seconds: float = TOTAL_SECONDS) -> dict[str, str]:
    """The wanted labels as far as they were learned in time. Never raises, and never takes longer.

    ``REMORA_METADATA=off`` asks nobody; ``REMORA_METADATA_GCE``, ``_AWS`` and ``_AZURE`` are the servers to ask instead.
    """
    if environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return {}
    open_labels, found = set(wanted), dict[str, str]()
    answers: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
    deadline = time.monotonic() + seconds
    for name, ask in _CLOUDS.items():
        server = _Server(environ.get(f"{SWITCH}_{name}", DEFAULT_BASE), deadline)
        threading.Thread(target=_collect, args=(ask, server, answers), daemon=True).start()
    silent = len(_CLOUDS)
    while silent and open_labels:
        try:
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if answer is None:
            silent -= 1
        elif answer[0] in open_labels:
            open_labels.discard(answer[0])
            found.update([answer])
    return found


class _Server:
    """A metadata server: plain http, no proxy, no redirects, small answers."""

    def __init__(self, base: str, deadline: float) -> None:
        self._base = base.rstrip("/")
        self._deadline = deadline
        self._opener = OpenerDirector()
        for handler in (HTTPHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    def text(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        signed: tuple[str, str] | None = None,
        seconds: float = TOTAL_SECONDS,
    ) -> str | None:
        """The body, or None for anything that is not a short good answer. ``signed`` is a header that it must carry."""
        left = min(seconds, self._deadline - time.monotonic())
        if left <= 0 or not self._base.startswith("http://"):
            return None
        try:
            request = Request(self._base + path, headers=dict(headers), method=method)
            with self._opener.open(request, timeout=left) as answer:
                body: bytes = answer.read(_MOST_BYTES + 1)
                trusted = signed is None or answer.headers.get(signed[0]) == signed[1]
        except HTTPError as error:
            error.close()
            return None
        except (OSError, ValueError, HTTPException):
            return None
        return body.decode("utf-8", "replace").strip() if trusted and len(body) <= _MOST_BYTES else None


def _gce(server: _Server) -> _Pairs:
    ask, signed = {"Metadata-Flavor": "Google"}, ("Metadata-Flavor", "Google")
    zone = server.text("/computeMetadata/v1/instance/zone", ask, signed=signed)
    if zone:
        yield ZONE, zone.rpartition("/")[2]
        # Spot machines answer TRUE here too.
        preemptible = server.text("/computeMetadata/v1/instance/scheduling/preemptible", ask, signed=signed)
        if preemptible in ("TRUE", "FALSE"):
            yield MARKET_TYPE, SPOT if preemptible == "TRUE" else ON_DEMAND


def _aws(server: _Server) -> _Pairs:
    asking = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = server.text("/latest/api/token", asking, method="PUT", seconds=_TOKEN_SECONDS)
    headers = {"X-aws-ec2-metadata-token": token} if token else {}
    zone = server.text("/latest/meta-data/placement/availability-zone", headers)
    if zone:
        yield ZONE, zone
        cycle = server.text("/latest/meta-data/instance-life-cycle", headers)
        if cycle in ("spot", "on-demand", "scheduled", "capacity-block"):
            yield MARKET_TYPE, SPOT if cycle == "spot" else ON_DEMAND


def _azure(server: _Server) -> _Pairs:
    compute = _mapping(server.text("/metadata/instance/compute?api-version=2021-02-01", {"Metadata": "true"}))
    location, zone, priority = (compute.get(key) for key in ("location", "zone", "priority"))
    if not isinstance(location, str) or not location:
        return
    if isinstance(zone, str) and zone:
        # As AKS spells it in topology.kubernetes.io/zone: the bare number means nothing outside its region.
        yield ZONE, f"{location}-{zone}"
    if isinstance(priority, str) and priority.lower() in ("spot", "low", "regular", ""):
        yield MARKET_TYPE, ON_DEMAND if priority.lower() in ("regular", "") else SPOT


_CLOUDS: dict[str, Callable[[_Server], _Pairs]] = {"GCE": _gce, "AWS": _aws, "AZURE": _azure}


def _collect(ask: Callable[[_Server], _Pairs], server: _Server, answers: queue.SimpleQueue[tuple[str, str] | None]) -> None:
    try:
        for key, value in ask(server):
            if _is_value(value):
                answers.put((key, value))
    finally:
        answers.put(None)


def _mapping(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_value(value: str) -> bool:
    try:
        return bool(validate_label_value(value))
    except InvalidLabelError:
        return False
