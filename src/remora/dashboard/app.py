"""The app: routes behind the guard, and the poller that lives as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

import remora
from remora.dashboard import cluster_routes, looking_routes, node_routes, page_routes, problems
from remora.dashboard.backend import Backend
from remora.dashboard.guarding import App, Guard, Rules
from remora.dashboard.hub import Hub
from remora.dashboard.repeating import Repeats
from remora.dashboard.rest_models import Problem
from remora.dashboard.routing import Dashboard

_ABOUT = """Nodes with their labels and taints, virtual clusters, the queue, what waits and why, and what happened.

Errors are `application/problem+json`. Every change takes a `reason` and an `Idempotency-Key`, and the journal says who did what
from where. Where Ray's token authentication is on, send its token: `Authorization: Bearer TOKEN`."""


def build(backend: Backend, rules: Rules | None = None, hub: Hub | None = None) -> App:
    """Return the dashboard as an ASGI app; whoever runs it chooses where it listens."""
    dashboard = Dashboard(backend, rules or Rules(), hub or Hub(backend), Repeats())
    return Guard(api(dashboard), dashboard.rules)


def api(dashboard: Dashboard) -> FastAPI:
    """Return the routes, without what guards them."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        dashboard.hub.start()
        try:
            yield
        finally:
            dashboard.hub.stop()

    app = FastAPI(
        title="Remora",
        version=remora.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.dashboard = dashboard
    problems.install(app)
    for router in (page_routes.router, node_routes.router, cluster_routes.router, looking_routes.router):
        app.include_router(router)
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        parts = schema.setdefault("components", {}).setdefault("schemas", {})
        parts.setdefault("Problem", Problem.model_json_schema(ref_template="#/components/schemas/{model}"))
        for name in ("HTTPValidationError", "ValidationError"):
            parts.pop(name, None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
