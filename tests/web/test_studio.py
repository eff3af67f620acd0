"""What people do in the dashboard with several rows at once, keys, groups, limits and times, and axe on every page.

One server and one browser for all of it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.api.serving import Served, open_gate, unique
from tests.waiting import eventually
from tests.web.conftest import Complaints, serve_at
from tests.web.things import made, paths_of_everything

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
FINDINGS = """async (options) => (await axe.run(document, { resultTypes: ["violations"], ...options }))
  .violations.map((found) => `${found.id}: ${found.nodes[0].html.slice(0, 160)}`)"""
Theme = Literal["light", "dark"]
COLOURS = {"runOnly": ["color-contrast"]}


def _schedules(served: Served, label: str, count: int) -> list[str]:
    body = {"type": "anything", "interval_s": 86_400, "labels": {"team": label}}
    return [
        made(served.client.post("/api/schedules", json=body | {"name": f"{label} {number}"}))["id"]
        for number in range(count)
    ]


@pytest.mark.rule("UI-02", "AUD-01")
def test_schedules_found_by_label_are_paused_together_and_the_pause_is_undone(served: Served, page: Page) -> None:
    label = unique("team")
    ids = _schedules(served, label, 3)

    def paused() -> list[bool]:
        return [served.client.get(f"/api/schedules/{id_}").json()["paused_until"] is not None for id_ in ids]

    page.goto(f"{served.url}/ui/schedules?q={label}")
    expect(page.locator("#schedules tbody tr")).to_have_count(3)
    page.get_by_label("Select all rows").check()
    bar = page.get_by_role("region", name="Selected rows")
    expect(bar).to_contain_text("3 selected")
    bar.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Paused 3")
    assert all(paused())
    page.locator(".toast").get_by_role("button", name="Undo").click()
    eventually(lambda: not any(paused()))
    page.goto(f"{served.url}/ui/events?q={label}")
    expect(page.locator("#events")).to_contain_text("by a caller without a key")


@pytest.mark.rule("UI-02")
def test_picked_jobs_are_cancelled_only_after_a_question(served: Served, page: Page) -> None:
    label = unique("batch")
    ids = [served.submit("anything", {}, delay_s=3600, title=f"{label} {number}")["id"] for number in range(3)]
    page.goto(f"{served.url}/ui/jobs?q={label}")
    for id_ in ids[:2]:
        page.locator(f"#j-{id_}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Cancel…", exact=True).click()
    dialog = page.locator("#bulk-dialog")
    expect(dialog).to_contain_text("Cancel 2 jobs?")
    assert served.job(ids[0])["status"] == "QUEUED"
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    eventually(lambda: [served.job(id_)["status"] for id_ in ids] == ["CANCELLED", "CANCELLED", "QUEUED"])


def test_a_group_is_submitted_from_rows_of_types_and_params(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/groups")
    page.get_by_role("link", name="New group").click()
    name = unique("group")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Order").select_option("parallel")
    page.get_by_role("button", name="Add a job").click()
    rows = page.locator("[data-job-row]")
    expect(rows).to_have_count(3)
    rows.nth(2).get_by_role("button", name="Remove").click()
    # A type with a schema has fields; one without takes JSON.
    rows.nth(0).get_by_label("Type").select_option("echo")
    rows.nth(0).locator("[data-param=text]:visible").fill("first")
    rows.nth(1).get_by_label("Type").select_option("anything")
    rows.nth(1).locator("textarea:visible").fill("{")
    page.get_by_role("button", name="Submit group").click()
    expect(page.locator("[data-field=jobs] .field-error")).to_contain_text("job 2 are not JSON")
    rows.nth(1).locator("textarea:visible").fill('{"x": 1}')
    page.get_by_role("button", name="Submit group").click()
    page.wait_for_url("**/ui/groups/01*")
    expect(page.locator("#members")).to_contain_text("2 of 2 ended")
    expect(page.locator("h1")).to_contain_text(name)
    jobs = served.client.get(f"/api/job-groups/{page.url.rsplit('/', 1)[1]}").json()["jobs"]
    assert [(job["type"], job["params"]) for job in jobs] == [("echo", {"text": "first"}), ("anything", {"x": 1})]


@pytest.mark.rule("LIM-04")
def test_a_limit_is_created_and_removed(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/ui/limits")
    page.get_by_role("button", name="New limit").click()
    dialog = page.locator("#new-limit-dialog")
    dialog.get_by_label("Name").fill("printer jobs")
    dialog.get_by_label("Resource").fill("printer")
    dialog.get_by_label("Slots").fill("3")
    dialog.get_by_label("for each partition").check()
    dialog.get_by_role("button", name="Create limit").click()
    row = page.locator("#limit-printer-jobs")
    expect(row).to_contain_text("3 each")
    limits = {limit["name"]: limit for limit in served.client.get("/api/limits").json()["items"]}
    limit = limits["printer jobs"]
    assert (limit["resource"], limit["slots"], limit["per_partition"]) == ("printer", 3, True)
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_the_timeline_zooms_into_what_is_dragged_over_and_goes_back_to_now(served: Served, page: Page) -> None:
    served.run_job("echo")
    page.goto(f"{served.url}/ui/timeline?zoom=2m")
    box = page.locator("svg.timeline").first.bounding_box()
    assert box is not None
    y = box["y"] + 12
    page.mouse.move(box["x"] + box["width"] * 0.8, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.99, y, steps=4)
    page.mouse.up()
    page.wait_for_url("**/ui/timeline?from=*&to=*")
    since, until = (int(text) for text in page.locator("#lanes").get_attribute("data-range").split())  # type: ignore[union-attr]
    assert 15_000 < until - since < 40_000
    page.get_by_role("link", name="Earlier").click()
    # Other tests of this server may have run jobs then.
    expect(page.locator("#lanes")).to_have_attribute("data-range", f"{since - (until - since)} {since}")
    expect(page.locator("#told")).to_contain_text(" from ")
    page.get_by_role("link", name="Later").click()
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator("#told")).to_contain_text("in the last")


# The browser's own Notification, which notes what the browser says about each that it has shown.
NOTE_SHOWN = """window.shown = []; window.Notification = class extends Notification {
  constructor(...words) {
    super(...words);
    for (const name of ["show", "error"])
      this.addEventListener(name, () => shown.push(`${name}: ${this.title} (${this.body}) ${this.tag}`));
  }
};"""


def test_the_browser_shows_a_notification_of_the_end_of_a_watched_job_on_any_page(
    served: Served, context: BrowserContext, page: Page
) -> None:
    gate = unique("gate")
    job = served.submit("hold", {"gate": gate}, title="long story")
    failing = served.submit("fail_for_good", {}, title="sad story", delay_s=3600)
    context.grant_permissions(["notifications"], origin=served.url)
    context.add_init_script(NOTE_SHOWN)
    try:
        for one in (job, failing):
            page.goto(f"{served.url}/ui/jobs/{one['id']}")
            page.get_by_role("button", name="Notify me").click()
            expect(page.get_by_role("button", name="Watching")).to_have_attribute("aria-pressed", "true")
            expect(page.locator(".toast")).to_contain_text("You are notified when it ends.")
        page.goto(f"{served.url}/ui/settings")
        open_gate(gate)
        eventually(lambda: page.evaluate("shown.length") == 1)
        assert page.evaluate("shown") == [f"show: long story: completed () {job['id']}"]
        served.client.patch(f"/api/jobs/{failing['id']}", json={"not_before": None}).raise_for_status()
        expect(page.locator(".toast", has_text="sad story: failed")).to_be_visible()
        eventually(lambda: page.evaluate("shown.length") == 2)
        error = served.job(failing["id"])["run"]["error"]
        assert page.evaluate("shown[1]") == f"show: sad story: failed ({error}) {failing['id']}"
        page.goto(f"{served.url}/ui/jobs/{job['id']}")
        expect(page.get_by_role("button", name="Notify me")).to_have_count(0)
    finally:
        open_gate(gate)


def test_a_browser_that_may_show_no_notifications_says_so_and_the_page_tells(
    served: Served, context: BrowserContext, page: Page
) -> None:
    gate = unique("gate")
    job = served.submit("hold", {"gate": gate}, title="quiet story")
    context.grant_permissions([], origin=served.url)  # all that is not named is denied
    try:
        page.goto(f"{served.url}/ui/jobs/{job['id']}")
        page.get_by_role("button", name="Notify me").click()
        expect(page.locator(".toast")).to_contain_text("This browser shows no notifications")
        open_gate(gate)
        expect(page.locator(".toast", has_text="quiet story: completed")).to_be_visible()
    finally:
        open_gate(gate)


def _one_of_each_page(served: Served) -> list[str]:
    """A page of every template: those that differ only in what they show come once."""
    paths = paths_of_everything(served)
    jobs = [path for path in paths if path.startswith("/ui/jobs/01")]
    others = [path for path in paths if path not in jobs and "?" not in path]
    reservation = served.client.get("/api/reservations", params={"limit": 1}).json()["items"][0]["id"]
    asking = served.submit("asks", {})["id"]
    eventually(lambda: served.job(asking)["status"] == "CONTINUED")
    others += ["/docs", "/ui/keys", "/ui/keys/new", "/ui/groups/new", f"/ui/reservations/{reservation}"]
    # A failed one, one that depends on others, one with steps, one that asks.
    return [*others, jobs[1], jobs[4], f"/ui/jobs/{served.run_job('stepped')['id']}", f"/ui/jobs/{asking}"]


@pytest.mark.rule("API-01")
def test_an_operation_is_tried_out_on_the_page_of_the_api(served: Served, page: Page) -> None:
    page.goto(f"{served.url}/docs")
    entry = page.locator("details", has=page.locator("form[data-method=post][data-path='/api/jobs']"))
    entry.locator("summary").click()
    entry.locator("textarea").fill('{"type": "echo", "params": {"x": 5}}')
    entry.get_by_role("button", name="Send POST").click()
    expect(entry.locator("[data-state]")).to_contain_text("201 Created")
    expect(entry.locator("form pre")).to_contain_text('"type": "echo"')


@pytest.mark.timeout(400)
@pytest.mark.rule("UI-02")
def test_axe_finds_nothing_on_any_page_and_none_is_too_wide_for_a_phone(served: Served, page: Page) -> None:
    findings = {}
    for path in _one_of_each_page(served):
        page.goto(served.url + path)
        if wrong := _findings(page):
            findings[path] = wrong
    assert findings == {}


def _findings(page: Page) -> list[str]:
    """What axe finds on the open page, in both themes, wide and on a phone; and whether it is too wide for a phone.

    The structure of a page depends on its width alone, so that it is looked at in one theme of each.
    """
    page.evaluate(AXE)
    wrong: list[str] = []
    themes: tuple[tuple[int, Theme, Theme], ...] = ((1280, "light", "dark"), (390, "dark", "light"))
    for width, whole, colours in themes:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=whole)
        wrong += [f"{width} {whole}: {finding}" for finding in page.evaluate(FINDINGS, {})]
        page.emulate_media(color_scheme=colours)
        wrong += [f"{width} {colours}: {finding}" for finding in page.evaluate(FINDINGS, COLOURS)]
    if page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0:
        wrong.append("too wide for a phone")
    page.set_viewport_size({"width": 1280, "height": 800})
    return wrong


@pytest.mark.rule("SEC-02", "AUD-01")
def test_the_first_key_is_made_shown_once_and_revoked_in_the_dashboard(
    browser: Browser, complaints: Complaints, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = serve_at(f"sqlite:///{tmp_path_factory.mktemp('keys') / 'holdbeat.db'}", has_worker=False)
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(f"{server.url}/ui/keys")
        expect(page.locator("main")).to_contain_text("No keys yet.")
        page.get_by_role("link", name="New API key").click()
        page.get_by_label("Name").fill("anna")
        page.get_by_role("button", name="Create key").click()
        expect(page.locator("[data-shown=key]")).to_contain_text("hb_")
        secret = page.locator("[data-shown=key]").inner_text()
        with server.new_client(secret) as admin:
            assert admin.get("/api/keys").json()["items"][0]["name"] == "anna"
            assert server.client.get("/api/keys").status_code == 401
            # Whoever made the first key is logged in with it, and sees it no more.
            page.get_by_role("link", name="Back to API keys").click()
            expect(page.locator("#keys")).to_contain_text("anna")
            assert secret not in page.content()
            page.get_by_role("link", name="New API key").click()
            page.get_by_label("Name").fill("deploy")
            page.get_by_label("read", exact=False).first.check()
            page.get_by_role("button", name="Create key").click()
            expect(page.locator("[data-shown=key]")).to_contain_text("hb_")
            second = page.locator("[data-shown=key]").inner_text()
            page.get_by_role("link", name="Back to API keys").click()
            page.get_by_role("button", name="Revoke deploy…").click()
            page.locator("#revoke-dialog").get_by_role("button", name="Revoke").click()
            expect(page.locator("#keys")).to_contain_text("Revoked")
            with server.new_client(second) as late:
                eventually(lambda: late.get("/api/jobs").status_code == 401)
            assert _findings(page) == []
            page.goto(f"{server.url}/ui/events?q=deploy")
            expect(page.locator("#events")).to_contain_text("The key deploy was revoked by anna")
            reader = made(admin.post("/api/keys", json={"name": "looker", "scope": "read"}))["key"]
        with server.new_client(reader) as reading:
            answer = reading.get("/ui/keys", headers={"accept": "text/html"})
            assert "admin key" in answer.text
            assert "deploy" not in answer.text
        context.clear_cookies()
        for path in ("/login", "/login?refused=1"):
            page.goto(server.url + path)
            assert _findings(page) == []
    finally:
        context.close()
        server.stop()
