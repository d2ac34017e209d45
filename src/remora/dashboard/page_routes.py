"""The page itself, its documentation, how one signs in, and whether all is well."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib.resources import files
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

import remora
from remora.dashboard.guarding import COOKIE, HEADERS, HEALTH, SIGN_IN
from remora.dashboard.rest_models import About, Health
from remora.dashboard.routing import Dashboard, answer, dashboard_of

router = APIRouter()

Here = Annotated[Dashboard, Depends(dashboard_of)]

_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "json": "application/json"}
_MONTH = 30 * 24 * 3600

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0;
background:#f6f7f9;color:#1b2430}form{display:grid;gap:.75rem;width:min(22rem,90vw)}input,button{font:inherit;padding:.6rem;
border:1px solid #687587;border-radius:.5rem}button{background:#0b5cad;color:#fff;border:0}p{margin:0}
@media(prefers-color-scheme:dark){body{background:#12171d;color:#e8edf2}input{background:#1c232c;color:inherit}}"""
_SIGN_IN = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Remora: sign in</title>
<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><main>
<form method="post" action="{SIGN_IN}"><h1>Remora</h1>
<p>This cluster asks for Ray's token: <code>ray get-auth-token</code> prints it.</p>
%s<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></main></body></html>"""
_WRONG = '<p role="alert"><strong>That is not the token of this cluster.</strong></p>'
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def _read() -> dict[str, tuple[bytes, str, str]]:
    """Return every file of the page with its kind and a tag that changes with it."""
    found = {}
    for file in files("remora.dashboard").joinpath("page").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None and file.is_file():
            data = file.read_bytes()
            found[file.name] = data, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return found


_FILES = _read()


@router.get("/", include_in_schema=False)
def index(request: Request) -> Response:
    return _file(request, "index.html")


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> Response:
    return _file(request, "docs.html")


@router.get("/page/{name}", include_in_schema=False)
def asset(request: Request, name: str) -> Response:
    return _file(request, name)


@router.get("/favicon.ico", include_in_schema=False)
def icon(request: Request) -> Response:
    return _file(request, "icon.svg")


@router.get("/about", tags=["looking"], responses={200: {"model": About}})
def about(dashboard: Here) -> Response:
    """Return what a page has to know first."""
    rules = dashboard.rules
    return answer(
        {
            "version": remora.__version__,
            "read_only": rules.read_only,
            "insecure": rules.insecure,
            "signs_in": rules.is_right_token is not None,
        }
    )


@router.get(HEALTH, tags=["looking"], responses={200: {"model": Health}})
async def health(dashboard: Here) -> Response:
    """Say whether this server runs, and whether the controller answered it last. Needs no token, and asks nobody."""
    state = dashboard.hub.state()
    return answer({"state": state["state"], "message": state["message"] if dashboard.rules.is_right_token is None else ""})


@router.get(SIGN_IN, include_in_schema=False)
async def form(dashboard: Here) -> Response:
    return _form(200, "") if dashboard.rules.is_right_token is not None else _home()


@router.post(SIGN_IN, include_in_schema=False)
async def sign_in(request: Request, dashboard: Here) -> Response:
    """Set the cookie that Ray's own dashboard sets, for whoever has the token."""
    if dashboard.rules.is_right_token is None:
        return _home()
    token = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0].strip()
    if not token.isascii() or not token.isprintable() or not dashboard.rules.is_right_token(f"Bearer {token}"):
        return _form(403, _WRONG)
    response = _home()
    is_secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, max_age=_MONTH, path="/", httponly=True, samesite="strict", secure=is_secure)
    return response


def _file(request: Request, name: str) -> Response:
    if name not in _FILES:
        return Response("there is no such file", 404, media_type="text/plain")
    data, kind, tag = _FILES[name]
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


def _home() -> Response:
    return Response(status_code=303, headers={"Location": "/"})


def _form(status: int, message: str) -> Response:
    policy = HEADERS["Content-Security-Policy"].replace("style-src 'self'", f"style-src 'sha256-{_STYLE_HASH}'")
    return Response(_SIGN_IN % message, status, {"Content-Security-Policy": policy}, "text/html")
