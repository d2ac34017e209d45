"""What every request has to pass before anything looks at it: where it came to, from where, how large it is, and whose it is.

A page of somebody else's in the user's browser can send requests here, also by a name of its own that it lets point to this
machine: so the names in ``Host`` and ``Origin`` have to be ours. Everything but the health check and the form that asks for the
token needs Ray's own token, where Ray's token authentication is on.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from remora.dashboard.problems import problem

MOST_BYTES = 64 * 1024
COOKIE = "ray-authentication-token"
HEALTH, SIGN_IN = "/health", "/sign-in"
SAFE = ("GET", "HEAD")

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_READING_POSTS = ("/nodes/preview/",)
_TOO_LARGE = f"the body is larger than {MOST_BYTES:,} bytes"
_MOST_HEADERS = 16 * 1024

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, the form that signs in would come from nowhere
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Rules:
    """``host`` is what the server is bound to; ``hosts`` are other names that it is reached by. ``is_right_token`` judges
    ``Bearer TOKEN``; None where no token is needed."""

    host: str = "127.0.0.1"
    hosts: frozenset[str] = frozenset()
    is_right_token: Callable[[str], bool] | None = None
    read_only: bool = False
    insecure: bool = False
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        own = () if is_loopback(self.host) else (self.host, socket.gethostname(), socket.getfqdn())
        object.__setattr__(self, "names", frozenset(each.lower() for each in (*_LOOPBACK, *own, *self.hosts)))

    def knows(self, host: str) -> bool:
        """Return whether a request to this host may be meant for us. An address is no name that somebody could let point
        here."""
        name = _name(host)
        return name in self.names or (not is_loopback(self.host) and _is_address(name))


class TooLargeError(HTTPException):
    """More came than may."""

    def __init__(self) -> None:
        super().__init__(413, _TOO_LARGE)


class Guard:
    """The app behind the rules."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await refused(scope, receive, _with_headers(send))
            return
        began = False
        seen = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MOST_BYTES:
                raise TooLargeError
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal began
            began = True
            await _with_headers(send)(message)

        try:
            await self._app(scope, limited, sending)
        except TooLargeError:
            if not began:
                await _too_large()(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        rules, path, method = self._rules, str(scope["path"]), str(scope["method"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            return problem(431, f"the headers are larger than {_MOST_HEADERS:,} bytes")
        host = headers.get("host", "")
        if not rules.knows(host):
            known = ", ".join(sorted(rules.names))
            return problem(
                403,
                f"the host {host[:100]!r} is none of ours ({known}); for example say --allow-host {_name(host)[:100]}",
            )
        if not _is_from_here(headers, host, method):
            return problem(403, f"the request comes from another site, {headers.get('origin', '')[:100]!r}: only ours may ask")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return _too_large()
        if path == HEALTH or (path == SIGN_IN and method in ("GET", "HEAD", "POST")):
            return None
        refused = self._unknown(headers, path, method)
        if refused is not None:
            return refused
        if rules.read_only and method not in SAFE and not path.startswith(_READING_POSTS):
            return problem(403, "this dashboard was started with --read-only: it changes nothing")
        return None

    def _unknown(self, headers: Headers, path: str, method: str) -> Response | None:
        """Return what somebody is told who has no right token."""
        if self._rules.is_right_token is None:
            return None
        given = authorization(headers)
        if given and self._rules.is_right_token(given):
            return None
        if not given and method in SAFE and "text/html" in headers.get("accept", ""):
            return Response(status_code=303, headers={"Location": SIGN_IN})
        if not given:
            said = {"WWW-Authenticate": "Bearer"}
            return problem(401, "Ray's token authentication is on, and no token was given", headers=said)
        return problem(403, "the token is not that of this cluster; for example take what `ray get-auth-token` prints")


def authorization(headers: Headers) -> str:
    """Return ``Bearer TOKEN`` from where Ray's own dashboard takes it: two headers and a cookie."""
    given = headers.get("authorization", "") or headers.get("x-ray-authorization", "")
    if given:
        return given
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return f"Bearer {cookie.value}" if cookie is not None and cookie.value else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what is bound to a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_from_here(headers: Headers, host: str, method: str) -> bool:
    """Return whether a request comes from our own page, from a program, or is a link that somebody followed."""
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc.lower() == host.lower() if "//" in origin else False
    site = headers.get("sec-fetch-site", "none")
    followed = method in SAFE and headers.get("sec-fetch-mode") == "navigate"
    return site in ("none", "same-origin") or followed


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message.get("headers", ())}
            more: Iterable[tuple[str, str]] = HEADERS.items()
            added = [(name.lower().encode(), value.encode()) for name, value in more if name.lower().encode() not in there]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


def _too_large() -> Response:
    return problem(413, _TOO_LARGE, headers={"Connection": "close"})


def _name(host: str) -> str:
    """Return a host without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
