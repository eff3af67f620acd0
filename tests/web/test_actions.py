"""Whatever a page offers to do is done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served, eventually, open_gate, unique
from tests.web.things import made


def _queued(served: Served, count: int, priority: int) -> list[str]:
    """Jobs that stay in the queue, in the order in which they stand there."""
    return [served.submit("anything", {"n": n}, delay_s=7200, priority=priority)["id"] for n in range(count)]


def _order(served: Served, ids: list[str]) -> list[int]:
    found = served.client.get("/api/queue", params={"limit": 500}).json()["items"]
    return [ids.index(job["id"]) for job in found if job["id"] in ids]


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
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


@pytest.mark.rule("RET-04")
def test_a_failed_job_is_tried_again_and_the_new_one_is_shown(served: Served, page: Page) -> None:
    job = served.run_job("fail", {"message": "once"})
    page.goto(f"{served.url}/ui/jobs/{job['id']}")
    expect(page.locator(".says-why")).to_contain_text("failed")
    page.get_by_role("button", name="Try again").click()
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
def test_rows_of_the_queue_move_by_dragging(served: Served, page: Page) -> None:
    ids = _queued(served, 3, priority=12)
    page.goto(f"{served.url}/ui/queue")
    page.locator(f"#q-{ids[2]}").drag_to(page.locator(f"#q-{ids[0]}"), target_position={"x": 200, "y": 4})
    eventually(lambda: _order(served, ids) == [2, 0, 1])
    shown = page.locator("tr[data-priority='12'][data-job]").first
    expect(shown).to_have_id(f"q-{ids[2]}")


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
def test_a_resource_is_paused_and_resumed(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/queue")
    tile = page.locator(".tile", has=page.locator("b", has_text="narrow"))
    tile.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice", has_text="narrow is paused")).to_be_visible()
    job = served.submit("narrow_hold", {"gate": unique("gate")})
    expect(page.locator(f"#q-{job['id']} .badge", has_text="paused")).to_be_visible()
    tile.get_by_role("button", name="Resume").click()
    expect(page.locator(".notice", has_text="narrow is paused")).to_have_count(0)
    served.wait_for(job["id"], "RUNNING")
    open_gate(job["params"]["gate"])


def test_a_waiting_job_is_cancelled_from_its_row(served: Served, page: Page) -> None:
    job = _queued(served, 1, priority=15)[0]
    page.goto(f"{served.url}/ui/queue")
    page.locator(f"#q-{job}").get_by_role("button", name="Cancel").click()
    expect(page.locator(f"#q-{job}")).to_have_count(0)
    assert served.job(job)["status"] == "CANCELLED"


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
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("#state .status")).to_contain_text("Disabled")
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("#state .status")).to_contain_text("Active")
    expect(page.locator("#preview tbody tr")).to_have_count(10)


@pytest.mark.rule("GOV-08", "GOV-11", "GOV-12")
def test_an_endpoint_takes_a_hint_and_a_test_call(served: Served, page: Page) -> None:
    given = {"name": unique("e"), "url": f"{served.url}/healthz", "interval_s": 3600}
    endpoint = made(served.client.post("/api/endpoints", json=given))
    page.goto(f"{served.url}/ui/endpoints/{endpoint['id']}")
    page.get_by_label("Every").fill("900")
    page.locator("#hints").get_by_label("Reason").fill("release day")
    page.get_by_role("button", name="Set hint").click()
    expect(page.locator("#hints")).to_contain_text("release day")
    expect(page.locator("#plan .won")).to_contain_text("hint interval")
    page.get_by_role("button", name="Test call").click()
    expect(page.locator("#test-answer")).to_contain_text("status_code")
    page.get_by_role("button", name="Clear hints").click()
    expect(page.locator("#hints")).not_to_contain_text("release day")
    assert served.client.get(f"/api/endpoints/{endpoint['id']}").json()["hint_interval_s"] is None


def test_a_direct_request_shows_what_it_waited_ran_and_returned(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/direct?type=echo")
    page.get_by_label("Params").fill('{"x": 41, "text": "<i>hello</i>"}')
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer]")).to_contain_text("COMPLETED: waited")
    expect(page.locator("[data-answer] pre")).to_contain_text('"<i>hello</i>"')
    page.get_by_label("Params").fill("{not json")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("not JSON")


def test_a_direct_request_that_fails_says_why(served: Served, page: Page, complaints: list[str]) -> None:
    page.goto(f"{served.url}/ui/direct?type=fail")
    page.get_by_label("Params").fill('{"message": "the lamp is broken"}')
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("[data-answer] .notice")).to_contain_text("the lamp is broken")
    # The browser itself notes every answer that is not a success.
    assert [each for each in complaints if "502" not in each] == []
    complaints.clear()


def test_work_can_be_put_in_the_queue_from_the_same_form(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/direct?type=echo")
    page.get_by_label("Params").fill('{"x": 7}')
    page.get_by_role("button", name="Put it in the queue").click()
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
    expect(page.locator("#state .status")).to_contain_text("Cancelled")


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A receiver of webhooks that refuses the first message for good, and takes all others."""
    taken: list[dict[str, object]] = []

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(json.loads(body))
            self.send_response(410 if len(taken) == 1 else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receive)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook", taken
    server.shutdown()
    server.server_close()
    thread.join(5)


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
