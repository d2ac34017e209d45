"""A real browser; a real Ray of four nodes with a dashboard of its own, shared by all tests that need one."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.browser.chromium import FLAGS, chromium
from tests.served import MemoryBackend, simulated


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    assert path is not None, "there is no Chromium"
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield made
        made.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a page, and fails at the end when the page itself complained: an error, or something that its policy forbids."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(address: str, *, width: int = 1280, height: int = 800, scheme: Any = "light", **more: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security Policy" in said.text else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def four() -> Iterator[tuple[str, MemoryBackend]]:
    """Four nodes in memory, with the real controller."""
    with simulated(4, look_seconds=0.2) as found:
        yield found


@dataclass
class Live:
    """A real cluster with a dashboard. ``ids`` are the nodes by their zones."""

    address: str
    page: str
    ids: dict[str, str]


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    import ray
    from ray.cluster_utils import Cluster

    import remora
    from remora.live.adapter import unpatched

    lean: dict[str, Any] = {"include_log_monitor": False}
    head = {**lean, "num_cpus": 1, "labels": {"zone": "head"}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for zone in "abc":
        cluster.add_node(**lean, num_cpus=1, labels={"zone": zone})
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False, namespace="tests")
    command = [sys.executable, "-m", "remora", "dashboard", "--port", "0", "--address", cluster.address]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Live(cluster.address, _address_of(server), {node["Labels"]["zone"]: node["NodeID"] for node in unpatched.nodes()})
    finally:
        server.terminate()
        server.wait(20)
        remora.detach()
        ray.shutdown()
        cluster.shutdown()


def _address_of(server: subprocess.Popen[str]) -> str:
    """Return where a dashboard says that it is."""
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], 90)
    assert ready, "the dashboard said nothing"
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None
    return found[0]
