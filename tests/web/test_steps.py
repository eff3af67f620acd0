"""Steps on the job page: a bar for each, and a button that runs the chain again from there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served, open_gate, unique


@pytest.mark.rule("STEP-05", "STEP-06")
def test_steps_are_bars_and_a_completed_chain_is_run_again_from_one(served: Served, page: Page) -> None:
    job = served.run_job("stepped")
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    steps = page.locator("#steps li")
    expect(steps).to_have_count(2)
    expect(steps.nth(1).get_by_role("img")).to_have_attribute("aria-label", "second: took 0 s")
    steps.nth(1).get_by_role("button", name="Run again from here").click()
    page.wait_for_url(lambda url: url.rstrip("/").rpartition("/")[2] not in (job["id"], "jobs"))
    again = page.url.rpartition("/")[2]
    assert served.wait_for(again)["run"]["result"] == "one two"
    kept = served.client.get(f"/api/jobs/{again}/steps").json()["items"]
    assert [(step["name"], step["run_id"] == job["run"]["id"]) for step in kept] == [("first", True), ("second", False)]


@pytest.mark.rule("STEP-05")
def test_a_step_that_has_begun_is_shown_with_how_long_it_takes_and_as_a_bar_when_it_has_ended(
    served: Served, page: Page
) -> None:
    gate = unique("gate")
    job = served.submit("stepped", {"gate": gate})
    try:
        page.goto(f"{served.url}/ui/jobs/{job['id']}")
        steps = page.locator("#steps li")
        expect(steps).to_have_count(2)
        expect(steps.nth(0).get_by_role("img")).to_have_attribute("aria-label", re.compile("^first: took "))
        expect(steps.nth(1)).to_contain_text("second")
        expect(steps.nth(1)).to_contain_text("in progress for")
        expect(steps.nth(1).get_by_role("img")).to_have_count(0)
    finally:
        open_gate(gate)
    expect(steps.nth(1).get_by_role("img")).to_have_count(1)
    expect(steps.nth(1)).not_to_contain_text("in progress")
