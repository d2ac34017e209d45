"""Errors as RFC 9457 has them: ``application/problem+json`` with what was given, the rule, and an example of what is right."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from remora.errors import ConflictError, ControllerAwayError, InvalidInputError, RemoraError, UnknownNameError

PROBLEM = "application/problem+json"

_TITLES = {
    400: "This request cannot be read",
    401: "A token is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not known here",
    409: "This contradicts what is there",
    413: "The body is too large",
    422: "This input cannot be right",
    431: "The headers are too large",
    502: "The controller failed over this",
    503: "The controller is away",
}
_EXAMPLES = {
    401: "Authorization: Bearer TOKEN, with the token that `ray get-auth-token` prints",
    404: "GET /nodes lists the nodes, GET /clusters the virtual clusters",
    503: "ask again in a moment; `remora status` says whether it is back",
}


def problem(status: int, detail: str, value: Any = None, headers: dict[str, str] | None = None, example: str = "") -> Response:
    """Return an answer that says what is wrong. ``detail`` names the value and the rule; what follows ``for example`` in it is
    the example."""
    rule, _, found = detail.partition("for example ")
    body: dict[str, Any] = {"type": "about:blank", "title": _TITLES.get(status, "Something is wrong"), "status": status}
    body |= {"detail": detail, "rule": rule.strip(" ;,:"), "example": example or found or _EXAMPLES.get(status, "")}
    if value is not None:
        body["value"] = value
    return Response(msgspec.json.encode(body), status, headers, PROBLEM)


def of_error(error: RemoraError, value: Any = None) -> Response:
    """Return the answer for an error of ours."""
    match error:
        case UnknownNameError():
            status = 404
        case ConflictError():
            status = 409
        case InvalidInputError():
            status = 422
        case ControllerAwayError():
            return problem(503, str(error), value, {"Retry-After": "1"})
        case _:
            status = 502
    return problem(status, str(error), value)


def install(app: FastAPI) -> None:
    """Answer every error of the app so."""

    @app.exception_handler(RemoraError)
    async def ours(request: Request, error: RemoraError) -> Response:
        return of_error(error, dict(request.path_params) or None)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        return problem(422, f"{where}: {first['msg']}; for example see /docs", _plain(first.get("input")))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # a body that is no JSON is bad input as any other
            return problem(422, f"{error.detail}: it is no JSON; for example send {{}} with Content-Type: application/json")
        if error.status_code == 405:
            error.headers = {"Allow": ", ".join(_methods(app, request.scope))}
        return problem(error.status_code, str(error.detail), request.url.path, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        return problem(500, f"the dashboard failed over this: {type(error).__name__}; its log says more")


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """Return every method that is known at a path: each has a route of its own."""
    found: set[str] = set()
    for route in app.routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


def _plain(value: Any) -> Any:
    """Return what was given as far as JSON can say it, and no more of it than one wants to read."""
    if isinstance(value, bytes):
        return value[:200].decode(errors="replace")
    if isinstance(value, str):
        return value[:200]
    return value if isinstance(value, int | float | bool) else None if value is None else str(value)[:200]
