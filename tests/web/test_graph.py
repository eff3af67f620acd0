"""The graph of dependencies on the job page: drawn around the job, walked with the keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served


@pytest.mark.rule("DEP-05")
def test_the_graph_around_a_job_is_drawn_and_walked_with_the_keyboard(served: Served, page: Page) -> None:
    first = served.submit("anything", {}, delay_s=3600, title="first of all")["id"]
    second = served.submit("anything", {}, title="in the middle", after=[{"job_id": first}])["id"]
    last = served.submit("anything", {}, title="at the end", after=[{"job_id": second}], on_upstream="run")["id"]
    page.goto(f"{served.url}/ui/jobs/{second}")
    graph = page.locator("#graph")
    links = graph.get_by_role("link")
    expect(links).to_have_count(3)
    names = [link.get_attribute("aria-label") for link in links.all()]
    assert names == ["Job first of all, queued", "Job in the middle, queued, this job", "Job at the end, queued"]
    expect(page.locator("#state")).to_contain_text("waits for the end of")
    places = [box["x"] for link in links.all() if (box := link.bounding_box()) is not None]
    assert places == sorted(set(places))
    links.nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{last}")
    served.client.post(f"/api/jobs/{first}/cancel", json={}).raise_for_status()
    page.goto(f"{served.url}/ui/jobs/{second}")
    expect(page.locator("#graph .is-cancelled")).to_have_count(2)
    expect(page.locator("#state")).to_contain_text("upstream cancelled")


@pytest.mark.rule("DEP-05")
def test_a_job_that_nothing_is_linked_to_has_no_graph(served: Served, page: Page) -> None:
    job_id = served.submit("anything", {}, delay_s=3600)["id"]
    page.goto(f"{served.url}/ui/jobs/{job_id}")
    expect(page.locator("#state")).to_be_visible()
    expect(page.locator("#graph")).to_have_count(0)
