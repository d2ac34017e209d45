"""What is learned from a cloud's metadata server, good and broken, over real http on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from remora.machine.metadata import TOTAL_SECONDS, ask_clouds

ZONE, MARKET = "ray.io/availability-zone", "ray.io/market-type"
NOBODY = "http://127.0.0.1:9"
GOOGLE = {"Metadata-Flavor": "Google"}

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes, dict[str, str]]]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, headers = answer(self)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # the asker is gone

        do_PUT = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(cloud: str, base: str) -> dict[str, str]:
    return {f"REMORA_METADATA_{name}": base if name == cloud else NOBODY for name in ("GCE", "AWS", "AZURE")}


def ask(cloud: str, answer: Answer) -> dict[str, str]:
    with served(answer) as base:
        return ask_clouds([ZONE, MARKET], environment(cloud, base))


def gce(zone: bytes = b"projects/12/zones/us-central1-a", spot: bytes = b"FALSE", signed: bool = True) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        found = {
            "/computeMetadata/v1/instance/zone": zone,
            "/computeMetadata/v1/instance/scheduling/preemptible": spot,
        }.get(request.path)
        if found is None or request.headers.get("Metadata-Flavor") != "Google":
            return 403, b"", {}
        return 200, found, GOOGLE if signed else {}

    return answer


def aws(life: bytes = b"spot", version: int = 2) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        if request.path == "/latest/api/token":
            asks = request.command == "PUT" and request.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, b"secret", {}) if asks and version == 2 else (405, b"no", {})
        if version == 2 and request.headers.get("X-aws-ec2-metadata-token") != "secret":
            return 401, b"", {}
        found = {"/latest/meta-data/placement/availability-zone": b"us-east-1c", "/latest/meta-data/instance-life-cycle": life}
        return (200, found[request.path], {}) if request.path in found else (404, b"", {})

    return answer


def azure(body: bytes) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        right = request.path.startswith("/metadata/instance/compute?api-version=") and request.headers.get("Metadata") == "true"
        return (200, body, {}) if right else (400, b"", {})

    return answer


def says(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    return lambda request: (status, body, headers)


SPOT_VM = b'{"location": "westus2", "zone": "3", "priority": "Spot"}'
GOOD: dict[str, tuple[str, Answer, dict[str, str]]] = {
    "GCE": ("GCE", gce(), {ZONE: "us-central1-a", MARKET: "on-demand"}),
    "GCE spot": ("GCE", gce(spot=b"TRUE"), {ZONE: "us-central1-a", MARKET: "spot"}),
    "AWS": ("AWS", aws(), {ZONE: "us-east-1c", MARKET: "spot"}),
    "AWS on demand": ("AWS", aws(b"on-demand"), {ZONE: "us-east-1c", MARKET: "on-demand"}),
    "AWS version 1": ("AWS", aws(version=1), {ZONE: "us-east-1c", MARKET: "spot"}),
    "Azure": ("AZURE", azure(SPOT_VM), {ZONE: "westus2-3", MARKET: "spot"}),
    "Azure, no zone": ("AZURE", azure(b'{"location": "x", "zone": "", "priority": ""}'), {MARKET: "on-demand"}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_cloud_says_zone_and_market(name: str) -> None:
    cloud, answer, want = GOOD[name]
    assert ask(cloud, answer) == want


BROKEN: dict[str, tuple[str, Answer, dict[str, str]]] = {
    "GCE, not signed": ("GCE", gce(signed=False), {}),
    "GCE, odd market": ("GCE", gce(spot=b"maybe"), {ZONE: "us-central1-a"}),
    "GCE, a zone that is no label": ("GCE", gce(zone=b"a b"), {MARKET: "on-demand"}),
    "GCE, a huge zone": ("GCE", gce(zone=b"z" * 100_000), {}),
    "AWS, odd market": ("AWS", aws(b"<html>"), {ZONE: "us-east-1c"}),
    "Azure, not JSON": ("AZURE", azure(b"<html>"), {}),
    "Azure, a list": ("AZURE", azure(b"[1]"), {}),
    "Azure, nested": ("AZURE", azure(b"[" * 60_000), {}),
    "Azure, other types": ("AZURE", azure(b'{"location": 1, "zone": [], "priority": {}}'), {}),
    "Azure, not text": ("AZURE", azure(b"\xff\xfe"), {}),
    "Azure, huge": ("AZURE", azure(b" " * 10_000_000 + SPOT_VM), {}),
    **{f"{cloud}, 500": (cloud, says(500), {}) for cloud in ("GCE", "AWS", "AZURE")},
    **{f"{cloud}, garbage": (cloud, says(200, b"\x00\xff{]"), {}) for cloud in ("GCE", "AWS", "AZURE")},
    **{f"{cloud}, elsewhere": (cloud, says(302, Location="file:///etc/passwd"), {}) for cloud in ("GCE", "AWS", "AZURE")},
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_broken_cloud_says_is_not_believed(name: str) -> None:
    cloud, answer, want = BROKEN[name]
    assert ask(cloud, answer) == want


def test_a_cloud_that_hangs_holds_nothing_up_and_others_are_heard() -> None:
    done = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        done.wait(20)
        return 200, b"", {}

    try:
        with served(hang) as base, served(gce()) as good:
            began = time.monotonic()
            assert ask_clouds([ZONE, MARKET], dict.fromkeys(environment("", ""), base)) == {}
            assert TOTAL_SECONDS * 0.9 < time.monotonic() - began < TOTAL_SECONDS + 1
            began = time.monotonic()
            found = ask_clouds([ZONE, MARKET], {**environment("AWS", base), "REMORA_METADATA_GCE": good}, 10.0)
            assert (found, time.monotonic() - began < TOTAL_SECONDS) == ({ZONE: "us-central1-a", MARKET: "on-demand"}, True)
            done.set()
    finally:
        done.set()


def test_a_token_that_never_comes_leaves_time_for_version_1() -> None:
    done = threading.Event()
    version_1 = aws(version=1)

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        if request.command == "PUT":
            done.wait(20)
        return version_1(request)

    try:
        assert ask("AWS", answer) == {ZONE: "us-east-1c", MARKET: "spot"}
    finally:
        done.set()


def test_half_an_answer_is_kept_when_the_rest_hangs() -> None:
    done = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        if "preemptible" in request.path:
            done.wait(20)
        return gce()(request)

    with served(answer) as base:
        try:
            assert ask_clouds([ZONE, MARKET], environment("GCE", base)) == {ZONE: "us-central1-a"}
        finally:
            done.set()


@pytest.mark.parametrize("base", ["", "x", "ftp://127.0.0.1", "file:///etc/passwd", "http://[", "http://127.0.0.1:99999"])
def test_a_base_that_is_no_address_is_no_answer(base: str) -> None:
    assert ask_clouds([ZONE], dict.fromkeys(environment("", ""), base)) == {}


def test_it_can_be_switched_off() -> None:
    with served(gce()) as base:
        assert ask_clouds([ZONE], {**environment("GCE", base), "REMORA_METADATA": "off"}) == {}


def test_only_what_is_wanted_is_told() -> None:
    with served(gce()) as base:
        assert ask_clouds([MARKET], environment("GCE", base)) == {MARKET: "on-demand"}
