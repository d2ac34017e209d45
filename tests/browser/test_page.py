"""The page in a real browser, over a cluster in memory with the real controller: every view and state, and what is hostile."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.conftest import Open
from tests.served import MemoryBackend, served, settled, simulated

from remora.dashboard.app import build
from remora.dashboard.guarding import Rules
from remora.dashboard.hub import Hub
from remora.wire import calls

VIEWS = ("cluster", "clusters", "waiting", "timeline")
TITLES = {"cluster": "Cluster", "clusters": "Virtual clusters", "waiting": "Waiting", "timeline": "Time line"}
HOSTILE = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"


def ready(page: Page) -> Page:
    expect(page.locator("#pill")).to_have_text("live")
    return page


def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page as it is."""
    found: dict[str, Any] = Axe().run(page).response
    return [f"{each['id']}: {[node['html'][:160] for node in each['nodes'][:3]]}" for each in found["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(open_page: Open, four: tuple[str, MemoryBackend], scheme: str) -> None:
    page = ready(open_page(four[0], scheme=scheme, bypass_csp=True))
    for view in VIEWS:
        page.goto(f"{four[0]}/#{view}")
        expect(page.locator("nav a[aria-current]")).to_contain_text(TITLES[view])
        page.wait_for_timeout(150)
        assert violations(page) == [], view
    page.goto(f"{four[0]}/#cluster")
    page.locator(".node").first.click()
    expect(page.locator(".tokens li").first).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Add a taint").click()
    assert violations(page) == []
    page.goto(f"{four[0]}/docs")
    page.locator("details").first.locator("summary").click()
    assert violations(page) == []


@pytest.mark.parametrize("width", [360, 768, 2560])
def test_nothing_hangs_over_the_edge(open_page: Open, four: tuple[str, MemoryBackend], width: int) -> None:
    page = ready(open_page(four[0], width=width))
    for view in VIEWS:
        page.goto(f"{four[0]}/#{view}")
        expect(page.locator("nav a[aria-current]")).to_contain_text(TITLES[view])
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
    page.goto(f"{four[0]}/#cluster")
    page.locator(".node").first.click()
    assert page.evaluate("document.querySelector('.panel').scrollWidth - document.querySelector('.panel').clientWidth") <= 0


def test_it_works_with_the_keyboard_alone(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = ready(open_page(four[0]))
    page.keyboard.press("2")
    expect(page.locator("nav a[aria-current]")).to_contain_text("Virtual clusters")
    page.keyboard.press("1")
    first = page.locator(".node").first
    first.focus()
    page.keyboard.press("ArrowRight")
    second = page.locator(".node").nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    panel = page.locator("dialog.panel")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(second).to_be_focused()


def test_a_taint_is_set_after_a_look_at_what_it_would_do_and_removed_again(
    open_page: Open, four: tuple[str, MemoryBackend]
) -> None:
    address, backend = four
    page = ready(open_page(address))
    page.locator(".node").nth(1).click()
    page.get_by_role("button", name="Add a taint").click()
    page.get_by_label("Key").fill("maintenance")
    expect(page.locator(".preview")).to_contain_text("would start")
    page.get_by_label("Reason (optional)").fill("new disk")
    page.get_by_role("button", name="Add the taint").click()
    expect(page.locator(".panel .chip.taint")).to_contain_text("maintenance=true")
    node_id = page.locator(".node").nth(1).get_attribute("data-id")
    assert backend.ask(calls.GetNode(str(node_id)))["taints"] == {"maintenance": "true"}
    assert [each["by"]["reason"] for each in backend.ask(calls.GetEvents()) if each["kind"] == "taint"] == ["new disk"]
    page.get_by_role("button", name="Remove the taint maintenance").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".panel .chip.taint")).to_have_count(0)


def test_bad_input_is_said_where_it_was_typed(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = ready(open_page(four[0]))
    page.locator(".node").first.click()
    page.get_by_role("button", name="Add a label").click()
    page.get_by_label("Key").fill("not a key")
    page.get_by_role("button", name="Add the label").click()
    expect(page.locator(".problem")).to_contain_text("not a key")


def test_a_virtual_cluster_is_resized_and_the_queue_reordered(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = ready(open_page(f"{four[0]}/#clusters"))
    page.get_by_role("button", name="Resize vc3").click()
    page.get_by_label("At most, CPU").fill("17")
    page.get_by_role("button", name="Resize", exact=True).click()
    expect(page.locator(".vc", has_text="vc3")).to_contain_text("at most 17")
    page.get_by_role("button", name="Priority of vc6").click()
    page.get_by_role("spinbutton", name="Priority").fill("50")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("vc6")
    assert page.locator("svg.chart").count() >= 4


def test_what_waits_says_why_node_by_node(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = ready(open_page(f"{four[0]}/#waiting"))
    group = page.locator("section.reason", has_text="ray.io/accelerator-type=A100")
    expect(group.first).to_contain_text("nodes fit")
    group.locator("summary").first.click()
    expect(group.locator("tbody tr").first).to_contain_text("not match")
    page.wait_for_timeout(600)  # it stays open when the page is drawn anew
    expect(group.locator("tbody tr").first).to_be_visible()


def test_the_time_line_is_filtered(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = ready(open_page(f"{four[0]}/#timeline"))
    page.locator("#events-kind").select_option("cluster")
    expect(page.locator(".event .chip").first).to_have_text("cluster")
    page.locator("#events-filter").fill("vc5")
    expect(page.locator(".event", has_not_text="vc5")).to_have_count(0)
    expect(page.locator(".event").first).to_be_visible()


def test_five_hundred_nodes_are_a_heat_map_that_follows_what_changes(open_page: Open) -> None:
    with simulated(500, look_seconds=0.2) as (address, backend):
        page = ready(open_page(address))
        expect(page.locator(".heat .node")).to_have_count(500)
        assert violations(open_page(address, bypass_csp=True)) == []
        view = next(view for view in backend.port.observe().nodes if view.available["CPU"] >= 4)
        tile = page.locator(f'.node[data-id="{view.node_id}"]')
        before = tile.get_attribute("aria-label")
        backend.port.take(view.node_id, {"CPU": 4.0})
        expect(tile).not_to_have_attribute("aria-label", str(before))
        page.get_by_label("Group by").select_option("zone")
        expect(page.locator(".node-group h2")).to_have_count(3)
        page.locator("#filter").fill("zone=a")
        expect(page.locator(".heat .node")).to_have_count(167)


def test_hostile_names_are_shown_as_they_are_and_do_nothing(open_page: Open) -> None:
    backend = MemoryBackend()
    port = backend.port
    port.join("node1", {"CPU": 4, HOSTILE: 2}, {"zone": HOSTILE, HOSTILE: "x", f"taint.remora.io/{HOSTILE}": HOSTILE})
    settled(backend)
    backend.create(HOSTILE, None, 0, flexible_resource_min={"CPU": 2})
    backend.create(HOSTILE, None, 0, flexible_resource_min={"CPU": 4})
    backend.actor("f00d", HOSTILE, node_ids=("node1",))
    port.wait({HOSTILE: 3, "CPU": 1}, 3)
    backend.ask(calls.LabelNode("node1", (("k", "v"),), [], "", calls.By(HOSTILE, HOSTILE, HOSTILE, HOSTILE)))
    backend.engine._controller.context.aside.add(HOSTILE, HOSTILE, HOSTILE)
    backend.engine._controller.context.note("lease", HOSTILE, HOSTILE)
    with served(build(backend, None, Hub(backend, look_seconds=0.2))) as address:
        page = ready(open_page(address))
        page.evaluate("name => localStorage.setItem('remora-name', name)", HOSTILE)
        for view in (*VIEWS, "cluster/node1", f"timeline/{HOSTILE}"):
            page.goto(f"{address}/#{view}")
            page.reload()
            ready(page)
            expect(page.locator("#main")).to_contain_text("<script>" if view != "clusters" else "vc1")
            page.wait_for_timeout(200)
            assert page.evaluate("[window.hacked, document.querySelectorAll('main script, main img').length]") == [None, 0]
        page.goto(f"{address}/#waiting")
        page.locator("#explain").fill(HOSTILE)
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#explained")).to_contain_text("<script>")
        assert page.evaluate("window.hacked") is None
    backend.close()


def test_an_empty_cluster_and_one_where_nothing_waits_say_so(open_page: Open) -> None:
    backend = MemoryBackend()
    with served(build(backend, None, Hub(backend, look_seconds=0.2))) as address:
        page = ready(open_page(address))
        expect(page.locator("#main")).to_contain_text("No nodes yet")
        for view, text in (("clusters", "No virtual clusters"), ("waiting", "Nothing waits"), ("timeline", "started")):
            page.goto(f"{address}/#{view}")
            expect(page.locator("#main")).to_contain_text(text)
    backend.close()


def test_a_controller_that_is_away_is_said_and_the_page_goes_on_by_itself(open_page: Open) -> None:
    backend = MemoryBackend()
    backend.away = True
    with served(build(backend, None, Hub(backend, look_seconds=0.2))) as address:
        page = open_page(address)
        expect(page.locator("#away")).to_contain_text("Controller away")
        expect(page.locator("#main")).to_contain_text("controller")
        page.get_by_role("button", name="Start it").click()
        ready(page)
        expect(page.locator("#away")).to_have_count(0)
        backend.port.join("node1", {"CPU": 4}, {})
        expect(page.locator(".node")).to_have_count(1)
        backend.away = True
        expect(page.locator("#away")).to_be_visible()
        expect(page.locator(".node")).to_have_count(1)
        backend.away = False
        expect(page.locator("#away")).to_have_count(0)
    backend.close()


def test_while_nothing_was_heard_there_is_no_spinner(open_page: Open) -> None:
    backend = MemoryBackend()
    backend.engine._lock.acquire()
    try:
        with served(build(backend, None, Hub(backend, look_seconds=0.2))) as address:
            page = open_page(address)
            expect(page.locator(".ghost").first).to_be_visible()
            backend.engine._lock.release()
            ready(page)
            expect(page.locator(".ghost")).to_have_count(0)
    finally:
        if backend.engine._lock.locked():
            time.sleep(0.1)
    backend.close()


def test_read_only_offers_no_change(open_page: Open) -> None:
    with simulated(4, rules=Rules(read_only=True)) as (address, _):
        page = ready(open_page(address))
        expect(page.locator("#read-only")).to_be_visible()
        page.goto(f"{address}/#clusters")
        expect(page.locator(".vc").first).to_be_visible()
        expect(page.get_by_role("button", name="Resize")).to_have_count(0)
        page.goto(f"{address}/#cluster")
        page.locator(".node").first.click()
        expect(page.locator(".panel .chips").first).to_be_visible()
        expect(page.get_by_role("button", name="Add a taint")).to_have_count(0)


def test_whoever_has_the_token_signs_in(open_page: Open) -> None:
    with simulated(4, rules=Rules(is_right_token=lambda header: header == "Bearer secret")) as (address, _):
        page = open_page(address)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill("secret")
        page.get_by_role("button", name="Sign in").click()
        ready(page)


def test_the_rest_api_is_tried_from_its_documentation(open_page: Open, four: tuple[str, MemoryBackend]) -> None:
    page = open_page(f"{four[0]}/docs")
    operation = page.locator("details", has_text="/nodes/taints/{node_id}").first
    operation.locator("summary").click()
    operation.get_by_label("node_id").fill("0000")
    operation.get_by_role("button", name="Try it").click()
    expect(operation.locator("pre").last).to_contain_text('"taints"')
    assert json.loads(operation.locator("pre").last.inner_text().split("\n", 1)[1])["node_id"].startswith("0000")
