"""The page of a schedule says why it runs when it runs, in the one set of words that there is."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from holdbeat.domain.clock import iso
from tests.api.serving import Served, unique


@pytest.mark.rule("DEC-006", "API-06")
def test_a_schedule_is_explained_in_the_words_of_the_api(served: Served) -> None:
    kinds = {"schedules": {"type": "echo"}, "endpoints": {"url": "http://127.0.0.1:9/"}}
    for kind, fields in kinds.items():
        name = unique(kind)
        made = served.client.post(f"/api/{kind}", json={"name": name, "interval_s": 86400, **fields}).json()
        for step in ("", "/pause", "/disable"):
            if step:
                assert served.client.post(f"/api/{kind}/{made['id']}{step}", json={}).status_code == 200
            explanation = served.client.get(f"/api/{kind}/{made['id']}/explain").json()
            text = served.client.get(f"/ui/{kind}/{made['id']}").text
            match = re.search(r'says-why">(.*?)</p>', text, re.S)
            assert match is not None
            words = html.unescape(re.sub(r"<[^>]+>", "", match[1]))
            # The name is the page's title, and instants are drawn for the eye; all other words are the same.
            sentence = explanation["summary"].removeprefix(f"{name}: ")
            around = re.split(r"\d{4}-\d\d-\d\dT\S+( \([^)]*\))?", sentence)[0]
            assert words.startswith(around) and len(around) > 10
            assert "memory" not in (explanation["last_decision"] or {})


@pytest.mark.rule("API-06")
@pytest.mark.parametrize("kind", ["schedules", "endpoints"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_paused_schedule_promises_no_run(served: Served, page: Page, kind: str, ends: bool) -> None:
    what = {"type": "echo"} if kind == "schedules" else {"url": "http://127.0.0.1:9/"}
    made = served.client.post(f"/api/{kind}", json={"name": unique("held"), "interval_s": 72_000, **what}).json()
    page.goto(f"{served.url}/ui/{kind}/{made['id']}")
    expect(page.locator("#next-run")).to_contain_text("Next run in 20 h")
    until = {"until": iso(served.store.clock.now() + timedelta(hours=50))} if ends else {}
    served.client.post(f"/api/{kind}/{made['id']}/pause", json=until).raise_for_status()
    output = "The pause ends in 2 d 2 h; no run before that" if ends else "No run is planned until it is resumed"
    expect(page.locator("#next-run")).to_contain_text(output)
    expect(page.locator("#next-run")).not_to_contain_text("Next run")
    fires = page.locator("#preview tbody tr")
    if ends:
        expect(fires.first).to_contain_text("in 2 d")
    else:
        expect(page.locator("#preview")).to_contain_text("No runs until it is resumed.")
        expect(fires).to_have_count(0)
    page.goto(f"{served.url}/ui/{kind}")
    element = page.locator(f"#s-{made['id']} .next")
    expect(element).to_have_text("paused; ends in 2 d 2 h" if ends else "when resumed")
    page.goto(served.url)
    expect(page.locator("#next")).not_to_contain_text(made["name"])


@pytest.mark.rule("API-06")
def test_a_schedule_that_cannot_be_planned_is_shown_with_its_reason(served: Served) -> None:
    made = served.client.post(
        "/api/schedules",
        json={"name": unique("lost"), "cron": "0 3 * * *", "timezone": "Europe/Vienna", "type": "echo"},
    ).json()
    store = served.server.context.store
    store.write_sync(
        lambda tx: tx.execute(
            "UPDATE schedules SET timezone = 'Mars/Phobos', trouble = 'its zone is gone' WHERE id = :id", id=made["id"]
        )
    )
    for path in (f"/ui/schedules/{made['id']}", "/", "/ui/schedules"):
        answer = served.client.get(path)
        assert answer.status_code == 200 and made["name"] in answer.text
    assert "its zone is gone" in served.client.get("/").text
    assert "It cannot be planned: its zone is gone." in served.client.get(f"/ui/schedules/{made['id']}").text
    assert served.client.delete(f"/api/schedules/{made['id']}").status_code == 204


@pytest.mark.parametrize(("type_", "status", "words"), [("echo", "Completed", ""), ("fail", "Failed", "no")])
def test_past_runs_say_what_became_of_their_jobs(
    served: Served, page: Page, type_: str, status: str, words: str
) -> None:
    body = {"name": unique("past"), "cron": "0 3 * * *", "type": type_}
    schedule = served.client.post("/api/schedules", json=body).json()
    served.client.post(f"/api/schedules/{schedule['id']}/trigger", json={}).raise_for_status()
    page.goto(f"{served.url}/ui/schedules/{schedule['id']}")
    row = page.locator("#occurrences tbody tr")
    expect(row.locator(".status")).to_have_text(status)
    expect(row.locator(".badge")).to_have_text("manual")
    expect(row.locator(".says")).to_contain_text(words)
    expect(row.get_by_role("link").first).to_have_attribute("href", re.compile("/ui/jobs/01"))
    facts = page.locator("#facts")
    expect(facts.locator("dt:text-is('Clock changes') + dd")).to_have_text("run once, as cron does")
