"""The page against a real Ray of four nodes: what is done on the page happens, and what happens is seen there."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import ray
from playwright.sync_api import expect
from tests.browser.conftest import Live, Open

import remora
from remora.live.link import link


def where(seconds: float) -> str:
    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


def test_a_taint_that_is_set_on_the_page_moves_real_tasks(open_page: Open, live: Live) -> None:
    task: Any = ray.remote(where)
    options = {"num_cpus": 1, "label_selector": {"zone": "in(a, b)"}}
    assert ray.get(task.options(**options).remote(0), timeout=60) in (live.ids["a"], live.ids["b"])
    page = open_page(live.page)
    expect(page.locator(".node")).to_have_count(4)
    refs = [task.options(**options).remote(0.7) for _ in range(12)]
    page.locator(f'.node[data-id="{live.ids["a"]}"]').click()
    page.get_by_role("button", name="Add a taint").click()
    page.get_by_label("Key").fill("maintenance")
    expect(page.locator(".preview")).to_contain_text("running stay")
    page.get_by_role("button", name="Add the taint").click()
    expect(page.locator(".panel .chip.taint")).to_contain_text("maintenance=true")
    ran = ray.get(refs, timeout=120)
    assert ran[-1] == live.ids["b"]
    assert ray.get([task.options(**options).remote(0) for _ in range(4)], timeout=60) == [live.ids["b"]] * 4
    page.get_by_role("button", name="Remove the taint maintenance").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".panel .chip.taint")).to_have_count(0)
    told = [each["by"] for each in remora.events() if each["kind"] == "taint"]
    assert [each["through"] for each in told] == ["the page", "the page"]


def test_a_queued_job_is_seen_to_start_when_another_is_closed_on_the_page(open_page: Open, live: Live) -> None:
    page = open_page(f"{live.page}/#clusters")
    full, entered, done = threading.Event(), threading.Event(), threading.Event()

    def second() -> None:
        full.wait(60)
        with remora.VirtualCluster(flexible_resource_min={"CPU": 3}, timeout=100):
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=second)  # what is started inside a virtual cluster is inside of it
    thread.start()
    with remora.VirtualCluster(flexible_resource_min={"CPU": 3}):
        (first,) = [row["cluster_id"] for row in remora.virtual_clusters()]
        full.set()
        try:
            expect(page.locator("tbody tr")).to_have_count(1)
            assert not entered.is_set()
            page.get_by_role("button", name=f"Close {first}").click()
            page.get_by_label("Reason (optional)").fill("the second is urgent")
            page.get_by_role("button", name="Close it").click()
            expect(page.locator("tbody tr")).to_have_count(0)
            assert entered.wait(60)
        finally:
            done.set()
            thread.join(60)


def test_the_page_goes_on_after_the_controller_was_killed(open_page: Open, live: Live) -> None:
    page = open_page(f"{live.page}/#timeline")
    expect(page.locator("#pill")).to_have_text("live")
    page.locator("#events-kind").select_option("controller")
    starts = page.locator(".event", has_text="the controller started")
    before = starts.count()
    os.kill(ray.get(link.find().pid.remote(), timeout=30), signal.SIGKILL)
    expect(starts).to_have_count(before + 1, timeout=60_000)
    expect(page.locator("#pill")).to_have_text("live")
    page.goto(f"{live.page}/#cluster")
    expect(page.locator(".node")).to_have_count(4)
