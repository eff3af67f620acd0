"""Every page, in light and dark, wide and narrow, with plain names and with names that mean harm."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import holdbeat
from holdbeat.settings import Settings
from tests.api.serving import Served, problem_of
from tests.web.conftest import Complaints, keep, serve_at
from tests.web.things import paths_of_everything

NAUGHTY = (
    "<img src=x onerror=document.title='broken'>",
    "\"><script>document.title='broken'</script>",
    "'\"`{{7*7}}${7*7}<svg/onload=alert(1)>",
    "</textarea></pre></script><b>bold</b>",
    "javascript:alert(1)//",
    "\u202etxt.exe \u0627\u0644\u0639\u0631\u0628\u064a\u0629 שלום",
    "Ω≈ç√∫˜µ≤≥÷ ( ͡° ͜ʖ ͡°) 田中さん 👾🙇 Z̮̞̠͙͔ͅḀ̗̞͈̻̗Ḷ͙͎̯̹̞͓G̻O̭̗̮",
    "'; DROP TABLE jobs; -- %s %n ${jndi:ldap://127.0.0.1/a}",
    "&lt;b&gt; &amp;amp; \\u003cscript\\u003e",
)


@pytest.mark.rule("SEC-03")
def test_every_page_renders_without_a_complaint_in_light_and_in_dark(
    served: Served, page: Page, browser: Browser, complaints: Complaints
) -> None:
    paths = paths_of_everything(served)
    dark = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="dark").new_page()
    complaints.listen_to(dark)
    for path in paths:
        answer = page.goto(served.url + path)
        assert answer is not None
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert "unsafe-inline" not in policy
        assert "script-src 'self'" in policy
        expect(page.locator("main h1")).not_to_be_empty()
        assert page.locator("script:not([src]), style, [style], [onclick], [onerror]").count() == 0, path
    for number, path in enumerate(paths):
        dark.goto(served.url + path)
        if number % 4 == 0:
            keep(dark, f"dark-{number:02d}-{_name(path)}")
    ground = dark.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground != page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    dark.context.close()


def test_no_page_scrolls_sideways_on_a_phone(served: Served, browser: Browser, complaints: Complaints) -> None:
    paths = paths_of_everything(served, "a-name-without-a-single-blank-" * 6)
    phone = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True).new_page()
    complaints.listen_to(phone)
    for number, path in enumerate(paths):
        phone.goto(served.url + path)
        wide = phone.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wide > 0 or number % 5 == 0:
            keep(phone, f"phone-{number:02d}-{_name(path)}")
        assert wide <= 0, path
    phone.locator("[data-menu]").tap()
    expect(phone.get_by_role("link", name="Queue")).to_be_visible()
    assert complaints == []
    phone.context.close()


@pytest.mark.rule("SEC-03")
def test_names_with_markup_and_scripts_are_shown_as_text(served: Served, page: Page) -> None:
    paths = paths_of_everything(served, " ".join(NAUGHTY[:4])[:150])
    for naughty in NAUGHTY:
        job = served.run_job("fail", {"message": naughty}, labels={"about": naughty})
        page.goto(f"{served.url}/ui/jobs/{job['id']}")
        expect(page.locator("#params")).to_contain_text(naughty[:12].replace('"', '\\"').replace("\\u", "\\\\u"))
        assert page.title().endswith(" · Holdbeat")
    for path in paths:
        page.goto(served.url + path)
        assert page.title().endswith(" · Holdbeat"), path
        assert page.locator("main img, main svg[onload], main b:text-is('bold')").count() == 0, path
    page.goto(served.url + "/ui/jobs?label=" + "%22%3E%3Cscript%3Ealert(1)%3C/script%3E=1")
    assert page.locator("main script").count() == 0


@pytest.mark.rule("SEC-07")
def test_no_page_shows_a_secret(served: Served) -> None:
    for path in paths_of_everything(served, "discreet"):
        assert "very-secret-token" not in served.client.get(path).text, path


@pytest.mark.rule("TIME-08")
def test_a_timetable_can_be_tried_before_it_is_saved_and_shows_the_jump_of_the_clock(
    served: Served, page: Page
) -> None:
    page.goto(f"{served.url}/ui/schedules")
    page.get_by_text("Try a cron expression").click()
    page.get_by_label("Cron").fill("30 2 25-31 3 *")
    page.get_by_label("Timezone").fill("Europe/Berlin")
    page.get_by_role("button", name="Show next runs").click()
    expect(page.locator("#trial tbody tr:not(.clock-change)")).to_have_count(10)
    expect(page.locator("#trial .badge", has_text="DST gap").first).to_be_visible()
    page.get_by_label("Cron").fill("61 * * * *")
    page.get_by_role("button", name="Show next runs").click()
    expect(page.locator("#trial .notice")).to_contain_text("61")


@pytest.mark.rule("SEC-07")
def test_no_page_shows_where_the_server_keeps_its_files(served: Served) -> None:
    package = str(Path(holdbeat.__file__).parent)
    for path in [*paths_of_everything(served, "hidden"), "/ui/nope", "/login"]:
        text = served.client.get(path, headers={"accept": "text/html"}).text
        names = re.search(r'data-events="([^"]*)"', text)
        assert names is None or re.fullmatch(r"[a-z_]+\.[a-z_]+( [a-z_]+\.[a-z_]+)+", names[1]), path
        assert package not in text and ".pyc" not in text, path


def test_an_address_without_a_page_is_told_in_the_frame_of_the_dashboard(
    served: Served, page: Page, complaints: Complaints
) -> None:
    answer = page.goto(f"{served.url}/ui/nope/at-all?x=1")
    assert answer is not None and answer.status == 404
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    keep(page, "not-found")
    complaints[:] = [complaint for complaint in complaints if "404" not in complaint]
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Queue").click()
    page.wait_for_url("**/ui/queue")
    page.goto(f"{served.url}/ui/")
    expect(page.locator("h1")).to_have_text("Overview")
    problem_of(served.client.get("/ui/nope", headers={"accept": "application/json"}), 404, "not_found")


def test_the_dialog_of_keys_is_closed_by_a_button_that_looks_like_one(served: Served, page: Page) -> None:
    page.goto(served.url)
    page.keyboard.press("?")
    button = page.get_by_role("button", name="Close")
    box, dialog = button.bounding_box(), page.locator("dialog.keys").bounding_box()
    assert box is not None and dialog is not None
    assert box["width"] < dialog["width"] / 3
    button.click()
    expect(page.locator("dialog.keys")).to_be_hidden()


def test_a_page_of_nothing_and_a_filter_of_nonsense_say_so(served: Served) -> None:
    for path in ("/ui/jobs/nonsense", "/ui/groups/01890a5d-ac96-774b-bcce-b302099a8057", "/ui/schedules/none"):
        answer = served.client.get(path)
        assert answer.status_code == 404
        assert "There is no" in answer.text
    assert "SLEEPING" in served.client.get("/ui/jobs", params={"status": "SLEEPING"}).text
    assert served.client.get("/ui/jobs", params={"cursor": "%00x"}).status_code == 422
    assert served.client.get("/static/x/../../pages.py").status_code == 404


def test_pages_with_nothing_on_them_say_what_to_do(browser: Browser, complaints: Complaints, tmp_path: Path) -> None:
    served = serve_at(f"sqlite:///{tmp_path / 'holdbeat.db'}", has_worker=False)
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    complaints.listen_to(page)
    hints = {
        "/": ("Ready for the first job", "New job"),
        "/ui/questions": ("No questions", "ctx.ask"),
        "/ui/queue": ("The queue is empty", "New jobs appear here"),
        "/ui/timeline": ("Nothing ran in this time", "a bar"),
        "/ui/jobs": ("No jobs yet", "New job"),
        "/ui/groups": ("No groups", f"curl {served.url}/api/job-groups"),
        "/ui/direct": ("Recent direct requests", "holdbeat direct"),
        "/ui/schedules": ("No schedules", f"curl {served.url}/api/schedules"),
        "/ui/endpoints": ("No endpoints", f"curl {served.url}/api/endpoints"),
        "/ui/webhooks": ("No subscriptions", f"curl {served.url}/api/webhooks"),
        "/ui/events": ("Events", "worker.started"),
        "/ui/workers": ("serve", "none"),
        "/ui/limits": ("default", "each resource without a limit of its own"),
    }
    try:
        for path, words in hints.items():
            page.goto(served.url + path)
            keep(page, f"empty-{_name(path)}")
            for word in words:
                expect(page.locator("main")).to_contain_text(word)
        assert complaints == []
    finally:
        context.close()
        served.stop()


def test_an_event_of_an_endpoint_leads_to_the_endpoint(served: Served) -> None:
    path = next(path for path in paths_of_everything(served, "led") if path.startswith("/ui/endpoints/01"))
    by_event = served.client.get(path.replace("endpoints", "schedules"))
    assert by_event.status_code == 200
    assert "Test call" in by_event.text
    assert served.client.get("/ui/endpoints/none").status_code == 404


def test_every_page_can_be_reached_by_keys(served: Served, page: Page) -> None:
    page.goto(served.url)
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/ui/queue")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    skip = page.get_by_text("Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_whatever_has_the_focus_shows_it(served: Served, page: Page) -> None:
    for path in ("/", "/ui/jobs/new?type=echo", "/ui/direct"):
        page.goto(served.url + path)
        for _ in range(30):
            page.keyboard.press("Tab")
            value = page.evaluate(
                "(() => { const at = document.activeElement; const style = getComputedStyle(at);"
                " return at === document.body || style.outlineStyle !== 'none' ? '' : at.outerHTML.slice(0, 120) })()"
            )
            assert value == "", path


def test_the_reader_s_choice_of_light_or_dark_outlasts_the_page(served: Served, page: Page) -> None:
    page.goto(served.url)
    page.get_by_role("button", name="Theme").click()
    page.goto(f"{served.url}/ui/jobs")
    assert page.locator("html").get_attribute("data-theme") == "dark"


def _name(path: str) -> str:
    return re.sub(r"\W+", "-", path).strip("-")[:20] or "overview"


def test_the_page_of_settings_says_what_each_setting_means(served: Served) -> None:
    text = served.client.get("/ui/settings").text
    rows = re.findall(r'<td class="name"><code>(\w+)</code> <span class="muted small what">([^<`]*)</span>', text)
    assert [name for name, _ in rows] == [field.name for field in fields(Settings) if field.name != "origins"]
    assert all(meaning for _, meaning in rows)
