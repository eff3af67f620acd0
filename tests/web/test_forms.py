"""What is made on a page is made through the API; what that refuses stands beside its field, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import Page, expect

from holdbeat.domain.api_key import Scope
from tests.api.serving import Served, unique
from tests.web.conftest import Complaints, keep, serve_at
from tests.web.things import made


def _refusals_are_expected(complaints: Complaints, *statuses: int) -> None:
    """The browser itself notes every answer that is not a success; anything else is still a complaint."""
    marks = [f"status of {status}" for status in statuses]
    complaints[:] = [complaint for complaint in complaints if not any(mark in complaint for mark in marks)]


def _error(page: Page, field: str) -> str:
    place = page.locator(f"[data-field~='{field}']:visible .field-error")
    expect(place).to_be_visible()
    return place.inner_text()


def _refusal(served: Served, path: str, body: object) -> str:
    answer = served.client.post(path, json=body)
    assert 400 <= answer.status_code < 500
    detail: str = answer.json()["detail"]
    return detail


# --- jobs ---------------------------------------------------------------------------------------------------


def test_a_job_is_made_from_a_known_type_with_params_priority_and_delay(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/jobs")
    page.get_by_role("link", name="New job").click()
    page.get_by_label("Type").select_option("type:echo")
    expect(page.locator("#about")).to_contain_text("Gives back what it was given.")
    expect(page.locator("#about [data-about='type:echo'] tbody tr", has_text="text")).to_contain_text("string or null")
    page.locator("#p-echo-x").fill("17")
    page.locator("#p-echo-text").fill("made by hand")
    page.get_by_text("Labels, priority, delay").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Delay").fill("2")
    page.locator("[data-field=delay_s] [data-unit]").select_option("3600")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(lambda url: "/ui/jobs/01" in url)
    expect(page.locator(".toast")).to_have_text("Submitted")
    job = served.job(page.url.rpartition("/")[2])
    assert (job["type"], job["params"], job["priority"]) == ("echo", {"x": 17, "text": "made by hand"}, 7)
    wait = datetime.fromisoformat(job["not_before"]) - datetime.fromisoformat(job["created_at"])
    assert wait.total_seconds() == pytest.approx(7200, abs=1)


@pytest.mark.rule("API-01")
def test_what_the_api_refuses_stands_beside_its_field_and_what_was_typed_is_kept(
    served: Served, page: Page, complaints: Complaints
) -> None:
    page.goto(f"{served.url}/ui/jobs/new?type=echo")
    page.get_by_label("JSON", exact=True).check()
    page.get_by_label("Params").fill('{"x": "many"}')
    page.get_by_text("Labels, priority, delay").click()
    page.get_by_label("Priority").fill("seven")
    page.get_by_role("button", name="Submit job").click()
    body = {"type": "echo", "params": {"x": "many"}, "priority": "seven"}
    first = served.client.post("/api/jobs", json=body).json()
    assert _error(page, first["field"].partition(".")[0]).endswith(first["detail"])
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Submit job").click()
    assert _error(page, "params").endswith(_refusal(served, "/api/jobs", body | {"priority": 7}))
    expect(page.get_by_label("Params")).to_be_focused()
    expect(page.get_by_label("Params")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Params").fill('{"x": ')
    expect(page.locator("[data-field=params] .field-error")).to_be_hidden()
    page.get_by_role("button", name="Submit job").click()
    assert "params is not JSON" in _error(page, "params")
    expect(page.get_by_label("Params")).to_have_value('{"x": ')
    expect(page.get_by_label("Priority")).to_have_value("7")
    # Another type brings its own example, but never over something that a person wrote.
    page.get_by_label("Type").select_option("type:hold")
    expect(page.get_by_label("Params")).to_have_value('{"x": ')
    page.get_by_label("Params").fill("")
    page.get_by_label("Type").select_option("type:echo")
    page.get_by_label("Type").select_option("type:hold")
    expect(page.get_by_label("Params")).to_have_value('{\n  "gate": ""\n}')
    keep(page, "new-job")
    _refusals_are_expected(complaints, 422)


# --- schedules ----------------------------------------------------------------------------------------------


@pytest.mark.rule("TIME-08")
def test_a_schedule_shows_its_next_times_with_the_jumps_of_the_clock_before_it_is_saved(
    served: Served, page: Page, complaints: Complaints
) -> None:
    name = unique("nightly")
    page.goto(f"{served.url}/ui/schedules")
    page.get_by_role("link", name="New schedule").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Timezone").fill("Europe/Berlin")
    page.get_by_label("Cron", exact=True).fill("30 2 25-31 3 *")
    expect(page.locator("#preview tbody tr:not(.clock-change)")).to_have_count(10)
    expect(page.locator("#preview .clock-change")).to_contain_text("clocks go from")
    expect(page.locator("#preview .badge", has_text="DST gap").first).to_be_visible()
    page.get_by_label("Cron", exact=True).fill("61 * * * *")
    refused = _refusal(served, "/api/schedules/preview", {"cron": "61 * * * *"})
    expect(page.locator("#preview .notice")).to_contain_text(refused)
    page.get_by_label("Job type or template").select_option("type:anything")
    page.get_by_label("JSON", exact=True).check()
    page.get_by_label("Params").fill('{"said": "goodnight"}')
    page.get_by_role("button", name="Save schedule").click()
    assert _error(page, "cron").endswith(refused)
    page.get_by_label("Cron", exact=True).fill("30 2 25-31 3 *")
    page.get_by_label("Timezone").fill("Mars/Olympus")
    page.get_by_role("button", name="Save schedule").click()
    assert "Mars/Olympus" in _error(page, "timezone")
    page.get_by_label("Timezone").fill("Europe/Berlin")
    keep(page, "new-schedule")
    page.get_by_role("button", name="Save schedule").click()
    page.wait_for_url(lambda url: "/ui/schedules/01" in url)
    expect(page.locator("h1")).to_contain_text(name)
    saved = served.client.get(f"/api/schedules/{name}").json()
    assert (saved["cron"], saved["timezone"], saved["type"]) == ("30 2 25-31 3 *", "Europe/Berlin", "anything")
    assert saved["params"] == {"said": "goodnight"}
    _refusals_are_expected(complaints, 422)


def test_a_job_is_made_from_a_template(served: Served, page: Page, complaints: Complaints) -> None:
    body = {"name": unique("t"), "type": "echo", "default_params": {"x": 5, "text": "kept"}}
    body["description"] = "Says five."
    template = made(served.client.post("/api/job-templates", json=body))
    page.goto(f"{served.url}/ui/jobs/new?type=echo")
    page.get_by_label("Type or template").select_option(f"template:{template['id']}")
    expect(page.locator("#about")).to_contain_text("Says five.")
    page.get_by_label("JSON", exact=True).check()
    page.get_by_label("JSON", exact=True).check()
    page.get_by_label("Params").fill('{"x": 6}')
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(lambda url: "/ui/jobs/0" in url)
    expect(page.locator("#facts")).to_contain_text(template["name"])
    job = served.job(page.url.rpartition("/")[2])
    assert (job["template_id"], job["params"]) == (template["id"], {"x": 6, "text": "kept"})


def test_a_schedule_runs_a_template_every_so_often(served: Served, page: Page, complaints: Complaints) -> None:
    name = unique("tpl")
    template = made(
        served.client.post("/api/job-templates", json={"name": name, "type": "echo", "default_params": {"x": 5}})
    )
    page.goto(f"{served.url}/ui/schedules/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("at an interval").check()
    expect(page.get_by_label("Cron", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Save schedule").click()
    missing = _refusal(served, "/api/schedules", {"name": name, "type": "echo"})
    assert _error(page, "interval_s").endswith(missing)
    page.get_by_label("Every", exact=True).fill("90")
    expect(page.locator("#preview tbody tr")).to_have_count(10)
    page.get_by_label("Job type or template").select_option(f"template:{template['id']}")
    expect(page.locator("#about")).to_contain_text("Makes echo jobs")
    page.get_by_label("adaptive").check()
    page.get_by_role("button", name="Save schedule").click()
    page.wait_for_url(lambda url: "/ui/schedules/01" in url)
    saved = served.client.get(f"/api/schedules/{name}").json()
    assert (saved["template_id"], saved["interval_s"], saved["adaptive"]) == (template["id"], 5400, True)
    _refusals_are_expected(complaints, 422)


# --- endpoints ----------------------------------------------------------------------------------------------


@pytest.mark.rule("GOV-05")
def test_an_endpoint_is_tried_and_then_saved_with_its_bounds(
    served: Served, page: Page, complaints: Complaints
) -> None:
    name = unique("shop")
    page.goto(f"{served.url}/ui/endpoints")
    page.get_by_role("link", name="New endpoint").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("URL").fill("ftp://example.org/")
    page.get_by_role("button", name="Test call").click()
    expect(page.locator("[data-tried] .notice")).to_be_visible()
    page.get_by_role("button", name="Save endpoint").click()
    assert "http" in _error(page, "url")
    page.get_by_label("URL").fill(f"{served.url}/healthz")
    page.get_by_role("button", name="Test call").click()
    expect(page.locator("[data-tried]")).to_contain_text("It answered 200")
    expect(page.locator("[data-tried] pre")).to_contain_text('"status": "ok"')
    page.get_by_label("Every", exact=True).fill("10")
    page.get_by_label("Minimum interval").fill("900")
    page.get_by_label("Maximum interval").fill("300")
    page.get_by_role("button", name="Save endpoint").click()
    assert "min_interval_s (900) must not exceed max_interval_s (300)" in _error(page, "min_interval_s")
    page.get_by_label("Minimum interval").fill("30")
    page.get_by_label("Maximum interval").fill("1")
    page.locator("[data-field=max_interval_s] [data-unit]").select_option("3600")
    page.get_by_text("Headers, body, timeout").click()
    page.get_by_label("Headers").fill('{"X-About": "yes"}')
    keep(page, "new-endpoint")
    page.get_by_role("button", name="Save endpoint").click()
    page.wait_for_url(lambda url: "/ui/endpoints/01" in url)
    expect(page.locator("#health")).to_be_visible()
    saved = served.client.get(f"/api/endpoints/{name}").json()
    assert saved["headers"] == {"X-About": "yes"}
    assert (saved["interval_s"], saved["min_interval_s"], saved["max_interval_s"]) == (600, 30, 3600)
    _refusals_are_expected(complaints, 422, 502)


# --- webhooks -----------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-07")
def test_a_webhook_is_saved_and_its_secret_is_shown_once(served: Served, page: Page, complaints: Complaints) -> None:
    page.goto(f"{served.url}/ui/webhooks")
    page.get_by_role("link", name="New webhook").click()
    page.get_by_label("URL").fill("nowhere")
    page.get_by_label("job.run.failed").check()
    page.get_by_role("button", name="Save webhook").click()
    assert _error(page, "url").endswith(_refusal(served, "/api/webhooks", {"url": "nowhere"}))
    expect(page.get_by_label("job.run.failed")).to_be_checked()
    url = f"http://127.0.0.1:9/{unique('hook')}"
    page.get_by_label("URL").fill(url)
    page.get_by_role("button", name="Save webhook").click()
    expect(page.locator("#made")).to_contain_text(url)
    secret = page.locator("[data-shown=secret]").inner_text()
    assert secret.startswith("whsec_")
    expect(page.locator("#form")).to_be_hidden()
    answer = [item for item in served.client.get("/api/webhooks").json()["items"] if item["url"] == url]
    assert [item["events"] for item in answer] == [["job.run.failed"]]
    page.get_by_role("link", name="Back to webhooks").click()
    expect(page.locator("#subscriptions")).to_contain_text(url)
    assert secret not in page.content()
    assert secret not in served.client.get("/ui/webhooks").text
    assert secret not in json.dumps(answer)
    _refusals_are_expected(complaints, 422)


# --- keys ---------------------------------------------------------------------------------------------------

FORMS = ("/ui/jobs/new", "/ui/schedules/new", "/ui/endpoints/new", "/ui/webhooks/new")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = serve_at(f"sqlite:///{tmp_path_factory.mktemp('store') / 'holdbeat.db'}", is_key_needed=True)
    yield server
    server.stop()


@pytest.mark.rule("SEC-02")
def test_a_key_that_may_only_read_gets_no_form_and_one_that_writes_makes_a_job(guarded: Served, page: Page) -> None:
    for scope in (Scope.READ, Scope.WRITE):
        page.context.clear_cookies()
        page.goto(f"{guarded.url}/login")
        page.get_by_label("API key").fill(guarded.add_key(scope, str(scope)))
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("h1")).to_have_text("Overview")
        for path in FORMS:
            page.goto(guarded.url + path)
            assert page.locator("[data-make]").count() == (scope is Scope.WRITE), path
            if scope is Scope.READ:
                expect(page.locator("main")).to_contain_text("This key is read-only")
    page.goto(f"{guarded.url}/ui/jobs/new?type=echo")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(lambda url: "/ui/jobs/01" in url)
    expect(page.locator("h1")).to_contain_text("echo")
