"""Nothing that a page shows is cut off: what is too wide for its card is shortened, or the card scrolls to it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import Served, unique
from tests.waiting import eventually
from tests.web.conftest import Complaints, keep
from tests.web.receiving import receiver_at
from tests.web.things import made, paths_of_everything

LONG_PATH = "/services/T00000000/B00000000/" + "X" * 40
CUT_OFF = """() => [...document.querySelectorAll("main table")].filter((table) => {
  const card = table.closest(".card");
  const scrolls = [table, card].some((each) => /auto|scroll/.test(getComputedStyle(each).overflowX));
  return table.getBoundingClientRect().right > card.getBoundingClientRect().right + 1 && !scrolls;
}).map((table) => table.closest(".card").id)"""
BUTTONS = "main .card table :is(button, a.button)"


def _wide_things(served: Served, url: str) -> list[str]:
    """Everything, under long names, and a delivery that failed for good."""
    paths = paths_of_everything(served, "a-rather-long-name-of-something-" * 3)
    made(served.client.post("/api/webhooks", json={"url": url, "events": ["job.run.failed", "job.cancelled"]}))
    served.run_job("fail", {"message": "it could not be done because of " + "this and that " * 12})
    eventually(lambda: served.client.get("/api/deliveries", params={"status": "FAILED"}).json()["items"])
    return paths


def _reachable(page: Page) -> list[str]:
    """Buttons in tables that nobody can bring into view."""
    lost = []
    for button in page.locator(BUTTONS).all():
        if not button.is_visible():
            continue
        button.scroll_into_view_if_needed()
        box: dict[str, Any] | None = button.bounding_box()  # type: ignore[assignment]
        card = button.locator("xpath=ancestor::section[1]").bounding_box()
        assert box is not None and card is not None
        if box["x"] + box["width"] > card["x"] + card["width"] + 1:
            lost.append(button.inner_text())
    return lost


@pytest.mark.parametrize("width", [861, 1024, 1280])
def test_no_table_is_cut_off_by_its_card(served: Served, browser: Browser, complaints: Complaints, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="light")
    page = context.new_page()
    complaints.listen_to(page)
    with receiver_at(LONG_PATH, refuses=999) as (url, _):
        for path in _wide_things(served, url):
            page.goto(served.url + path)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert page.evaluate(CUT_OFF) == [], path
            assert _reachable(page) == [], path
        page.goto(f"{served.url}/ui/webhooks")
        keep(page, f"webhooks-{width}")
        # The one that the reader looks for needs no scrolling at all.
        again = page.get_by_role("button", name="Send again").first
        expect(again).to_be_in_viewport(ratio=1)
        expect(page.locator("#deliveries td.cut").first).to_have_attribute("title", url)
    assert complaints == []
    context.close()


def test_run_and_pause_of_an_endpoint_need_no_scrolling(served: Served, page: Page) -> None:
    shop = unique("shop")
    endpoints = [
        made(
            served.client.post(
                "/api/endpoints",
                json={"name": f"{shop}-{place}", "url": "http://127.0.0.1:1/a/rather/long/path/of/the/shop",
                      "interval_s": 3600, "labels": {"team": "shop", "env": "production"}},
            )
        )
        for place in ("front", "back")
    ]  # fmt: skip
    for endpoint in endpoints:
        for _ in range(10):
            served.wait_for(made(served.client.post(f"/api/endpoints/{endpoint['id']}/trigger"))["id"], "FAILED")
    served.client.post(f"/api/endpoints/{endpoints[0]['id']}/pause", json={}).raise_for_status()
    page.goto(f"{served.url}/ui/endpoints?q={shop}")
    expect(page.locator("#endpoints tbody tr")).to_have_count(2)
    for width in (870, 1024, 1200, 1280, 1366):
        page.set_viewport_size({"width": width, "height": 800})
        card = page.locator("#endpoints").bounding_box()
        assert card is not None
        for button in page.locator("#endpoints tbody button").all():
            box = button.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= card["x"] + card["width"], (width, button.inner_text())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_the_timeline_opens_at_now_on_a_phone_and_its_legend_stays_with_its_words(
    served: Served, browser: Browser, complaints: Complaints
) -> None:
    served.run_job("echo")
    context = browser.new_context(viewport={"width": 375, "height": 740}, is_mobile=True, has_touch=True)
    phone = context.new_page()
    complaints.listen_to(phone)
    phone.goto(f"{served.url}/ui/timeline?zoom=15m")
    scroll, drawn = phone.locator(".scroll").first, phone.locator("svg.timeline").first
    window, picture = scroll.bounding_box(), drawn.bounding_box()
    assert window is not None and picture is not None
    assert picture["width"] > window["width"] + 100
    assert abs(picture["x"] + picture["width"] - window["x"] - window["width"]) < 2
    expect(phone.locator("svg.timeline .bar").last).to_be_in_viewport()
    for entry in phone.locator(".legend > span").all():
        swatch, words = entry.locator(".key").bounding_box(), entry.bounding_box()
        assert swatch is not None and words is not None
        assert words["height"] < 30 and swatch["x"] < words["x"] + 2
    assert complaints == []
    context.close()


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_no_button_lies_on_the_state_of_the_connection(
    served: Served, browser: Browser, complaints: Complaints, width: int
) -> None:
    job = served.run_job("fail_for_good")
    context = browser.new_context(viewport={"width": width, "height": 740}, is_mobile=True, has_touch=True)
    phone = context.new_page()
    complaints.listen_to(phone)
    phone.goto(f"{served.url}/ui/jobs/{job['id']}")
    pulse, button = phone.locator("[data-pulse]"), phone.get_by_role("button", name="Run again").first
    expect(pulse).to_contain_text("Live")
    words, again = pulse.bounding_box(), button.bounding_box()
    assert words is not None and again is not None
    assert words["y"] + words["height"] <= again["y"] or again["x"] + again["width"] <= words["x"]
    assert complaints == []
    context.close()


@pytest.mark.rule("UI-01")
def test_the_boxes_of_idle_slots_stay_beside_the_name_of_their_resource(served: Served, page: Page) -> None:
    for name in ("api", "gpu", "mail"):
        limit = {"resource": name, "slots": 6}
        served.client.put(f"/api/limits/idle-{name}", json=limit).raise_for_status()
    page.goto(f"{served.url}/")
    expect(page.locator("#idle")).to_contain_text("mail")
    for width in range(320, 460, 20):
        page.set_viewport_size({"width": width, "height": 844})
        for link in page.locator("#idle a").all():
            text, dots = link.bounding_box(), link.locator("+ .dots").bounding_box()
            assert text and dots
            assert dots["x"] >= text["x"] + text["width"], (width, link.text_content())
