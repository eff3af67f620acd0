"""What is changed or deleted on a page: only what was touched, and never over somebody else's change."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.serving import Served, unique
from tests.web.conftest import Complaints, choose, keep
from tests.web.things import made


def _schedule(served: Served, **fields: Any) -> dict[str, Any]:
    body = {"name": unique("nightly"), "cron": "0 3 * * *", "timezone": "Europe/Berlin", "type": "anything"} | fields
    return made(served.client.post("/api/schedules", json=body))


def _get(served: Served, made: dict[str, Any], kind: str = "schedules") -> dict[str, Any]:
    body: dict[str, Any] = served.client.get(f"/api/{kind}/{made['id']}").json()
    return body


@pytest.mark.rule("TIME-08", "API-02")
def test_a_schedule_is_changed_from_cron_to_every_so_often_and_what_was_not_touched_stays(
    served: Served, page: Page, complaints: Complaints
) -> None:
    made = _schedule(served, params={"said": "old"}, labels={"team": "a"}, overlap="queue_one")
    page.goto(f"{served.url}/ui/schedules/{made['id']}")
    page.get_by_role("link", name="Change…").click()
    expect(page.get_by_label("Cron", exact=True)).to_have_value("0 3 * * *")
    expect(page.locator("#preview tbody tr:not(.clock-change)")).to_have_count(10)
    expect(page.get_by_label("Minimum interval")).to_have_count(0)
    page.get_by_label("at an interval").check()
    page.get_by_label("Every", exact=True).fill("90")
    # The type takes any params, so that they are JSON from the start.
    page.get_by_label("Params as a JSON object").fill('{"said": "new"}')
    expect(page.get_by_label("Labels")).to_have_value("team=a")
    page.get_by_text("Overlap, missed runs").click()
    page.get_by_label("If the previous job").select_option("skip")
    keep(page, "change-schedule")
    page.get_by_role("button", name="Save changes").click()
    page.wait_for_url(f"{served.url}/ui/schedules/{made['id']}")
    expect(page.locator(".toast")).to_have_text("Changed")
    after = _get(served, made)
    assert (after["cron"], after["interval_s"], after["params"]) == (None, 5400, {"said": "new"})
    assert after["overlap"] == "skip"
    untouched = ("name", "timezone", "labels", "type", "catch_up", "dst", "adaptive")
    assert {name: after[name] for name in untouched} == {name: made[name] for name in untouched}


@pytest.mark.rule("API-02")
def test_params_are_changed_in_the_fields_of_the_type_or_as_json_and_labels_and_options_beside_them(
    served: Served, page: Page
) -> None:
    made = _schedule(served, type="echo", params={"x": 3, "text": "a"}, labels={"team": "a"}, jitter_s=5)
    page.goto(f"{served.url}/ui/schedules/{made['id']}/change")
    expect(page.get_by_label("Job type or template")).to_have_value("type:echo")
    expect(page.locator("#p-echo-text")).to_have_value("a")
    page.locator("#p-echo-x").fill("4")
    page.get_by_label("JSON", exact=True).check()
    expect(page.get_by_label("Params as a JSON object")).to_have_value('{\n  "text": "a",\n  "x": 4\n}')
    page.get_by_label("Params as a JSON object").fill('{"x": 7}')
    page.get_by_label("Labels").fill("team")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("#e-labels")).to_have_text("Write team as name=value.")
    page.get_by_label("Labels").fill("team=b, zone=eu")
    page.get_by_text("Priority, jitter").click()
    page.get_by_label("Jitter", exact=True).fill("")
    page.get_by_label("Priority", exact=True).fill("9")
    page.get_by_label("Not before").fill("2036-07-01T09:00")
    page.get_by_role("button", name="Save changes").click()
    page.wait_for_url(f"{served.url}/ui/schedules/{made['id']}")
    after = _get(served, made)
    assert (after["params"], after["labels"]) == ({"x": 7}, {"team": "b", "zone": "eu"})
    assert (after["priority"], after["jitter_s"], after["type"]) == (9, 0, "echo")
    assert after["start_at"].startswith("2036-07-01T")


@pytest.mark.rule("GOV-05")
def test_a_schedule_is_made_adaptive_given_limits_freed_of_them_and_made_plain_again(
    served: Served, page: Page, complaints: Complaints
) -> None:
    made = _schedule(served, overlap="queue_one")
    page.goto(f"{served.url}/ui/schedules/{made['id']}/change")
    page.get_by_text("Overlap, missed runs").click()
    expect(page.get_by_label("If the previous job")).to_be_visible()
    page.get_by_label("adaptive").check()
    expect(page.get_by_label("If the previous job")).to_be_hidden()

    def save() -> dict[str, Any]:
        page.get_by_role("button", name="Save changes").click()
        page.wait_for_url(f"{served.url}/ui/schedules/{made['id']}")
        page.get_by_role("link", name="Change…").click()
        return _get(served, made)

    assert save()["adaptive"] is True
    page.get_by_label("Minimum interval").fill("90")
    assert save()["min_interval_s"] == 90
    expect(page.get_by_label("Minimum interval")).to_have_value("90")
    page.get_by_label("Minimum interval").fill("")
    assert save()["min_interval_s"] is None
    page.get_by_label("adaptive").uncheck()
    assert save()["adaptive"] is False
    expect(page.get_by_label("Minimum interval")).to_have_count(0)


@pytest.mark.rule("API-02")
def test_a_change_over_somebody_elses_is_refused_and_what_was_typed_is_kept(
    served: Served, page: Page, complaints: Complaints
) -> None:
    made = _schedule(served)
    page.goto(f"{served.url}/ui/schedules/{made['id']}/change")
    page.get_by_label("Cron", exact=True).fill("61 * * * *")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("[data-field~=cron] .field-error").first).to_contain_text("minute")
    served.client.patch(f"/api/schedules/{made['id']}", json={"cron": "0 4 * * *"}).raise_for_status()
    page.get_by_label("Cron", exact=True).fill("0 5 * * *")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("[data-refusal]")).to_contain_text("changed")
    expect(page.get_by_label("Cron", exact=True)).to_have_value("0 5 * * *")
    assert _get(served, made)["cron"] == "0 4 * * *"
    complaints[:] = [complaint for complaint in complaints if "status of 4" not in complaint]


def test_a_form_that_was_left_as_it_was_changes_nothing(served: Served, page: Page, complaints: Complaints) -> None:
    body = {"name": unique("shop"), "url": f"{served.url}/healthz", "interval_s": 5400, "max_interval_s": 86400}
    made = served.client.post("/api/endpoints", json=body | {"headers": {"Authorization": "Bearer secret"}}).json()
    page.goto(f"{served.url}/ui/endpoints/{made['id']}/change")
    expect(page.get_by_label("Every", exact=True)).to_have_value("90")
    page.get_by_role("button", name="Save changes").click()
    page.wait_for_url(f"{served.url}/ui/endpoints/{made['id']}")
    expect(page.locator(".toast")).to_have_text("Nothing was changed")
    before = _get(served, made, "endpoints")
    assert before["version"] == made["version"]
    page.goto(f"{served.url}/ui/endpoints/{made['id']}/change")
    page.get_by_label("URL").fill(f"{served.url}/readyz")
    page.get_by_label("Method").select_option("HEAD")
    page.get_by_role("button", name="Save changes").click()
    page.wait_for_url(f"{served.url}/ui/endpoints/{made['id']}")
    after = _get(served, made, "endpoints")
    assert (after["url"], after["method"]) == (f"{served.url}/readyz", "HEAD")
    assert (after["interval_s"], after["max_interval_s"]) == (5400, 86400)
    assert after["headers"].keys() == {"Authorization"}


@pytest.mark.parametrize("kind", ["schedules", "endpoints"])
def test_deleting_asks_first_and_leads_back_to_the_list(
    served: Served, page: Page, complaints: Complaints, kind: str
) -> None:
    what = {"type": "anything"} if kind == "schedules" else {"url": f"{served.url}/healthz"}
    made = served.client.post(f"/api/{kind}", json={"name": unique("gone"), "interval_s": 86400, **what}).json()
    page.goto(f"{served.url}/ui/{kind}/{made['id']}")
    choose(page, "Delete…")
    page.get_by_role("button", name="Cancel", exact=True).and_(page.locator("#delete-dialog *")).click()
    assert served.client.get(f"/api/{kind}/{made['id']}").status_code == 200
    choose(page, "Delete…")
    keep(page, f"delete-{kind}")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_url(f"{served.url}/ui/{kind}")
    expect(page.locator(".toast")).to_have_text("Deleted")
    assert served.client.get(f"/api/{kind}/{made['id']}").status_code == 404


def test_a_page_is_not_asked_for_again_from_its_deletion_on(served: Served, page: Page, complaints: Complaints) -> None:
    gone = _schedule(served)
    address = f"{served.url}/ui/schedules/{gone['id']}"
    deletions: list[Route] = []
    page.clock.install()
    page.goto(address)
    expect(page.locator("[data-pulse].live")).to_be_visible()
    page.route(f"{served.url}/api/schedules/{gone['id']}", lambda route: deletions.append(route))
    choose(page, "Delete…")
    with page.expect_request(f"{served.url}/api/schedules/{gone['id']}"):
        page.get_by_role("button", name="Delete", exact=True).click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # What an event does to the page, and then the time that it waits before it looks again.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(5000)
    assert address not in asked
    deletions[0].continue_()
    page.wait_for_url(f"{served.url}/ui/schedules")


def test_a_webhook_is_switched_off_and_on_and_deleted_on_its_page(
    served: Served, page: Page, complaints: Complaints
) -> None:
    made = served.client.post("/api/webhooks", json={"url": f"{served.url}/{unique('hook')}"}).json()
    row = page.locator(f"#w-{made['id']}")
    page.goto(f"{served.url}/ui/webhooks")
    row.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("Disabled")
    assert _get(served, made, "webhooks")["enabled"] is False
    row.get_by_role("button", name="Enable").click()
    expect(row).to_contain_text("Active")
    row.get_by_role("button", name="Delete…").click()
    page.locator(f"#delete-{made['id']}").get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    assert served.client.get(f"/api/webhooks/{made['id']}").status_code == 404
