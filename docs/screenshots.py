"""Take the pictures of the page for the documents: ``PYTHONPATH=. python docs/screenshots.py`` writes docs/images/*.png."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from playwright.sync_api import sync_playwright
from tests.browser.chromium import FLAGS, chromium
from tests.served import simulated

from remora.wire import calls

IMAGES = Path(__file__).parent / "images"
SECONDS = 30


def main() -> None:
    with simulated(12) as (address, backend), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        context = browser.new_context(viewport={"width": 1200, "height": 760}, color_scheme="light")
        context.new_page().goto(address)  # somebody looks
        chance = Random("screenshots")
        nodes = [view.node_id for view in backend.port.observe().nodes]
        by = calls.By("alice", "the page", "10.0.0.9", "new disk")
        backend.ask(calls.TaintNode(nodes[3], (("maintenance", "true"),), [], "", by))
        backend.ask(calls.ResizeCluster("vc3", {"CPU": 64}, "", calls.By("bob", "remora", "head-0", "night shift")))
        for _ in range(SECONDS // 5):  # so that there is something to see over time
            for cluster_id in ("vc1", "vc2", "vc3"):
                backend.grow(cluster_id, chance.randint(1, 12))
                backend.use(cluster_id, chance=chance)
            time.sleep(5)
        page = context.new_page()
        for view in ("cluster", "clusters", "waiting", "timeline"):
            page.goto(f"{address}/#{view}")
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / f"{view}.png")
        browser.close()


if __name__ == "__main__":
    main()
