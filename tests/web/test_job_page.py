"""One job: found by what the pages show of its id, changed while it waits, its error told from its first line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from holdbeat.domain.job import NewJob
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads import find_jobs
from tests.api.serving import Served
from tests.conformance.acts import enqueue_all, open_at
from tests.postgres import PostgresServer
from tests.waiting import eventually


@pytest.fixture(params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[PersistenceAdapter]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'holdbeat.db'}"
    else:
        postgres_server.start()
        url = postgres_server.create_database()
    opened = open_at(url)
    yield opened
    opened.close()
    if request.param == "postgres":
        postgres_server.drop_database(url)


@pytest.mark.rule("API-03")
def test_a_job_is_found_by_its_id_its_beginning_and_its_end(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = enqueue_all(store, [NewJob("crawl") for _ in range(5)])
    ids = sorted((job.id for job in jobs), reverse=True)

    def found(part: str) -> list[str]:
        return [job.id for job in store.read_sync(find_jobs.find_jobs, part)]

    assert found(ids[3]) == [ids[3]]
    assert found(f" {ids[3].upper()} ") == [ids[3]]
    assert found(ids[3][-8:]) == [ids[3]]
    assert found(ids[0][:9]) == ids
    for nonsense in ("", "%", "____", "' OR 1=1", f"{ids[0]}0"):
        assert found(nonsense) == []
    monkeypatch.setattr(find_jobs, "NEWEST", 2)
    assert found(ids[3][-8:]) == []
    assert found(ids[1][-8:]) == [ids[1]]
    assert found(ids[3]) == [ids[3]]


def test_the_last_digits_of_an_id_lead_to_its_job(served: Served, page: Page) -> None:
    expected = served.submit("anything", {}, delay_s=3600)["id"]
    other = served.submit("anything", {}, delay_s=3600)["id"]
    page.goto(f"{served.url}/ui/jobs")
    expect(page.locator(f"#j-{other}")).to_be_visible()
    page.get_by_role("searchbox").fill(expected[-8:])
    expect(page.locator(f"#j-{other}")).to_have_count(0)
    page.locator(f"#j-{expected}").get_by_role("link", name="anything").click()
    page.wait_for_url(f"**/ui/jobs/{expected}")
    page.goto(f"{served.url}/ui/jobs?q=ffffffff")
    expect(page.locator("#jobs")).to_contain_text("No such job")


def test_an_error_of_several_lines_is_told_by_its_first(served: Served, page: Page) -> None:
    job = served.run_job("fail", {"message": "boom\n\nwhile the lamp was on\n    at 3 volts"})
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    summary = page.locator("details.error summary")
    expect(summary.locator(".cut")).to_have_text("RuntimeError: boom")
    summary.click()
    expect(page.locator("details.error pre")).to_contain_text("at 3 volts")


@pytest.mark.rule("INV-001")
def test_the_turn_of_a_waiting_job_is_changed_on_its_page(served: Served, page: Page, complaints: list[str]) -> None:
    job_id = served.submit("anything", {}, delay_s=3600, priority=3)["id"]
    page.goto(f"{served.url}/ui/jobs/{job_id}")
    page.get_by_role("button", name="Change…").click()
    expect(page.get_by_label("Priority")).to_have_value("3")
    page.get_by_label("Priority").fill("40")
    page.get_by_label("Not before").fill("2099-01-01T00:00")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("#facts dt:text-is('Priority') + dd")).to_have_text("40")
    # The live update replaces the form as well.
    expect(page.get_by_text("Changed (not_before, priority)")).to_be_visible()
    changed = served.job(job_id)
    assert (changed["priority"], changed["not_before"][:4]) in ((40, "2099"), (40, "2098"))
    page.get_by_role("button", name="Change…").click()
    expect(page.get_by_label("Priority")).to_have_value("40")
    page.get_by_label("Priority").fill("101")
    # In one go: a live update in between would undo the first.
    page.locator("#change-dialog form").evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    expect(page.locator(".toast.bad")).to_contain_text("priority")
    assert served.job(job_id)["priority"] == 40
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Start without delay").click()
    expect(page.locator("#state .status")).to_contain_text("Completed")
    expect(page.get_by_role("button", name="Change…")).to_have_count(0)
    eventually(lambda: served.job(job_id)["status"] == "COMPLETED")
    # The browser itself notes the refusal.
    complaints[:] = [complaint for complaint in complaints if "422" not in complaint]


def test_a_chain_that_has_ended_offers_no_cancel_on_any_of_its_jobs(served: Served) -> None:
    policy = {"max_attempts": 1, "base_delay_s": 0}
    first = served.run_job("fail", {"message": "twice"}, retry_policy=policy)
    eventually(lambda: served.job(first["id"])["retried_by"] is not None)
    last = served.wait_for(served.job(first["id"])["retried_by"])
    for job in (first, last):
        page = served.client.get(f"/ui/jobs/{job['id']}").text
        assert "Cancel…" not in page and "Run again" in page


def test_a_completed_job_is_run_again_as_it_was(served: Served, page: Page) -> None:
    job = served.run_job("anything", {"said": "once"}, title="Say it", priority=4)
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "/ui/jobs/" in url and job["id"] not in url)
    again = served.job(page.url.rpartition("/")[2])
    assert (again["params"], again["title"], again["priority"]) == ({"said": "once"}, "Say it", 4)
