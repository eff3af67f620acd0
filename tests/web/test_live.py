"""Pages follow the scheduler by themselves, and lose nothing when the line is cut."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.api.serving import Served, open_gate, unique


def _was_reloaded(page: Page) -> bool:
    return page.evaluate("window.marked !== true")  # type: ignore[no-any-return]


def _open(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("[data-pulse]")).to_have_text("Live")
    page.evaluate("window.marked = true")


@pytest.mark.rule("API-04")
def test_the_overview_shows_a_job_start_and_end_without_a_reload(served: Served, page: Page) -> None:
    _open(page, served.url)
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    link = page.locator(f"#slots a[href='/ui/jobs/{job['id']}']")
    expect(link).to_be_visible()
    open_gate(gate)
    expect(link).to_have_count(0)
    expect(page.locator("#throughput rect.bar").first).to_be_attached()
    assert not _was_reloaded(page)


@pytest.mark.rule("API-04")
def test_a_job_s_page_follows_its_log_progress_and_end(served: Served, page: Page) -> None:
    gate = unique("gate")
    job = served.submit("chat", {"lines": 3, "gate": gate})
    _open(page, f"{served.url}/ui/jobs/{job['id']}")
    log = page.locator("[data-log]")
    expect(log).to_contain_text("line 2")
    expect(page.locator("#state .status")).to_contain_text("Running")
    open_gate(gate)
    expect(log).to_contain_text("last")
    expect(page.locator("#state .status")).to_contain_text("Completed")
    expect(page.locator("[data-log-state]")).to_have_text("complete")
    texts = log.locator("div").all_text_contents()
    assert [text[-6:] for text in texts] == ["line 0", "line 1", "line 2", texts[3][-6:]]
    assert not _was_reloaded(page)


def test_what_the_reader_opened_and_typed_stays_while_the_page_changes(served: Served, page: Page) -> None:
    job = served.run_job("fail", {"message": "a long story"})
    _open(page, f"{served.url}/ui/jobs/{job['id']}")
    page.locator("details.error summary").click()
    served.client.post(f"/api/jobs/{job['id']}/retry").raise_for_status()
    expect(page.locator("#chain")).to_contain_text("Retried manually")
    expect(page.locator("details.error pre")).to_be_visible()
    _open(page, f"{served.url}/ui/events")
    page.get_by_role("searchbox", name="Search").fill("job.queued")
    served.run_job("echo")
    expect(page.locator("#events li:visible").first).to_contain_text("job.queued")
    expect(page.get_by_role("searchbox", name="Search")).to_have_value("job.queued")


def test_a_page_that_lost_the_server_says_so_and_comes_back(
    served: Served, page: Page, context: BrowserContext, complaints: list[str]
) -> None:
    _open(page, f"{served.url}/ui/queue")
    context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    job = served.submit("echo", {}, delay_s=3600)
    context.set_offline(False)
    expect(page.locator(f"#q-{job['id']}")).to_be_visible()
    assert not _was_reloaded(page)
    complaints.clear()


def test_artifacts_can_be_downloaded(served: Served, page: Page) -> None:
    job = served.run_job("draw")
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    with page.expect_download() as taken:
        page.get_by_role("link", name="picture.bin").click()
    assert taken.value.suggested_filename == "picture.bin"
    with open(taken.value.path(), "rb") as file:
        assert file.read() == b"\x00\x01picture"


def test_the_timeline_draws_runs_and_marks_direct_requests(served: Served, page: Page) -> None:
    job = served.run_job("echo")
    served.client.post("/api/direct/echo", json={}).raise_for_status()
    page.goto(f"{served.url}/ui/timeline?zoom=15m")
    expect(page.locator(f".timeline a[href='/ui/jobs/{job['id']}'] rect")).to_be_attached()
    expect(page.locator(".timeline .bar.is-direct").first).to_be_attached()
    page.get_by_role("link", name="6 hours").click()
    expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
