"""What may reach the dashboard, and what of it: each tried from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.served import MemoryBackend, served

from remora.dashboard.app import build
from remora.dashboard.guarding import COOKIE, MOST_BYTES, Rules
from remora.dashboard.serving import Where, rules_for
from remora.errors import InvalidInputError

TOKEN = "x" * 40
WITH_TOKEN = Rules(is_right_token=lambda header: header == f"Bearer {TOKEN}")


def client_for(backend: MemoryBackend, rules: Rules, base_url: str = "http://localhost:8270") -> TestClient:
    return TestClient(build(backend, rules), base_url=base_url)


@pytest.fixture
def closed(backend: MemoryBackend) -> Iterator[TestClient]:
    with client_for(backend, WITH_TOKEN) as made:
        yield made


# Names


@pytest.mark.parametrize("host", ["localhost", "localhost:8270", "127.0.0.1:8270", "[::1]:8270", "LOCALHOST"])
def test_our_own_names_are_let_in(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[::1",
        "a b",
        "localhost@evil.example",
    ],
)
@pytest.mark.parametrize("path", ["/", "/nodes", "/health", "/docs", "/page/app.js", "/stream"])
def test_another_name_that_leads_here_is_refused(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert "--allow-host" in answer.json()["detail"]


def test_further_names_and_addresses_are_let_in_where_they_are_meant(backend: MemoryBackend) -> None:
    with client_for(backend, Rules("0.0.0.0", frozenset({"remora.example.com"}))) as client:
        for host, status in (("remora.example.com", 200), ("10.2.3.4:8270", 200), ("evil.example", 403)):
            assert client.get("/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost:9999", "null", "http://localhost:8270.evil.example"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_pages_of_others_may_not_ask(client: TestClient, backend: MemoryBackend, origin: str, method: str) -> None:
    asked = len(backend.asked)
    answer = client.request(method, "/nodes/taints/aaaa", json={"k": "v"}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert "TaintNode" not in backend.asked[asked:]


def test_our_own_page_may_ask(client: TestClient) -> None:
    headers = {"Origin": "http://localhost:8270", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=headers).status_code == 200


def test_a_picture_in_a_page_of_others_is_not_answered_but_a_link_is(client: TestClient) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/nodes", headers={**cross, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/", headers={**cross, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert (
        client.post("/nodes/taints/aaaa", json={"k": "v"}, headers={**cross, "Sec-Fetch-Mode": "navigate"}).status_code == 403
    )


# Tokens


@pytest.mark.parametrize(
    "path", ["/nodes", "/stream", "/docs", "/openapi.json", "/page/app.js", "/about", "/history", "/nothing"]
)
def test_nothing_is_answered_without_the_token(closed: TestClient, path: str) -> None:
    answer = closed.get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert closed.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 403


def test_the_health_check_needs_no_token_and_says_nothing_else(closed: TestClient) -> None:
    answer = closed.get("/health").json()
    assert (sorted(answer), answer["message"]) == (["message", "state"], "")


@pytest.mark.parametrize("name", ["Authorization", "X-Ray-Authorization"])
def test_the_token_is_taken_from_the_headers_that_ray_takes_it_from(closed: TestClient, name: str) -> None:
    assert closed.get("/nodes", headers={name: f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_is_taken_from_the_cookie_of_rays_own_dashboard(closed: TestClient) -> None:
    assert closed.get("/nodes", headers={"Cookie": f"other=1; {COOKIE}={TOKEN}"}).status_code == 200
    assert closed.get("/nodes", headers={"Cookie": f"{COOKIE}=wrong"}).status_code == 403
    assert closed.get("/nodes", headers={"Cookie": "\x00;=;;"}).status_code == 401


def test_whoever_opens_the_page_is_asked_for_the_token_and_gets_a_cookie(closed: TestClient) -> None:
    answer = closed.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    form = closed.get("/sign-in")
    assert "script" not in form.text
    assert "unsafe-inline" not in form.headers["content-security-policy"]
    wrong = closed.post("/sign-in", data={"token": "wrong"}, follow_redirects=False)
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (403, False)
    right = closed.post("/sign-in", data={"token": TOKEN}, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"].lower()
    assert f"{COOKIE}={TOKEN}" in cookie
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert closed.get("/nodes").status_code == 200


# Where it listens


def test_beyond_this_machine_it_listens_only_with_a_token_or_a_word() -> None:
    with pytest.raises(InvalidInputError, match=r"would let everybody.*ssh -L 8270"):
        rules_for(Where("0.0.0.0"), False, lambda _: False)
    assert rules_for(Where("0.0.0.0", insecure=True), False, lambda _: False).insecure
    assert not rules_for(Where("0.0.0.0"), True, lambda _: False).insecure
    assert not rules_for(Where(), False, lambda _: False).insecure
    assert rules_for(Where(), True, lambda _: False).is_right_token is not None


def test_the_page_warns_where_everybody_may_change_the_cluster(backend: MemoryBackend) -> None:
    with client_for(backend, Rules("0.0.0.0", insecure=True)) as client:
        assert client.get("/about").json()["insecure"]


# Sizes


def test_a_body_that_is_too_large_is_refused(client: TestClient) -> None:
    assert client.post("/nodes/taints/aaaa", content=b"x" * (MOST_BYTES + 1)).status_code == 413
    assert client.post("/nodes/taints/aaaa", headers={"Content-Length": "-1"}, content=b"{}").status_code == 413


def test_a_body_that_does_not_say_how_large_it_is_is_refused_too(backend: MemoryBackend) -> None:
    with served(build(backend)) as address:
        answer = httpx2.post(f"{address}/nodes/taints/aaaa", content=(b"x" * 10_000 for _ in range(20)))
        assert answer.status_code == 413


def test_headers_that_are_too_large_are_refused(client: TestClient) -> None:
    assert client.get("/nodes", headers={"X-Long": "x" * 20_000}).status_code == 431


# Read only


def test_read_only_changes_nothing_and_previews(backend: MemoryBackend) -> None:
    with client_for(backend, Rules(read_only=True)) as client:
        for method, path in (
            ("POST", "/nodes/taints/aaaa"),
            ("DELETE", "/nodes/taints/aaaa"),
            ("POST", "/nodes/labels/aaaa"),
            ("PATCH", "/clusters/vc1"),
            ("DELETE", "/clusters/vc1"),
            ("PATCH", "/queue/vc1"),
            ("DELETE", "/queue/vc1"),
            ("POST", "/controller"),
            ("DELETE", "/nodes/preview/../taints/aaaa"),
        ):
            assert client.request(method, path, json={"k": "v"}).status_code == 403, (method, path)
        assert client.post("/nodes/preview/aaaa", json={"taints": {"k": "v"}}).status_code == 200
        assert client.get("/nodes").status_code == 200
        assert client.get("/about").json()["read_only"]


# What a browser is told


@pytest.mark.parametrize("path", ["/", "/docs", "/nodes", "/nothing", "/page/app.js", "/health"])
def test_every_answer_says_what_a_browser_may_do_with_it(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "nothing.js", "__init__.py"])
def test_only_files_of_the_page_are_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_nothing_of_the_page_is_read_as_html_or_comes_from_elsewhere() -> None:
    for file in files("remora.dashboard").joinpath("page").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), file.name
        elsewhere = [each for each in re.findall(r"https?://[^\s\"'`<)]+", text) if not each.startswith("http://www.w3.org/")]
        assert not elsewhere, file.name
        assert not re.search(r"<script(?![^>]*src=)", text), file.name


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_hostile_names_come_back_as_json_and_never_as_html(client: TestClient, hostile: str) -> None:
    for answer in (
        client.get(f"/explain/{hostile.replace('/', '%2F')}"),
        client.post("/nodes/taints/aaaa", json={hostile: "x"}),
        client.post("/nodes/taints/aaaa", json={"k": "v"}, params={"reason": hostile}),
        client.get("/events"),
    ):
        assert answer.headers["content-type"].startswith("application/")
