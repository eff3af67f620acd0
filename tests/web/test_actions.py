"""Whatever a page offers to do is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from tests.api.serving import Served, open_gate, unique
from tests.waiting import eventually
from tests.web.conftest import Complaints, choose
from tests.web.receiving import receiver_at
from tests.web.things import made


def _queued(served: Served, count: int, priority: int) -> list[str]:
    """Jobs that stay in the queue, in the order in which they stand there."""
    served.client.post("/api/queue/pause", json={"resource": "still"}).raise_for_status()
    return [served.submit("anything", {"n": n}, resource="still", priority=priority)["id"] for n in range(count)]


def _order(served: Served, ids: list[str]) -> list[int]:
    items = served.client.get("/api/queue", params={"limit": 500}).json()["items"]
    return [ids.index(job["id"]) for job in items if job["id"] in ids]


def test_a_running_job_is_cancelled_with_a_reason(served: Served, page: Page) -> None:
    job = served.submit("hold", {"gate": unique("gate")})
    served.wait_for(job["id"], "RUNNING")
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Reason").fill("no longer needed")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#state .status")).to_contain_text("Cancelled")
    ended = served.wait_for(job["id"], "CANCELLED")
    assert ended["cancel_reason"] == "no longer needed"
    expect(page.get_by_role("button", name="Run again")).to_be_visible()


@pytest.mark.rule("CAN-03")
def test_the_question_before_a_cancel_goes_by_what_the_job_does_by_now(served: Served, page: Page) -> None:
    served.client.post("/api/queue/pause").raise_for_status()
    job = served.submit("hold", {"gate": unique("gate")})
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.locator("#cancel-dialog")
    expect(dialog).to_contain_text("It will not run")
    page.get_by_label("Reason").fill("half a rea")
    served.client.post("/api/queue/resume").raise_for_status()
    # An async handler cannot be killed, so no more is promised than that a process is.
    expect(dialog).to_contain_text("asked to stop; one in a process of its own is killed after 10 s.")
    expect(page.get_by_label("Reason")).to_have_value("half a rea")
    page.get_by_role("button", name="Cancel the job").click()
    served.wait_for(job["id"], "CANCELLED")


@pytest.mark.rule("RET-04")
def test_a_failed_job_is_tried_again_and_the_new_one_is_shown(served: Served, page: Page) -> None:
    job = served.run_job("fail", {"message": "once"})
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    expect(page.locator(".says-why")).to_contain_text("failed")
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "/ui/jobs/" in url and job["id"] not in url)
    expect(page.locator("#chain")).to_contain_text("manual retry of")


@pytest.mark.rule("DEC-005")
def test_rows_of_the_queue_move_by_keys(served: Served, page: Page) -> None:
    ids = _queued(served, 4, priority=11)
    page.goto(f"{served.url}/ui/queue")
    page.locator(f"#q-{ids[0]}").focus()
    page.keyboard.press("Alt+ArrowDown")
    eventually(lambda: _order(served, ids) == [1, 0, 2, 3])
    expect(page.locator(f"#q-{ids[0]}")).to_be_focused()
    page.keyboard.press("J")
    eventually(lambda: _order(served, ids) == [1, 2, 0, 3])
    expect(page.locator(f"#q-{ids[0]}")).to_be_focused()
    page.keyboard.press("K")
    eventually(lambda: _order(served, ids) == [1, 0, 2, 3])
    expect(page.locator(f"#q-{ids[0]}")).to_be_focused()
    page.keyboard.press("b")
    eventually(lambda: _order(served, ids) == [1, 2, 3, 0])
    expect(page.locator(f"#q-{ids[0]}")).to_be_focused()
    page.keyboard.press("t")
    eventually(lambda: _order(served, ids) == [0, 1, 2, 3])
    expect(page.locator(f"#q-{ids[0]}")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(f"#q-{ids[1]}")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{ids[1]}")


@pytest.mark.rule("DEC-005")
def test_a_page_that_was_asked_for_before_a_move_does_not_undo_it(served: Served, page: Page) -> None:
    ids = _queued(served, 3, priority=18)
    page.goto(f"{served.url}/ui/queue")
    old: list[tuple[Route, APIResponse]] = []
    with page.expect_request("**/ui/queue"):
        page.route("**/ui/queue", lambda route: old.append((route, route.fetch())), times=1)
    page.locator(f"#q-{ids[0]}").focus()
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator(".toast")).to_contain_text("Moved")
    ((route, response),) = old
    route.fulfill(response=response)
    page.wait_for_timeout(100)
    element = page.locator("tr[data-priority='18'][data-job]")
    assert [element.nth(place).get_attribute("id") for place in range(2)] == [f"q-{ids[1]}", f"q-{ids[0]}"]


@pytest.mark.rule("DEC-005")
def test_rows_of_the_queue_move_by_dragging(served: Served, page: Page) -> None:
    ids = _queued(served, 3, priority=12)
    page.goto(f"{served.url}/ui/queue")
    page.locator(f"#q-{ids[2]}").drag_to(page.locator(f"#q-{ids[0]}"), target_position={"x": 200, "y": 4})
    eventually(lambda: _order(served, ids) == [2, 0, 1])
    element = page.locator("tr[data-priority='12'][data-job]").first
    expect(element).to_have_id(f"q-{ids[2]}")


@pytest.mark.rule("DEC-005")
def test_rows_of_the_queue_move_by_their_buttons_on_a_touch_screen(
    served: Served, browser: Browser, complaints: Complaints
) -> None:
    ids = _queued(served, 3, priority=16)
    context = browser.new_context(viewport={"width": 375, "height": 740}, is_mobile=True, has_touch=True)
    phone = context.new_page()
    complaints.listen_to(phone)
    phone.goto(f"{served.url}/ui/queue")
    expect(phone.get_by_text("Drag a row")).to_be_hidden()
    row = phone.locator(f"#q-{ids[2]}")
    row.get_by_role("button", name=f"Move anything {ids[2][-8:]} up").tap()
    eventually(lambda: _order(served, ids) == [0, 2, 1])
    row.get_by_role("button", name="to the top").tap()
    eventually(lambda: _order(served, ids) == [2, 0, 1])
    down = row.get_by_role("button", name="down")
    down.focus()
    phone.keyboard.press("Enter")
    eventually(lambda: _order(served, ids) == [0, 2, 1])
    expect(down).to_be_focused()
    assert complaints == []
    context.close()


@pytest.mark.rule("DEC-005")
def test_a_row_does_not_move_into_another_priority(served: Served, page: Page) -> None:
    low = _queued(served, 1, priority=13)
    high = _queued(served, 1, priority=14)
    page.goto(f"{served.url}/ui/queue")
    page.locator(f"#q-{low[0]}").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator(".toast.bad")).to_contain_text("within its priority")
    assert _order(served, high + low) == [0, 1]


@pytest.mark.rule("QUE-04")
def test_the_button_that_paused_everything_resumes_it_without_a_reload(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/queue")
    page.evaluate("window.marked = true")
    page.get_by_role("button", name="Pause everything").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator(".notice", has_text="Everything is paused").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause everything")).to_be_visible()
    expect(page.locator(".notice", has_text="Everything is paused")).to_have_count(0)
    assert page.evaluate("window.marked")


@pytest.mark.rule("QUE-04")
def test_a_resource_is_paused_and_resumed(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/queue")
    tile = page.locator(".tile", has=page.locator("b", has_text="narrow"))
    tile.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".notice", has_text="narrow is paused")).to_be_visible()
    job = served.submit("narrow_hold", {"gate": unique("gate")})
    expect(page.locator(f"#q-{job['id']} .badge", has_text="paused")).to_be_visible()
    page.locator(".notice", has_text="narrow is paused").get_by_role("button", name="Resume").click()
    expect(page.locator(".notice", has_text="narrow is paused")).to_have_count(0)
    served.wait_for(job["id"], "RUNNING")
    open_gate(job["params"]["gate"])


def test_cancelling_from_a_row_asks_first_and_means_the_job_of_the_click(served: Served, page: Page) -> None:
    other, job = _queued(served, 2, priority=15)
    page.goto(f"{served.url}/ui/queue")
    row = page.locator(f"#q-{job}")
    row.get_by_role("button", name="Cancel").click()
    page.locator("#cancel-dialog").get_by_label("Reason").fill("of another time")
    page.get_by_role("button", name="Keep it").click()
    assert served.job(job)["status"] == "QUEUED"
    row.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name=f"Cancel anything {job[-8:]}?")).to_be_visible()
    expect(page.locator("#cancel-dialog").get_by_label("Reason")).to_have_value("")
    # The list moves under the dialog.
    served.client.post(f"/api/jobs/{job}/move", json={"before": other}).raise_for_status()
    expect(page.locator("tr[data-priority='15'][data-job]").first).to_have_id(f"q-{job}")
    page.locator("#cancel-dialog").get_by_label("Reason").fill("not today")
    page.get_by_role("button", name="Cancel the job").click()
    expect(row).to_have_count(0)
    cancelled = served.job(job)
    assert (cancelled["status"], cancelled["cancel_reason"]) == ("CANCELLED", "not today")
    assert served.job(other)["status"] == "QUEUED"


def test_a_schedule_is_triggered_paused_resumed_disabled_and_enabled(served: Served, page: Page) -> None:
    schedule = made(
        served.client.post("/api/schedules", json={"name": unique("s"), "cron": "0 3 * * *", "type": "anything"})
    )
    page.goto(f"{served.url}/ui/schedules/{schedule['id']}")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("#occurrences .badge", has_text="manual")).to_be_visible()
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Reason").fill("holidays")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#state")).to_contain_text("Paused")
    expect(page.locator("#state")).to_contain_text("holidays")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state .status")).to_contain_text("Active")
    choose(page, "Disable")
    expect(page.locator("#state .status")).to_contain_text("Disabled")
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("#state .status")).to_contain_text("Active")
    expect(page.locator("#preview tbody tr")).to_have_count(10)


@pytest.mark.rule("GOV-08", "GOV-11", "GOV-12")
def test_an_endpoint_takes_a_hint_and_a_test_call(served: Served, page: Page) -> None:
    fields = {"name": unique("e"), "url": f"{served.url}/healthz", "interval_s": 3600}
    endpoint = made(served.client.post("/api/endpoints", json=fields))
    page.goto(f"{served.url}/ui/endpoints/{endpoint['id']}")
    page.get_by_label("Every").fill("900")
    page.locator("#hints").get_by_label("Reason").fill("release day")
    page.get_by_role("button", name="Set hint").click()
    expect(page.locator("#hints")).to_contain_text("release day")
    expect(page.locator("#plan .won")).to_contain_text("hint interval")
    choose(page, "Test call")
    expect(page.locator("#test-answer")).to_contain_text("status_code")
    page.get_by_role("button", name="Clear hints").click()
    expect(page.locator("#hints")).not_to_contain_text("release day")
    assert served.client.get(f"/api/endpoints/{endpoint['id']}").json()["hint_interval_s"] is None


def test_a_direct_request_shows_what_it_waited_ran_and_returned(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/direct?type=echo")
    page.locator("#p-echo-x").fill("41")
    page.locator("#p-echo-text").fill("<i>hello</i>")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer]")).to_contain_text("COMPLETED: waited")
    expect(page.locator("[data-answer] pre")).to_contain_text('"<i>hello</i>"')
    page.get_by_label("JSON", exact=True).check()
    page.get_by_label("Params").fill("{not json")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("not JSON")


def test_a_direct_request_that_fails_says_why(served: Served, page: Page, complaints: list[str]) -> None:
    page.goto(f"{served.url}/ui/direct?type=fail")
    page.locator("#p-fail-message").fill("the lamp is broken")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("the lamp is broken")
    # The browser itself notes every answer that is not a success.
    assert [complaint for complaint in complaints if "502" not in complaint] == []
    complaints.clear()


def test_work_can_be_put_in_the_queue_from_the_same_form(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/direct?type=echo")
    page.locator("#p-echo-x").fill("7")
    page.get_by_role("button", name="Submit as a job").click()
    page.wait_for_url("**/ui/jobs/*")
    expect(page.locator("#result")).to_contain_text('"x": 7')


def test_a_group_is_cancelled(served: Served, page: Page) -> None:
    group = made(
        served.client.post(
            "/api/job-groups",
            json={"name": "slow", "mode": "parallel", "jobs": [{"type": "echo", "delay_s": 3600}] * 2},
        )
    )
    page.goto(f"{served.url}/ui/groups/{group['id']}")
    page.get_by_role("button", name="Cancel group").click()
    page.get_by_role("button", name="Cancel the group").click()
    expect(page.locator("#state .status")).to_contain_text("Cancelled")


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, object]]]]:
    with receiver_at() as result:
        yield result


@pytest.mark.rule("DEC-009")
def test_a_failed_delivery_is_sent_again(
    served: Served, page: Page, receiver: tuple[str, list[dict[str, object]]]
) -> None:
    url, taken = receiver
    job = served.run_job("echo", webhook_url=url)
    page.goto(f"{served.url}/ui/webhooks?status=FAILED")
    row = page.locator("#deliveries tbody tr", has_text=url)
    expect(row).to_be_visible()
    page.goto(f"{served.url}/")
    expect(page.locator("#attention")).to_contain_text("was not delivered")
    page.goto(f"{served.url}/ui/webhooks?status=FAILED")
    row.get_by_role("button", name="Send again").click()
    eventually(lambda: len(taken) == 2)
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    expect(page.locator("#deliveries")).to_contain_text("delivered")
