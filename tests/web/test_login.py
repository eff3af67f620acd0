"""Where keys exist, nobody sees anything without one; and no other site can make a browser change anything."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from holdbeat.domain.api_key import Scope
from holdbeat.web.pages import PAGES
from tests.api.serving import Served
from tests.web.conftest import keep, serve_at


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = serve_at(f"sqlite:///{tmp_path_factory.mktemp('store') / 'holdbeat.db'}", is_key_needed=True)
    yield server
    server.stop()


def _log_in(page: Page, served: Served, key: str) -> None:
    page.goto(f"{served.url}/login")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.rule("SEC-02")
def test_every_page_leads_to_the_login_until_a_key_is_given(
    guarded: Served, page: Page, context: BrowserContext
) -> None:
    for item in PAGES:
        answer = guarded.client.get(item.path.replace("{id}", "x"), headers={"accept": "text/html"})
        assert answer.status_code == 303
        # A reader is led on to the page that was asked for.
        asked = "" if item.path == "/" else f"?{urlencode({'next': item.path.replace('{id}', 'x')})}"
        assert answer.headers["location"] == f"/login{asked}"
    page.goto(guarded.url)
    assert page.url.endswith("/login")
    keep(page, "login")
    _log_in(page, guarded, "hb_not-a-key")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    assert guarded.admin_key is not None
    _log_in(page, guarded, guarded.admin_key)
    expect(page.locator("h1")).to_have_text("Overview")
    (cookie,) = (cooky for cooky in context.cookies() if cooky["name"] == "holdbeat_session")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert guarded.admin_key not in cookie["value"]
    expect(page.locator("[data-pulse]")).to_have_text("Live")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto(guarded.url)
    assert page.url.endswith("/login")


@pytest.mark.rule("SEC-02")
def test_the_login_leads_to_the_page_that_was_asked_for(guarded: Served, page: Page) -> None:
    assert guarded.admin_key is not None
    page.goto(f"{guarded.url}/ui/jobs?status=FAILED&type=echo")
    page.get_by_label("API key").fill("hb_mistyped")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.get_by_label("API key").fill(guarded.admin_key)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    assert page.url == f"{guarded.url}/ui/jobs?status=FAILED&type=echo"


@pytest.mark.rule("SEC-02", "SEC-03")
@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "/ui/\\..\\evil", "/\t/evil.example", "/logout",
     "javascript:alert(1)", "/ui/x\r\nset-cookie: a=b", "", "/ui/" + "x" * 3000, "/api/jobs"],
)  # fmt: skip
def test_the_login_leads_nowhere_else(guarded: Served, elsewhere: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    value = urlencode({"key": guarded.admin_key, "next": elsewhere})
    client = guarded.new_client()
    answer = client.post("/login", content=value, headers=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    again = client.get("/login", params={"next": elsewhere}, headers={"cookie": cookie})
    assert (again.status_code, again.headers["location"]) == (303, "/")
    client.close()
    refused = guarded.client.post("/login", content=urlencode({"key": "x", "next": elsewhere}), headers=form)
    assert refused.headers["location"] == "/login?refused=1"
    assert 'name="next"' not in guarded.client.get("/login", params={"next": elsewhere}).text


@pytest.mark.rule("SEC-02")
def test_a_key_that_may_only_read_is_offered_no_change(guarded: Served, page: Page, complaints: list[str]) -> None:
    admin = guarded.new_client(guarded.admin_key)
    job = admin.post("/api/jobs", json={"type": "echo", "delay_s": 3600}).json()
    admin.close()
    _log_in(page, guarded, guarded.add_key(Scope.READ, "reader"))
    for path in ("/ui/queue", f"/ui/jobs/{job['id']}", "/ui/direct"):
        page.goto(guarded.url + path)
        assert page.locator("[data-act], [draggable=true], [data-run], [data-dialog]").count() == 0, path
    complaints_before = len(complaints)
    value = page.evaluate("async (id) => (await fetch(`/api/jobs/${id}/cancel`, {method: 'POST'})).status", job["id"])
    assert value == 403
    # The browser itself notes the refusal.
    del complaints[complaints_before:]


@pytest.mark.rule("SEC-03")
def test_a_page_of_another_site_can_change_nothing(served: Served, context: BrowserContext) -> None:
    job = served.submit("echo", {}, delay_s=3600)
    other = context.new_page()
    other.route(
        "http://evil.example/*",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"<form id=f method=post enctype=text/plain action='{served.url}/api/jobs/{job['id']}/cancel'></form>",
        ),
    )
    other.goto("http://evil.example/")
    with other.expect_response(f"**/api/jobs/{job['id']}/cancel") as refused:
        other.evaluate("document.getElementById('f').submit()")
    assert refused.value.status == 403
    assert served.job(job["id"])["status"] == "QUEUED"


@pytest.mark.rule("SEC-03")
def test_another_name_of_the_server_is_refused(served: Served) -> None:
    answer = served.client.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
