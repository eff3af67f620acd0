"""What an operator does on a bad morning, in the browser: find one of 300, see what fails, pause twenty, retry all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdbeat.domain.api_key import Scope
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.transaction import Transaction
from tests.api.serving import Served
from tests.postgres import PostgresServer
from tests.waiting import eventually
from tests.web.conftest import Complaints, serve_at

SCHEDULES, OF_THE_SHOP, ENDPOINTS = 300, 20, 200
FOUND_WITHIN_MS = 5000
"""From the search to the page of the one schedule, on a busy machine too."""


@pytest.fixture(params=["sqlite", "postgres"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'holdbeat.db'}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        postgres.start()
        url = postgres.create_database()
    server = serve_at(url, is_key_needed=True)
    server.client = server.new_client(server.admin_key)
    yield server
    server.stop()
    if request.param == "postgres":
        postgres.drop_database(url)


def _make_schedules(tx: Transaction) -> None:
    for number in range(SCHEDULES):
        team = "shop" if number % (SCHEDULES // OF_THE_SHOP) == 0 else "mail"
        create_schedule(tx, {"name": f"report {number:03d}", "type": "anything", "interval_s": 86_400,
                             "labels": {"team": team}})  # fmt: skip
    for number in range(ENDPOINTS):
        values = {"name": f"page {number:03d}", "url": "http://127.0.0.1:9/", "interval_s": 86_400}
        create_schedule(tx, values, endpoint=True)


def _log_in(page: Page, served: Served, name: str) -> None:
    page.goto(served.url)
    page.get_by_label("API key").fill(served.add_key(Scope.WRITE, name))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Overview")


@pytest.mark.timeout(180)
@pytest.mark.rule("FND-01", "AUD-01", "UI-02")
def test_one_of_300_is_found_failing_endpoints_come_first_twenty_are_paused_all_failed_retried_and_who_did_it_is_said(
    guarded: Served, browser: Browser, complaints: Complaints
) -> None:
    guarded.store.write_sync(_make_schedules)
    for name, path in (("a page", "healthz"), ("z page", "nope")):
        body = {"name": name, "url": f"{guarded.url}/{path}", "interval_s": 3600}
        endpoint = guarded.client.post("/api/endpoints", json=body).json()["id"]
        guarded.wait_for(guarded.client.post(f"/api/endpoints/{endpoint}/trigger").json()["id"])
    for number in range(3):
        guarded.run_job("fail", {"message": f"{number}"}, title=f"Invoice {number}", retry_policy={"max_attempts": 0})
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    complaints.listen_to(page)
    try:
        _log_in(page, guarded, "anna")
        # One of 300.
        page.get_by_role("link", name="Schedules").click()
        rows = page.locator("#schedules tbody tr")
        expect(rows).to_have_count(50)
        page.get_by_role("searchbox").fill("report 217")
        expect(rows).to_have_count(1, timeout=FOUND_WITHIN_MS)
        rows.get_by_role("link", name="report 217").click()
        expect(page.locator("h1")).to_contain_text("report 217")
        page.go_back()
        # Twenty of one team.
        page.get_by_role("searchbox").fill("team=shop")
        expect(rows).to_have_count(OF_THE_SHOP)
        page.get_by_label("Select all rows").check()
        bar = page.get_by_role("region", name="Selected rows")
        bar.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator(".toast")).to_contain_text(f"Paused {OF_THE_SHOP}")
        expect(page.locator("#tabs a", has_text="Paused")).to_contain_text(str(OF_THE_SHOP))
        paused = guarded.client.get("/api/schedules", params={"paused": True, "limit": 100}).json()["items"]
        assert {schedule["labels"]["team"] for schedule in paused} == {"shop"} and len(paused) == OF_THE_SHOP
        # Which endpoints fail.
        page.get_by_role("link", name="Endpoints").click()
        expect(page.locator("#endpoints tbody tr").first).to_contain_text("z page")
        expect(page.locator("#endpoints tbody tr").first).to_contain_text("Failing")
        expect(page.locator("#tabs a", has_text="Failing")).to_contain_text("1")
        page.get_by_role("link", name="z page").click()
        expect(page.locator("#state")).to_contain_text("HTTP 401")
        # Everything that failed, once more.
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator("#tabs a", has_text="Failed").click()
        page.get_by_label("Type").select_option("fail")
        expect(page.locator("#jobs tbody tr")).to_have_count(3)
        page.get_by_role("button", name="Retry all…").click()
        expect(page.get_by_role("heading", name="Retry 3 jobs?")).to_be_visible()
        page.get_by_role("button", name="Retry", exact=True).click()
        expect(page.get_by_text("Retried 3 jobs")).to_be_visible()
        eventually(lambda: len(guarded.client.get("/api/jobs", params={"type": "fail"}).json()["items"]) == 6)
        # And who did it.
        page.get_by_role("link", name="Events").click()
        page.get_by_placeholder("Who: key, user or host").fill("anna")
        expect(page.locator("#events li", has_text="paused by anna")).to_have_count(OF_THE_SHOP)
        expect(page.locator("#events li", has_text="Invoice 2").last).to_contain_text("by anna")
        page.locator("#events li", has_text="Invoice 2").last.get_by_role("link").first.click()
        expect(page.locator("#events")).to_contain_text("by anna")
    finally:
        context.close()
    assert complaints == []
