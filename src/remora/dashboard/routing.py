"""What all routes have in common: whom they ask, who asks them, and how a value becomes an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Request
from starlette.responses import Response

from remora.dashboard.backend import Backend
from remora.dashboard.guarding import Rules
from remora.dashboard.hub import Hub
from remora.dashboard.repeating import Repeats
from remora.dashboard.rest_models import Problem
from remora.protocol.changes import said_by
from remora.wire.calls import By, FindNode

_json = msgspec.json.Encoder()


@dataclass
class Dashboard:
    """One server: whom it asks, what it lets through, and what it remembers."""

    backend: Backend
    rules: Rules
    hub: Hub
    repeats: Repeats


@dataclass
class Asked:
    """Who asks for a change: the header fields and the reason that each of them takes."""

    dashboard: Dashboard
    by: By
    key: str | None
    place: str

    def once(self, body: Any, work: Callable[[str], Any]) -> Response:
        """Make a change, once for each idempotency key, and answer with what it returns. ``work`` is given an id for it."""

        def made(ask: str) -> Response:
            value = work(ask)
            self.dashboard.hub.wake()
            return answer(value)

        return self.dashboard.repeats.once(self.key, f"{self.place}\n{_json.encode(body).decode()}", made)


def dashboard_of(request: Request) -> Dashboard:
    found: Dashboard = request.app.state.dashboard
    return found


def asked(
    request: Request,
    reason: Annotated[str, Query(max_length=500, description="Why, for the journal.")] = "",
    idempotency_key: Annotated[
        str | None, Header(max_length=200, min_length=1, description="A change that is sent twice with one key is made once.")
    ] = None,
    x_remora_user: Annotated[str, Header(max_length=100, description="Your name, for the journal. Nobody checks it.")] = "",
    x_remora_page: Annotated[str, Header(max_length=10, include_in_schema=False)] = "",
) -> Asked:
    """Return who asks for a change, from where and why."""
    client = request.client.host if request.client is not None else ""
    by = said_by(x_remora_user, "the page" if x_remora_page else "REST", client, reason)
    return Asked(dashboard_of(request), by, idempotency_key, f"{request.method} {request.url.path}")


def node_of(dashboard: Dashboard, node_id: str) -> str:
    """Return the whole id of a node, of which the beginning may be given."""
    found: str = dashboard.backend.ask(FindNode(node_id, None))
    return found


def answer(value: Any, status: int = 200) -> Response:
    """Return a value as JSON. It is not checked against its model on the way: the tests do that."""
    return Response(_json.encode(value), status, media_type="application/json")


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the errors that a route may answer with."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    names = {404: "There is no such thing", 409: "It contradicts what is there", 422: "This input cannot be right"}
    always = {401: "A token is needed", 403: "Not allowed", 413: "The body is too large", 503: "The controller is away"}
    return {
        status: {"description": text, "content": content}
        for status, text in {**names, **always, 502: "The controller failed over this"}.items()
        if status in statuses or status in always or status == 502
    }


PROBLEMS = Problem
