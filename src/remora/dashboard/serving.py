"""Run the dashboard: on loopback unless told otherwise, and on no other address without a token or a word."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import uvicorn

from remora.dashboard.app import build
from remora.dashboard.backend import LiveBackend
from remora.dashboard.guarding import Rules, is_loopback
from remora.dashboard.hub import Hub
from remora.errors import InvalidInputError

PORT = 8270


@dataclass(frozen=True)
class Where:
    """What ``remora dashboard`` was told."""

    host: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()
    read_only: bool = False
    insecure: bool = False


def rules_for(where: Where, is_token_needed: bool, is_right_token: Callable[[str], bool]) -> Rules:
    """Return what is let through; raise where everybody on the network could change the cluster."""
    open_ = not is_loopback(where.host) and not is_token_needed
    if open_ and not where.insecure:
        raise InvalidInputError(
            f"--host {where.host} would let everybody who reaches it change this cluster, because Ray's token authentication "
            "is off: turn it on (RAY_AUTH_MODE=token), say --read-only and --insecure, or forward a port; for example ssh -L "
            f"{where.port}:localhost:{where.port} HEAD"
        )
    return Rules(
        host=where.host,
        hosts=frozenset(where.hosts),
        is_right_token=is_right_token if is_token_needed else None,
        read_only=where.read_only,
        insecure=open_,
    )


def bind(where: Where) -> socket.socket:
    """Return a socket that listens there; port 0 takes one that is free."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((where.host, where.port))
    except OSError as error:
        found.close()
        raise InvalidInputError(
            f"the dashboard cannot listen at {where.host}:{where.port} ({error.strerror}): say another; for example --port 0"
        ) from None
    return found


def take_over(number: int) -> socket.socket:
    """Return a socket that whoever started this process has bound."""
    return socket.socket(fileno=number)


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(bound: socket.socket, rules: Rules) -> None:
    """Serve until a signal ends it."""
    backend = LiveBackend()
    hub = Hub(backend)
    config = uvicorn.Config(
        build(backend, rules, hub),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 * 1024,
        limit_concurrency=1000,
        ws="none",
    )
    _Server(config, hub).run(sockets=[bound])


class _Server(uvicorn.Server):
    """One that ends the streams of open pages first: they would hold it up."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hub.stop()
        super().handle_exit(sig, frame)
