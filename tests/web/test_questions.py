"""Questions on the dashboard: a person answers from the overview or from a page of the size of a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import Served
from tests.waiting import eventually
from tests.web.conftest import serve_at


def ask(served: Served, schema: dict[str, Any] | None = None) -> tuple[str, str]:
    job_id = served.submit("asks", {} if schema is None else {"schema": schema})["id"]
    questions = eventually(
        lambda: [q for q in served.client.get("/api/questions").json()["items"] if q["job_id"] == job_id]
    )
    return job_id, questions[0]["id"]


@pytest.mark.rule("WAIT-05")
def test_a_person_answers_on_a_page_of_the_size_of_a_phone(served: Served, browser: Browser) -> None:
    job_id, question_id = ask(served)
    context = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True)
    try:
        page = context.new_page()
        page.goto(f"{served.url}/ui/jobs/{job_id}")
        card = page.locator(f"#question-{question_id}")
        expect(card).to_contain_text("Send the draft?")
        for button in card.get_by_role("button").all():
            box = button.bounding_box()
            assert box is not None
            assert box["height"] >= 44
            assert box["x"] + box["width"] <= 360
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        card.get_by_role("button", name="later").tap()
        expect(card).to_have_count(0)
    finally:
        context.close()
    following = served.client.get(f"/api/jobs/{job_id}").json()["continued_by"]
    assert served.wait_for(following)["run"]["result"] == "later"


@pytest.mark.rule("WAIT-05")
def test_the_overview_lists_open_questions(served: Served, page: Page) -> None:
    job_id, question_id = ask(served)
    page.goto(f"{served.url}/")
    card = page.locator(f"#question-{question_id}")
    expect(card.get_by_role("link")).to_have_attribute("href", f"/ui/jobs/{job_id}")
    expect(page.locator("#held")).to_contain_text("for an answer")
    card.get_by_role("button", name="yes").click()
    expect(card).to_have_count(0)


@pytest.mark.rule("WAIT-05", "API-06")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_open_question_can_be_answered_from_the_overview(
    browser: Browser, theme: Literal["light", "dark"], tmp_path: Path
) -> None:
    served = serve_at(f"sqlite:///{tmp_path / 'holdbeat.db'}")
    served.client.post("/api/jobs/batch", json={"jobs": [{"type": "asks"}] * 62}).raise_for_status()
    eventually(lambda: len(served.client.get("/api/questions?limit=500").json()["items"]) == 62)
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme)
    try:
        page = context.new_page()
        page.goto(f"{served.url}/")
        expect(page.locator("#questions h2")).to_contain_text("the oldest 10 of 62")
        page.locator("#questions").get_by_role("link", name="All 62 questions").click()
        expect(page.locator(".question")).to_have_count(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("link", name="Next page").click()
        expect(page.locator(".question")).to_have_count(12)
        page.locator(".question").last.get_by_role("button", name="later").click()
        expect(page.locator(".question")).to_have_count(11)
        page.get_by_role("link", name="First page").click()
        expect(page.locator(".question")).to_have_count(50)
    finally:
        context.close()
        served.stop()


@pytest.mark.rule("WAIT-05", "WAIT-08")
def test_the_queue_says_that_a_job_waits_for_an_answer_and_offers_no_start_without_it(
    served: Served, page: Page
) -> None:
    job_id, question_id = ask(served)
    tip = eventually(lambda: served.client.get(f"/api/jobs/{job_id}").json()["continued_by"])
    page.goto(f"{served.url}/ui/queue")
    expect(page.locator(f"#q-{tip}")).to_contain_text("waits for somebody's answer")
    page.goto(f"{served.url}/ui/jobs/{tip}")
    expect(page.locator("#chain")).to_contain_text("waits for somebody's answer")
    expect(page.get_by_role("button", name="Start without delay")).to_have_count(0)
    served.client.post(f"/api/questions/{question_id}/answer", json={"answer": "yes"}).raise_for_status()


@pytest.mark.rule("WAIT-01", "WAIT-08")
def test_the_queue_and_the_job_page_say_all_that_a_handler_waits_for_in_parallel(served: Served, page: Page) -> None:
    job_id = served.submit("waits_in_parallel", {})["id"]
    tip = eventually(lambda: served.job(job_id)["continued_by"])
    waits = "its handler sleeps, waits for the signal paid and waits for the end of 2 children"
    page.goto(f"{served.url}/ui/queue")
    expect(page.locator(f"#q-{tip}")).to_contain_text(waits)
    page.goto(f"{served.url}/ui/jobs/{tip}")
    expect(page.locator("#chain")).to_contain_text(waits)
    expect(page.get_by_role("button", name="End the sleep")).to_have_count(0)


@pytest.mark.rule("WAIT-05")
@pytest.mark.parametrize(
    ("schema", "label", "answer"),
    [({"type": "boolean"}, "No", False), ({"enum": ["post", 2]}, "2", 2), ({"enum": ["post", 2]}, "post", "post")],
)
def test_a_question_with_a_few_answers_has_a_button_for_each(
    served: Served, page: Page, schema: dict[str, Any], label: str, answer: object
) -> None:
    job_id, question_id = ask(served, schema)
    page.goto(f"{served.url}/ui/jobs/{job_id}")
    card = page.locator(f"#question-{question_id}")
    card.get_by_role("button", name=label, exact=True).click()
    expect(card).to_have_count(0)
    following = served.client.get(f"/api/jobs/{job_id}").json()["continued_by"]
    assert served.wait_for(following)["run"]["result"] == answer


@pytest.mark.rule("WAIT-05")
def test_a_question_that_takes_json_says_what_fits(served: Served, page: Page) -> None:
    job_id, question_id = ask(served, {"type": "object", "required": ["to"]})
    page.goto(f"{served.url}/ui/jobs/{job_id}")
    card = page.locator(f"#question-{question_id}")
    expect(card).to_contain_text('JSON that fits {"required": ["to"], "type": "object"}')
    card.get_by_label("Answer").fill('{"to": "ann"}')
    card.get_by_role("button", name="Answer").click()
    expect(card).to_have_count(0)


@pytest.mark.rule("WAIT-05")
def test_a_question_of_a_job_with_a_long_word_in_its_title_fits_a_phone(served: Served, browser: Browser) -> None:
    job_id = served.submit("asks", {"schema": {"type": "object", "required": ["to"]}}, title="x" * 120)["id"]
    eventually(lambda: served.job(job_id)["continued_by"])
    context = browser.new_context(viewport={"width": 390, "height": 844})
    try:
        page = context.new_page()
        page.goto(f"{served.url}/")
        card = page.locator(".question").filter(has=page.locator(f"a[href='/ui/jobs/{job_id}']"))
        expect(card).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        field, button = card.get_by_label("Answer").bounding_box(), card.get_by_role("button").bounding_box()
        hint = card.get_by_text("JSON that fits").bounding_box()
        assert field and button and hint
        assert abs(field["y"] + field["height"] - button["y"] - button["height"]) <= 2
        assert hint["y"] >= button["y"] + button["height"]
    finally:
        context.close()


@pytest.mark.rule("WAIT-07", "WAIT-08")
def test_a_child_that_waits_is_one_line_of_the_page_of_its_parent(served: Served, page: Page) -> None:
    parent = served.submit("has_child", {})["id"]
    child = eventually(
        lambda: [job for job in served.client.get(f"/api/jobs?parent_id={parent}").json()["items"] if job["waits_for"]]
    )[0]
    page.goto(f"{served.url}/ui/jobs/{parent}")
    expect(page.locator("#children li")).to_have_count(1)
    expect(page.locator("#children a")).to_have_attribute("href", f"/ui/jobs/{child['id']}")


@pytest.mark.rule("GRP-05", "WAIT-08")
def test_the_page_of_a_group_says_what_a_member_waits_for_and_names_what_follows(served: Served, page: Page) -> None:
    request = {"mode": "parallel", "jobs": [{"type": "asks"}], "then": {"type": "echo", "title": "Report of all"}}
    group = served.client.post("/api/job-groups", json=request).json()
    eventually(lambda: served.job(group["jobs"][0]["id"])["continued_by"])
    page.goto(f"{served.url}/ui/groups/{group['id']}")
    member = page.locator("#members li")
    expect(member).to_contain_text("waits for somebody's answer")
    expect(member).not_to_contain_text("attempts")
    expect(page.locator("#state").get_by_role("link", name="Report of all")).to_be_visible()
