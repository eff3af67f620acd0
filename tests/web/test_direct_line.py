"""Who waits with a direct request sees it on the pages: for what, since when, until when, and why."""

from __future__ import annotations

import threading

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served, open_gate, unique
from tests.waiting import eventually


@pytest.mark.rule("DIR-01")
def test_those_who_wait_are_shown_in_order_with_the_words_of_the_explanation(served: Served, page: Page) -> None:
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate}, title="the long one")
    served.wait_for(job["id"], "RUNNING")
    behind = served.submit("narrow_hold", {"gate": gate})
    client = served.new_client(None)

    def ask() -> None:
        client.post("/api/direct/narrow_hold", json={"params": {"gate": gate}}, timeout=60)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    try:
        page.goto(served.url)
        expect(page.locator(".direct-line")).to_have_count(0)
        for number, asker in enumerate(askers):
            asker.start()
            eventually(lambda number=number: len(_waiting(served)) == number + 1)  # type: ignore[misc]
        # The page hears of them by itself.
        first, second = _waiting(served)
        element = page.locator("#slots .direct-line li")
        expect(element).to_have_count(2)
        expect(element.nth(0)).to_have_id(f"line-{first}")
        expect(element.nth(1)).to_contain_text("waits for the next slot")
        element.nth(1).get_by_role("link").click()
        page.wait_for_url(f"**/ui/reservations/{second}")
        for path in ("/ui/timeline", "/ui/direct"):
            page.goto(served.url + path)
            rows = page.locator("#line tbody tr")
            expect(rows).to_have_count(2)
            expect(rows.nth(0)).to_have_id(f"line-{first}")
            expect(rows.nth(1)).to_have_id(f"line-{second}")
            expect(rows.nth(0)).to_contain_text("narrow_hold")
            expect(rows.nth(0)).to_contain_text("It has waited")
            holder = rows.nth(0).get_by_role("link", name="the long one")
            expect(holder).to_have_attribute("href", f"/ui/jobs/{job['id']}")
            expect(rows.nth(1)).to_contain_text("narrow")
        page.goto(f"{served.url}/ui/jobs/{behind['id']}")
        request = page.locator(".says-why").get_by_role("link", name=gate).first
        expect(request).to_have_attribute("href", f"/ui/reservations/{first}")
        page.goto(f"{served.url}/ui/direct")
        explained = served.client.get(f"/api/reservations/{second}/explain").json()
        for reason in explained["reasons"]:
            expect(page.locator(f"#line-{second}")).to_contain_text(reason["detail"].split(" held by ")[0][:30])
        page.locator(f"#line-{second}").get_by_role("button", name="Cancel").click()
        expect(page.locator(f"#line-{second}")).to_have_count(0)
        expect(page.locator(f"#r-{second}")).to_contain_text("Cancelled")
    finally:
        open_gate(gate)
        for asker in askers:
            asker.join(30)
        client.close()
    served.wait_for(job["id"], "COMPLETED")


def _waiting(served: Served) -> list[str]:
    items = served.client.get("/api/reservations", params={"status": "ACTIVE"}).json()["items"]
    return [item["id"] for item in reversed(items) if item["granted_at"] is None]
