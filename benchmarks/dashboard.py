"""What the page costs: first paint, one update for controller and browser, and the controller's place rate with 50 open pages.

No Ray is started: the real controller runs over a cluster in memory; the dashboard is a process of its own that asks it over a
socket, as bytes, as over Ray. Rates are compared in the same run, in turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import uvicorn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import FLAGS, chromium  # noqa: E402
from tests.served import MemoryBackend, populate  # noqa: E402

from remora.controller.views.overview import overview  # noqa: E402
from remora.dashboard.app import build  # noqa: E402
from remora.model.requests import NodeClass, Request  # noqa: E402
from remora.model.resources import Resources  # noqa: E402
from remora.model.selectors import LabelSelector  # noqa: E402
from remora.model.strategies import ACTOR  # noqa: E402
from remora.model.taints import Tolerations  # noqa: E402
from remora.wire import calls  # noqa: E402
from remora.wire.asks import Ask, encode_ask  # noqa: E402

PAGES = 50
WINDOW_SECONDS = 4.0


class RemoteBackend:
    """A controller at the other end of a socket."""

    def __init__(self, path: str) -> None:
        self._connection = Client(path)
        self._lock = threading.Lock()

    def ask(self, call: calls.Call) -> Any:
        with self._lock:
            self._connection.send_bytes(calls.encode_call(call))
            return calls.read_answer(self._connection.recv_bytes())

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(calls.Explain(id_or_name))
        return found

    def start(self) -> None: ...


def serve(path: str, port: int) -> None:
    uvicorn.run(build(RemoteBackend(path)), port=port, log_level="error", access_log=False)


def look(address: str, pages: int) -> None:
    """Hold so many pages open, and read what they are told, until somebody ends this process."""
    host, port = address.removeprefix("http://").split(":")
    request = f"GET /stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()

    def read() -> None:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request)
            while connection.recv(1 << 20):
                pass

    for _ in range(pages):
        threading.Thread(target=read, daemon=True).start()
    sys.stdin.read()


def answer(backend: MemoryBackend, path: str) -> Listener:
    listener = Listener(path)

    def serve_one(connection: Connection) -> None:
        while True:
            try:
                call = calls.decode_call(connection.recv_bytes())
            except EOFError:
                return
            try:
                connection.send_bytes(calls.encode_answer(backend.ask(call)))
            except Exception as error:  # noqa: BLE001 - it is whoever asks that hears of it
                connection.send_bytes(calls.encode_error(error))

    def accept() -> None:
        while True:
            threading.Thread(target=serve_one, args=(listener.accept(),), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def place_rate(backend: MemoryBackend, seconds: float) -> float:
    one = Resources.parse({"CPU": 1})
    request = Request(ACTOR, one, one, (NodeClass(LabelSelector(), Tolerations()),))
    text = encode_ask(Ask(request, (("type", "cat"),)))
    count, until = 0, time.monotonic() + seconds
    began = time.monotonic()
    while time.monotonic() < until:
        ask = calls.new_ask()
        slot, _ = backend.ask(calls.Place(ask, text, "j1"))
        backend.ask(calls.GiveUp(slot, ask))
        count += 1
    return count / (time.monotonic() - began)


def stir(backend: MemoryBackend, stop: threading.Event) -> None:
    """Work starts and ends on a tenth of the nodes every second."""
    chance = Random("stir")
    while not stop.wait(1.0):
        for view in chance.sample(backend.port.observe().nodes, 50):
            if view.available["CPU"] >= 2:
                backend.port.take(view.node_id, {"CPU": 1.0})


def in_browser(address: str) -> None:
    path = chromium()
    if path is None:
        print("no Chromium here: the browser was not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page()
        began = time.monotonic()
        page.goto(address)
        page.locator(".heat .node").nth(499).wait_for()
        print(f"500 tiles are there after        {1000 * (time.monotonic() - began):8.0f} ms")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        print(f"first contentful paint           {paint:8.0f} ms")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def busy() -> float:
            found = session.send("Performance.getMetrics")["metrics"]
            return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

        before, updates = busy(), int(page.evaluate("document.documentElement.dataset.updates"))
        frames = page.evaluate(
            "new Promise(done => { let n = 0, longest = 0, last = performance.now(); const end = last + 6000;"
            "const step = (now) => { n += 1; longest = Math.max(longest, now - last); last = now;"
            "now < end ? requestAnimationFrame(step) : done([n / 6, longest]); }; requestAnimationFrame(step); })"
        )
        made = max(int(page.evaluate("document.documentElement.dataset.updates")) - updates, 1)
        cost = 1000 * (busy() - before) / made
        print(f"frames a second while it updates {frames[0]:8.1f}      (longest between two: {frames[1]:.0f} ms)")
        print(f"browser: one update, all in all  {cost:8.1f} ms   ({made} updates; frames are drawn meanwhile)")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--serve", nargs=2, metavar=("SOCKET", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--look", nargs=2, metavar=("ADDRESS", "PAGES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
    elif arguments.look:
        look(arguments.look[0], int(arguments.look[1]))
    else:
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    print(f"{arguments.nodes} nodes, {arguments.waiting:,} waiting requests, {os.cpu_count()} cores")
    backend = MemoryBackend()
    populate(backend, arguments.nodes, arguments.waiting)
    stop = threading.Event()
    threading.Thread(target=stir, args=(backend, stop), daemon=True).start()
    looks = []
    for _ in range(20):
        with backend.engine._lock:  # what it takes by itself, without waiting for a round
            began = time.thread_time()
            found = overview(backend.engine._controller, 10**9)
            looks.append(1000 * (time.thread_time() - began))
        time.sleep(0.2)
    size = len(msgspec.msgpack.encode(found)) / 1024
    print(f"controller: one look             {statistics.median(looks):8.1f} ms   (median of {len(looks)}; {size:.0f} KB)")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        path = str(Path(folder) / "controller")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        listener = answer(backend, path)
        address = f"http://127.0.0.1:{port}"
        with child("--serve", path, str(port)):
            for _ in range(200):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            in_browser(address)
            without, within = [], []
            place_rate(backend, 1.0)
            for _ in range(arguments.windows):
                without.append(place_rate(backend, WINDOW_SECONDS))
                with child("--look", address, str(PAGES)):
                    time.sleep(1.5)
                    within.append(place_rate(backend, WINDOW_SECONDS))
            print(f"placements a second, no page     {statistics.median(without):8.0f}")
            print(f"the same with {PAGES} pages open      {statistics.median(within):8.0f}")
            listener.close()
            ratio = statistics.median(b / a for a, b in zip(without, within, strict=True))
            print(f"ratio (median of {arguments.windows} pairs)         {ratio:8.3f}")
    stop.set()
    backend.close()


if __name__ == "__main__":
    main()
