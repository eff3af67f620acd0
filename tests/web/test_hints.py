"""Hints are given on the page of a schedule, and the page says what came of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served, unique
from tests.web.conftest import Complaints
from tests.web.things import made


def _endpoint(served: Served) -> tuple[str, str]:
    fields = {"name": unique("e"), "url": f"{served.url}/healthz", "interval_s": 36_000}
    answer = made(served.client.post("/api/endpoints", json=fields))
    return f"/api/endpoints/{answer['id']}", f"{served.url}/ui/endpoints/{answer['id']}"


@pytest.mark.rule("GOV-08")
def test_a_pace_and_a_single_run_are_asked_for_in_one_hint(served: Served, page: Page) -> None:
    api, output = _endpoint(served)
    page.goto(output)
    hints = page.locator("#hints")
    hints.get_by_label("Every", exact=True).fill("15")
    at = (datetime.now(UTC) + timedelta(minutes=45)).replace(second=0, microsecond=0)
    wall = page.evaluate(
        "(at) => { const d = new Date(at); return new Date(d - d.getTimezoneOffset() * 60000).toISOString() }",
        at.isoformat(),
    )
    hints.get_by_label("Run once at").fill(wall[:16])
    hints.get_by_label("Expires after").fill("2")
    hints.locator("[data-field=ttl_s] [data-unit]").select_option("3600")
    hints.get_by_label("Reason").fill("release day")
    hints.get_by_role("button", name="Set hint").click()
    element = hints.get_by_role("status")
    expect(element).to_contain_text("Hint set: every 15 min until")
    expect(element).to_contain_text("and one run at")
    expect(element).to_contain_text("The next run is at")
    expect(element).to_contain_text("decided by: hint interval")
    expect(hints.locator("#hint-pace")).to_contain_text("15 min")
    expect(hints.locator("#hint-once")).to_contain_text("release day")
    saved = served.client.get(api).json()
    assert (saved["hint_interval_s"], saved["hint_interval_reason"]) == (900, "release day")
    assert datetime.fromisoformat(saved["hint_next_run_at"]) == at
    lives = datetime.fromisoformat(saved["hint_interval_expires_at"]) - datetime.now(UTC)
    assert lives.total_seconds() == pytest.approx(7200, abs=60)
    hints.get_by_role("button", name="Clear hints").click()
    expect(hints.locator("#hint-once")).to_have_count(0)


@pytest.mark.rule("GOV-08")
def test_a_hint_that_is_refused_says_why_beside_its_field_and_stays(
    served: Served, page: Page, complaints: Complaints
) -> None:
    api, output = _endpoint(served)
    page.goto(output)
    hints = page.locator("#hints")
    hints.get_by_label("Reason").fill("a reason alone")
    hints.get_by_role("button", name="Set hint").click()
    expect(hints.locator("[data-field=interval_s] .field-error")).to_contain_text("interval_s, next_run_at, or both")
    # News of the schedule leaves the form and its words as they are.
    served.client.post(f"{api}/pause", json={"reason": "news"}).raise_for_status()
    expect(page.locator("#state")).to_contain_text("Paused")
    expect(hints.get_by_label("Reason")).to_have_value("a reason alone")
    expect(hints.locator("[data-field=interval_s] .field-error")).to_be_visible()
    assert served.client.get(api).json()["hint_interval_s"] is None
    complaints[:] = [complaint for complaint in complaints if "422" not in complaint]


@pytest.mark.rule("GOV-08")
def test_a_plain_schedule_is_made_adaptive_and_then_takes_a_hint(served: Served, page: Page) -> None:
    fields = {"name": unique("s"), "interval_s": 36_000, "type": "anything"}
    schedule = made(served.client.post("/api/schedules", json=fields))
    page.goto(f"{served.url}/ui/schedules/{schedule['id']}")
    expect(page.locator("#hints")).to_contain_text("Only adaptive schedules accept hints")
    page.get_by_role("link", name="Make it adaptive").click()
    # One click alone changes nothing.
    assert served.client.get(f"/api/schedules/{schedule['id']}").json()["adaptive"] is False
    page.get_by_label("adaptive").check()
    page.get_by_role("button", name="Save changes").click()
    page.locator("#hints").get_by_label("Every", exact=True).fill("20")
    page.get_by_role("button", name="Set hint").click()
    expect(page.locator("#hints").get_by_role("status")).to_contain_text("every 20 min")
    saved = served.client.get(f"/api/schedules/{schedule['id']}").json()
    assert (saved["adaptive"], saved["hint_interval_s"]) == (True, 1200)
