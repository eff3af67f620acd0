"""Lists that people work with: they are searched while one types, counted, and say what happened in sentences."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from holdbeat.web.rendering import environment
from tests.api.serving import Served, unique
from tests.web.conftest import Complaints
from tests.web.things import made


@pytest.mark.rule("TTL-01")
def test_a_job_is_shown_by_its_title_and_found_by_it_while_one_types(page: Page, served: Served) -> None:
    title = unique("A tale of <b>foxes</b> ")
    job = served.submit("anything", {}, delay_s=3600, title=title)
    served.submit("anything", {}, delay_s=3600, title=unique("Other"))
    page.goto(f"{served.url}/ui/jobs")
    page.get_by_role("searchbox").type(title[:30])
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.locator("#jobs tbody tr")).to_contain_text(title)
    page.reload()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    expect(page.locator("h1")).to_contain_text(title)


def test_a_job_is_found_by_a_part_of_its_id_by_a_label_and_by_a_param(served: Served) -> None:
    team, word = unique("team"), unique("word")
    job = served.submit("anything", {"said": word}, delay_s=3600, labels={"team": team})
    for text in (job["id"][:13], job["id"][-9:], f"team={team}", word):
        page = served.client.get("/ui/jobs", params={"q": text}).text
        assert page.count('<tr id="j-') == 1 and job["id"] in page, text
    assert 'tr id="j-' not in served.client.get("/ui/jobs", params={"q": "100%_nothing"}).text


def test_a_filter_that_cannot_be_read_is_said_above_the_whole_list(served: Served) -> None:
    job = served.submit("anything", {}, delay_s=3600)
    answer = served.client.get("/ui/jobs", params={"label": "nonsense"})
    assert answer.status_code == 200
    assert "name=value" in answer.text and job["id"] in answer.text


@pytest.mark.parametrize("path", ["/ui/groups?status=NOPE", "/ui/jobs?cursor=changed"])
def test_a_page_that_is_refused_for_its_query_leads_to_the_whole_list(path: str, served: Served) -> None:
    answer = served.client.get(path)
    assert answer.status_code == 422
    assert f'href="{path.partition("?")[0]}">Show all<' in answer.text


def test_the_tab_that_is_shown_is_in_sight_on_a_phone(page: Page, served: Served) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{served.url}/ui/jobs?status=CANCELLED")
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)
    expect(page.locator(".tabs a").first).not_to_be_in_viewport()
    assert page.evaluate("scrollX") == 0


def test_all_failed_jobs_of_a_list_are_retried_after_a_question_that_says_how_many(page: Page, served: Served) -> None:
    label = unique("retry")
    for number in range(3):
        served.run_job("fail", {"message": f"{number}"}, labels={"set": label}, retry_policy={"max_attempts": 0})
    page.goto(f"{served.url}/ui/jobs?status=FAILED&label=set%3D{label}")
    page.get_by_role("button", name="Retry all…").click()
    expect(page.get_by_role("heading", name="Retry 3 jobs?")).to_be_visible()
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_text("Retried 3 jobs")).to_be_visible()


def test_schedules_are_found_paused_and_resumed_in_their_row_with_undo(page: Page, served: Served) -> None:
    name = unique("report ")
    schedule = made(served.client.post("/api/schedules", json={"name": name, "cron": "0 3 * * 1", "type": "anything"}))
    for _ in range(2):
        made(served.client.post("/api/schedules", json={"name": unique("x"), "interval_s": 60, "type": "anything"}))
    page.goto(f"{served.url}/ui/schedules")
    page.get_by_role("searchbox").type(name)
    row = page.locator("#schedules tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Mondays at 03:00")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    page.get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("Active")
    row.get_by_role("button", name="Run", exact=True).click()
    expect(row.locator(".outcomes a")).to_have_count(1)
    assert served.client.get(f"/api/schedules/{schedule['id']}").json()["paused_until"] is None


def test_a_schedule_is_run_and_paused_in_its_row_on_a_phone(page: Page, served: Served) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    name = unique("report ")
    body = {"name": name, "cron": "0 3 * * 3", "type": "anything", "labels": {"team": "shop"}}
    made(served.client.post("/api/schedules", json=body))
    page.goto(f"{served.url}/ui/schedules?q={name}")
    row = page.locator("#schedules tbody tr")
    for label in ("Run", "Pause"):
        box = row.get_by_role("button", name=label, exact=True).bounding_box()
        assert box is not None and box["height"] >= 32 and box["x"] + box["width"] <= 390
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("Active")


def test_a_schedule_takes_one_line_of_a_list_and_two_on_a_phone(page: Page, served: Served) -> None:
    name = unique("backup ")
    body = {"name": name, "cron": "59 11 * * 3", "type": "anything", "labels": {"team": "books"}}
    made(served.client.post("/api/schedules", json=body))
    for width, most in ((1440, 40), (390, 72)):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{served.url}/ui/schedules?q={name}")
        row = page.locator("#schedules tbody tr")
        expect(row).to_contain_text("Wednesdays at 11:59")
        box = row.bounding_box()
        assert box is not None and box["height"] <= most, (width, box)
    long = {"name": unique("page "), "url": f"{served.url}/{'path/' * 20}", "interval_s": 3600, "labels": {"team": "a"}}
    made(served.client.post("/api/endpoints", json=long))
    page.set_viewport_size({"width": 1440, "height": 800})
    page.goto(f"{served.url}/ui/endpoints?q={long['name']}")
    box = page.locator("#endpoints tbody tr").bounding_box()
    assert box is not None and box["height"] <= 40, box


DISTANCES = {
    40: "in 40 s", 119: "in 2 min", 3540: "in 59 min", 3599: "in 1 h", 7500: "in 2 h 5 min", 71_999: "in 20 h",
    86_399: "in 1 d", 115_200: "in 1 d 8 h", 1_000_000: "in 12 d", -3720: "1 h 2 min ago", -59: "59 s ago",
}  # fmt: skip


def test_distances_of_time_have_as_few_parts_as_they_need_on_the_page_and_as_they_tick(
    page: Page, served: Served
) -> None:
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    template = environment().from_string("{{ when(at) }}")
    times = [
        template.render(at=now + timedelta(seconds=seconds), now=now, zone=ZoneInfo("UTC")) for seconds in DISTANCES
    ]
    for html, words in zip(times, DISTANCES.values(), strict=True):
        assert f">{words}</time>" in html
    page.goto(f"{served.url}/ui/settings")
    page.evaluate(
        """async ([html, now]) => {
            document.querySelector("main").innerHTML = html.replaceAll(/>[^<]+</g, ">?<");
            const script = [...document.scripts].find((each) => each.src.includes("app.js"));
            (await import(script.src.replace("app.js", "times.js"))).updateTimes(now);
        }""",
        ["".join(times), now.isoformat()],
    )
    assert page.locator("main time").all_text_contents() == list(DISTANCES.values())


def test_what_fails_comes_first_among_endpoints_and_has_a_tab_of_its_own(served: Served) -> None:
    good = made(
        served.client.post(
            "/api/endpoints", json={"name": unique("a"), "url": f"{served.url}/healthz", "interval_s": 3600}
        )
    )
    bad = made(
        served.client.post(
            "/api/endpoints", json={"name": unique("z"), "url": f"{served.url}/nope", "interval_s": 3600}
        )
    )
    served.wait_for(made(served.client.post(f"/api/endpoints/{bad['id']}/trigger"))["id"])
    page = served.client.get("/ui/endpoints").text
    assert page.index(bad["id"]) < page.index(good["id"])
    failing = served.client.get("/ui/endpoints", params={"state": "failing"}).text
    assert bad["id"] in failing and good["id"] not in failing


def test_events_are_sentences_with_names_and_are_found_by_them_on_the_server(served: Served) -> None:
    title = unique("A tale ")
    job = served.run_job("anything", {}, title=title)
    for _ in range(40):
        served.submit("anything", {}, delay_s=3600)
    page = served.client.get("/ui/events", params={"q": title}).text
    assert page.count('<li id="e-') == 2, "submitted and completed; the start is routine"
    assert f"<b>{title}</b></a> submitted" in page and f"<b>{title}</b></a> completed" in page
    everything = served.client.get("/ui/events", params={"q": job["id"][-12:], "show": "all"}).text
    assert everything.count('<li id="e-') == 3
    failed = unique("A sad tale ")
    served.run_job("fail", {"message": "the well is dry"}, title=failed, retry_policy={"max_attempts": 0})
    page = served.client.get("/ui/events", params={"q": failed}).text
    assert re.search(f"<b>{failed}</b></a> failed: \\w+: the well is dry", page)
    assert f"<b>{failed}</b></a> failed permanently: it has no automatic retries" in page


@pytest.mark.rule("AUD-01", "FND-01")
def test_events_are_narrowed_down_to_who_acted_and_to_a_time(page: Page, served: Served) -> None:
    title = unique("A tale ")
    served.submit("anything", {}, title=title, delay_s=3600)
    page.goto(f"{served.url}/ui/events?q={title}")
    shown = page.locator("#events li[id]")
    expect(shown).to_have_count(1)
    page.get_by_role("searchbox", name="Who").fill("nobody of this name")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    page.get_by_role("searchbox", name="Who").fill("a caller without a key")
    expect(shown).to_have_count(1)
    page.locator("select[name=period]").select_option("Last hour")
    expect(shown).to_have_count(1)
    expect(page).to_have_url(re.compile("period=hour"))


def test_a_webhook_gets_a_test_message_and_its_deliveries_are_shown_apart(page: Page, served: Served) -> None:
    first, second = (
        made(served.client.post("/api/webhooks", json={"url": f"{served.url}/{unique('hook')}"})) for _ in range(2)
    )
    page.goto(f"{served.url}/ui/webhooks")
    page.locator(f"#w-{first['id']}").get_by_role("button", name="Send test").click()
    sent = page.locator("#deliveries tbody tr").filter(has_text="webhook.test")
    expect(sent).to_have_count(1)
    page.get_by_label("Subscription").select_option(second["id"])
    expect(page.get_by_text("No deliveries to this subscription")).to_be_visible()
    page.get_by_label("Subscription").select_option(first["id"])
    expect(sent).to_have_count(1)
    for webhook in (first, second):
        served.client.delete(f"/api/webhooks/{webhook['id']}").raise_for_status()


@pytest.mark.rule("UI-02")
def test_pausing_everything_asks_and_its_reason_stands_on_top_of_queue_and_overview(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/ui/queue")
    page.get_by_role("button", name="Pause everything…").click()
    page.get_by_label("Reason").and_(page.locator("#pause-dialog *")).fill("a new model is loaded")
    page.get_by_role("button", name="Pause", exact=True).click()
    banner = page.locator(".banner")
    expect(banner).to_contain_text("a new model is loaded")
    page.goto(served.url)
    expect(banner).to_contain_text("Everything is paused")
    expect(page.locator(".all-well")).to_have_count(0)
    banner.get_by_role("button", name="Resume").click()
    expect(banner).to_have_count(0)


@pytest.mark.rule("UI-02")
def test_a_move_in_the_queue_can_be_undone(page: Page, served: Served) -> None:
    served.client.post("/api/queue/pause", json={"resource": "default"}).raise_for_status()
    priority, jobs = 77, []
    try:
        jobs = [served.submit("anything", {}, priority=priority, title=f"Job {number}") for number in range(3)]
        page.goto(f"{served.url}/ui/queue")
        rows = page.locator(f"tr[data-priority='{priority}'] .name b")
        expect(rows).to_have_text(["Job 0", "Job 1", "Job 2"])
        page.locator(f"#q-{jobs[2]['id']}").focus()
        page.keyboard.press("t")
        expect(rows).to_have_text(["Job 2", "Job 0", "Job 1"])
        page.get_by_role("button", name="Undo").click()
        expect(rows).to_have_text(["Job 0", "Job 1", "Job 2"])
    finally:
        for job in jobs:
            served.client.post(f"/api/jobs/{job['id']}/cancel")
        served.client.post("/api/queue/resume", json={"resource": "default"}).raise_for_status()


def test_a_server_that_is_away_is_said_in_a_sentence(page: Page, served: Served, complaints: Complaints) -> None:
    job = served.submit("anything", {}, delay_s=3600)
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    page.route("**/api/jobs/**", lambda route: route.abort())
    page.get_by_role("button", name="Start without delay").click()
    expect(page.locator(".toast.bad")).to_contain_text("The server cannot be reached")
    page.goto(f"{served.url}/ui/direct?type=anything")
    page.route("**/api/direct/**", lambda route: route.abort())
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("The server cannot be reached")
    page.goto(f"{served.url}/docs")
    entry = page.locator("details", has=page.locator("form[data-method=post][data-path='/api/jobs']"))
    entry.locator("summary").click()
    page.route("**/api/jobs", lambda route: route.abort())
    entry.get_by_role("button", name="Send POST").click()
    expect(entry.locator("[data-state]")).to_contain_text("The server cannot be reached")
    # The browser itself notes the failures.
    complaints.clear()


@pytest.mark.parametrize("cut", ["event: waiting\ndata: {}\n\n", ""])
def test_a_direct_request_whose_stream_is_cut_off_says_so(cut: str, page: Page, served: Served) -> None:
    page.goto(f"{served.url}/ui/direct?type=anything")
    page.route("**/api/direct/**", lambda route: route.fulfill(body=cut, content_type="text/event-stream"))
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("The connection to the server was lost")


@pytest.mark.rule("UI-01")
def test_times_are_shown_in_the_browser_s_zone_or_in_the_one_that_was_chosen(
    context: BrowserContext, served: Served
) -> None:
    browser = context.browser
    assert browser is not None
    job = served.submit("anything", {}, not_before="2036-07-01T12:00:00Z")
    reader = browser.new_context(timezone_id="Asia/Tokyo")
    page = reader.new_page()
    page.goto(f"{served.url}/ui/queue")
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
    row = page.locator(f"#q-{job['id']}")
    expect(row).to_contain_text("2036-07-01 21:00:00")
    page.get_by_label("Time zone").focus()
    page.get_by_label("Time zone").select_option("America/New_York")
    expect(row).to_contain_text("2036-07-01 08:00:00")
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    page.get_by_role("button", name="Change…").click()
    page.locator("input[name=not_before]").fill("2036-07-01T09:00")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator(".toast")).to_have_text("Changed")
    assert served.client.get(f"/api/jobs/{job['id']}").json()["not_before"] == "2036-07-01T13:00:00.000Z"
    reader.close()


@pytest.mark.rule("UI-01")
def test_the_due_times_of_a_schedule_are_shown_in_its_zone_and_the_reader_s(served: Served) -> None:
    body = {"name": unique("z"), "cron": "0 3 * * *", "timezone": "Asia/Seoul", "type": "anything"}
    schedule = made(served.client.post("/api/schedules", json=body))
    page = served.client.get(
        f"/ui/schedules/{schedule['id']}", headers={"cookie": "holdbeat_zone=auto:Europe/Vienna"}
    ).text
    assert "<th>Asia/Seoul</th><th>Europe/Vienna</th>" in page
    unknown = served.client.get(
        f"/ui/schedules/{schedule['id']}", headers={"cookie": "holdbeat_zone=../etc/passwd"}
    ).text
    assert "<th>Asia/Seoul</th><th>UTC</th>" in unknown
