"""Who comes in, and from where."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from holdbeat.api.access import OPEN_PATHS
from holdbeat.domain.api_key import Scope, hash_of
from holdbeat.domain.errors import SettingsError
from holdbeat.store.access.api_keys import list_api_keys, revoke_api_key
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique
from tests.waiting import eventually

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"
PLACES = {"{id}": ANY_ID, "{type}": "echo", "{name}": "result"}
STREAMS = ("/api/events",)


@pytest.fixture(scope="module")
def locked(new_store_url: Any) -> Iterator[Served]:
    """A server that has keys."""
    server = Served(new_store_url(), is_key_needed=True, allow_shell=True)
    yield server
    server.stop()


def routes(served: Served) -> list[tuple[str, str]]:
    """Every documented (method, path), with something in the place of its parameters."""
    with served.new_client(served.admin_key) as admin:
        document = admin.get("/openapi.json").json()
    collected = []
    for path, methods in document["paths"].items():
        for place, value in PLACES.items():
            path = path.replace(place, value)
        collected += [(method.upper(), path) for method in methods]
    return collected


@pytest.mark.rule("SEC-02")
def test_no_route_opens_without_a_key_that_is_known(locked: Served) -> None:
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {locked.admin_key}"},
        {"Authorization": f"Bearer {locked.admin_key}x"},
        {"X-API-Key": str(locked.admin_key)},
        {"Cookie": f"holdbeat_session={locked.admin_key}"},
        {"Cookie": f"holdbeat_session={ANY_ID}.9999999999.AAAA"},
        {"X-HTTP-Method-Override": "GET", "X-Forwarded-For": "127.0.0.1"},
    ]
    closed = [(method, path) for method, path in routes(locked) if path not in OPEN_PATHS]
    assert len(closed) > 60
    requests = [
        (method, path, headers)
        for method, path in closed
        for headers in (wrong if path in ("/api/jobs", "/metrics") else wrong[:2])
    ]

    def answer_of(request: tuple[str, str, dict[str, str]]) -> tuple[bool, bytes]:
        method, path, headers = request
        answer = locked.client.request(method, path, headers=headers)
        problem_of(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        return "Authorization" in headers, answer.content

    # Side by side, because each unknown key waits 50 ms for the next look at the keys.
    with ThreadPoolExecutor(8) as pool:
        bodies = set(pool.map(answer_of, requests))
    assert len(bodies) == 2, "what is said depends on nothing but whether a key was sent"


@pytest.mark.rule("SEC-02")
@pytest.mark.parametrize(
    "path",
    [
        "//api/jobs", "/api//jobs", "/%61pi/jobs", "/api/%2e%2e/api/jobs", "/healthz/../api/jobs", "/healthz/",
        "/api/jobs/", "/static/../api/jobs", "/api/jobs?key=x", "/openapi.json", "/docs", "/docs/style.css", "/readyz",
        "/metrics", "/", "/nothing", "/healthz%2f..%2fapi%2fjobs", "/login/../api/jobs", "/HEALTHZ",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_avoids_the_check_of_keys(locked: Served, path: str) -> None:
    for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
        connection = http.client.HTTPConnection("127.0.0.1", locked.server.port, timeout=10)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        # What is open without a key is health, the login, and what the login page is made of: nothing of it is data.
        if path.startswith("/static/"):
            assert answer.status in (404, 405)
        else:
            assert answer.status == 401, (method, path)
        assert b"items" not in body
        connection.close()


@pytest.mark.rule("SEC-02")
def test_healthz_alone_answers_without_a_key(locked: Served) -> None:
    assert locked.client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.rule("SEC-02")
def test_a_key_that_may_only_read_changes_nothing_anywhere(locked: Served) -> None:
    with locked.new_client(locked.add_key(Scope.READ)) as reader:
        for method, path in routes(locked):
            if path.startswith(STREAMS) or path in OPEN_PATHS:
                continue
            answer = reader.request(method, path)
            if path == "/api/webhooks/secret" or (method, path) == ("GET", "/api/keys"):
                problem_of(answer, 403, "needs_admin")
            elif method == "GET":
                assert answer.status_code not in (401, 403), path
            else:
                problem_of(answer, 403, "needs_write")
        overridden = reader.get("/api/jobs", headers={"X-HTTP-Method-Override": "DELETE"})
        assert overridden.status_code == 200


@pytest.mark.rule("SEC-02")
def test_a_new_key_opens_at_once_and_a_revoked_one_opens_nothing(locked: Served) -> None:
    key = locked.add_key(Scope.WRITE, unique("short-lived"))
    with locked.new_client(key) as own:
        assert own.post("/api/jobs", json={"type": "echo"}).status_code == 201
        stored = [
            api_key
            for api_key in locked.store.read_sync(list_api_keys)
            if api_key.hash and key.startswith(api_key.prefix)
        ]
        locked.store.write_sync(revoke_api_key, stored[0].id)
        eventually(lambda: own.get("/api/jobs").status_code == 401)


@pytest.mark.rule("SEC-01")
def test_a_server_without_keys_is_open_on_loopback_and_closes_with_the_first_key(serve: Serve) -> None:
    server = serve(has_worker=False)
    assert server.client.get("/api/jobs").status_code == 200
    server.add_key(Scope.READ)
    eventually(lambda: server.client.get("/api/jobs").status_code == 401)
    for key in server.store.read_sync(list_api_keys):
        server.store.write_sync(revoke_api_key, key.id)
    server.run(server.server.context.keys._read())  # what a request does once its knowledge of the keys is old
    assert server.client.get("/api/jobs").status_code == 401


@pytest.mark.rule("SEC-01")
def test_a_server_beyond_loopback_refuses_to_start_without_a_key(new_store_url: Any) -> None:
    with pytest.raises(SettingsError, match="no API key"):
        Served(new_store_url(), host="0.0.0.0", has_worker=False)


@pytest.mark.rule("SEC-01")
def test_a_server_beyond_loopback_serves_those_who_have_a_key(serve: Serve) -> None:
    server = serve(host="0.0.0.0", has_worker=False, is_key_needed=True)
    url = f"http://127.0.0.1:{server.server.port}"
    assert httpx2.get(f"{url}/api/jobs", trust_env=False).status_code == 401
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    assert httpx2.get(f"{url}/api/jobs", headers=headers, trust_env=False).status_code == 200


@pytest.mark.rule("SEC-01")
def test_a_port_that_is_taken_is_said_plainly(served: Served, new_store_url: Any) -> None:
    with pytest.raises(SettingsError, match="cannot be served on"):
        Served(new_store_url(), port=served.server.port, has_worker=False)


# --- the dashboard's session --------------------------------------------------------------------------------


@pytest.mark.rule("SEC-02")
def test_a_session_stands_for_its_key_and_cannot_be_made_up(locked: Served) -> None:
    key = locked.add_key(Scope.READ, unique("browser"))
    with locked.new_client() as browser:
        problem_of(browser.post("/login", json={"key": "wrong"}), 401)
        answer = browser.post("/login", json={"key": key})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert key not in cookie
        assert browser.get("/api/jobs").status_code == 200
        problem_of(browser.post("/api/jobs", json={"type": "echo"}), 403, "needs_write")
        value = re.match(r"holdbeat_session=([^;]+)", cookie)
        assert value is not None
        for forged in (
            f"{value[1]}x",
            value[1][:-1],
            hash_of(value[1]),
            "..",
            "é",
            "",
        ):
            with locked.new_client() as thief:
                header = {b"Cookie": f"holdbeat_session={forged}".encode()}
                assert thief.get("/api/jobs", headers=header).status_code == 401
        assert browser.post("/logout").headers["location"] == "/login"
        assert browser.get("/api/jobs").status_code == 401


@pytest.mark.rule("SEC-02")
def test_a_session_ends_with_its_key(locked: Served) -> None:
    key = locked.add_key(Scope.ADMIN, unique("gone"))
    with locked.new_client() as browser:
        answer = browser.post(
            "/login", content=f"key={key}", headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert browser.get("/api/jobs").status_code == 200
        stored = next(api_key for api_key in locked.store.read_sync(list_api_keys) if key.startswith(api_key.prefix))
        locked.store.write_sync(revoke_api_key, stored.id)
        eventually(lambda: browser.get("/api/jobs").status_code == 401)


@pytest.mark.rule("SEC-02")
@pytest.mark.parametrize(
    "beside",
    [
        "a=b c; {}",
        '{{"theme": "dark"}}; {}',
        "[x]=1; {}; y",
        "={}; {}",
        '{}; "',
        "a,b; {}",
        'x="; {}',
        "holdbeat_session=old; {}",
    ],
)
def test_a_session_is_found_beside_cookies_of_others_however_odd(locked: Served, beside: str) -> None:
    key = locked.add_key(Scope.READ, unique("browser"))
    with locked.new_client() as browser:
        cookie = browser.post("/login", json={"key": key}).headers["set-cookie"].partition(";")[0]
    header = beside.replace("{}", cookie) if "{{" not in beside else f'{{"theme": "dark"}}; {cookie}'
    with locked.new_client() as other:
        assert other.get("/api/jobs", headers={"Cookie": header}).status_code == 200
        assert other.get("/api/jobs", headers={"Cookie": header.replace(cookie, "x=y")}).status_code == 401


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize("body", ["&".join(f"f{n}=1" for n in range(50)), "key=%ff&" * 20, "%", "=" * 1000, "key"])
def test_a_login_form_of_any_shape_is_answered_without_a_fault(locked: Served, body: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = locked.client.post("/login", content=body, headers=headers)
    assert answer.status_code in (303, 422), answer.text
    if answer.status_code == 422:
        problem_of(answer, 422, "invalid_form")


# --- methods ------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-01")
def test_the_header_allow_names_every_method_that_a_path_takes(served: Served) -> None:
    by_path: dict[str, set[str]] = {}
    for method, path in routes(served):
        by_path.setdefault(path, set()).add(method)
    assert by_path[f"/api/jobs/{ANY_ID}"] == {"GET", "PATCH"}
    for path, methods in by_path.items():
        if path.startswith("/jobs/"):
            continue
        answer = served.client.request("TRACE", path)
        problem_of(answer, 405, "method_not_allowed")
        expected = methods | ({"HEAD"} if "GET" in methods else set())
        assert {item.strip() for item in answer.headers["allow"].split(",")} >= expected, path


@pytest.mark.rule("API-01", "API-05")
def test_head_answers_like_get_without_a_body(served: Served) -> None:
    """On one connection, so that a body that was sent after all would be taken for the next answer."""
    job = served.run_job("echo")
    paths = [
        "/healthz", "/readyz", "/metrics", "/openapi.json", "/api/jobs", f"/api/jobs/{job['id']}", "/api/events",
        f"/api/jobs/{job['id']}/logs?follow=true", f"/api/job-runs/{job['run']['id']}/artifacts/result", "/jobs",
        f"/api/jobs/{ANY_ID}", "/nothing",
    ]  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=10)
    for path in paths:
        connection.request("HEAD", path)
        head = connection.getresponse()
        assert head.read() == b""
        if "follow" in path or path == "/api/events":
            assert (head.status, head.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
            continue
        connection.request("GET", path)
        whole = connection.getresponse()
        body = whole.read()
        assert (head.status, head.getheader("content-type")) == (whole.status, whole.getheader("content-type")), path
        if path != "/readyz":
            assert int(head.getheader("content-length") or 0) == len(body), path
    connection.request("HEAD", "/api/direct/echo")
    refused = connection.getresponse()
    refused.read()
    assert (refused.status, refused.getheader("allow")) == (405, "POST")
    connection.close()


# --- shell --------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-05")
def test_only_an_admin_makes_or_edits_shell_work_and_others_run_templates_as_they_are(locked: Served) -> None:
    argv = {"argv": ["true"]}
    name = unique("shell")
    with locked.new_client(locked.admin_key) as admin, locked.new_client(locked.add_key(Scope.WRITE)) as writer:
        template = {"name": name, "type": "shell", "default_params": argv}
        problem_of(writer.post("/api/job-templates", json=template), 403, "needs_admin")
        made = admin.post("/api/job-templates", json=template)
        assert made.status_code == 201
        template_path = f"/api/job-templates/{made.json()['id']}"
        harmless = writer.post("/api/job-templates", json={"name": unique("t"), "type": "echo"}).json()["id"]
        scheduled = {"name": unique("s"), "interval_s": 3600}
        group = {"mode": "parallel", "jobs": [{"type": "shell", "params": argv}]}
        refused = [
            writer.post("/api/jobs", json={"type": "shell", "params": argv}),
            writer.post("/api/jobs", json={"template": name, "params": {"argv": ["id"]}}),
            writer.post("/api/jobs", json={"template": name, "params": {"env": {"LD_PRELOAD": "x"}}}),
            writer.post("/api/jobs/batch", json={"jobs": [{"type": "echo"}, {"type": "shell", "params": argv}]}),
            writer.post("/api/job-groups", json=group),
            writer.post("/api/direct/shell", json={"params": argv}),
            writer.post("/jobs/shell/trigger", json=argv),
            writer.post("/jobs/batch/trigger", json={"jobs": [{"type": "shell", "params": argv}]}),
            writer.patch(template_path, json={"default_params": {"argv": ["id"]}}),
            writer.patch(f"/api/job-templates/{harmless}", json={"type": "shell"}),
            writer.delete(template_path),
            writer.post("/api/schedules", json={**scheduled, "type": "shell", "params": argv}),
            writer.post("/api/schedules", json={**scheduled, "template": name}),
        ]
        for answer in refused:
            problem_of(answer, 403, "needs_admin")
        run = writer.post("/api/jobs", json={"template": name, "not_before": FAR})
        assert run.status_code == 201
        assert run.json()["params"] == argv
        problem_of(writer.patch(f"/api/jobs/{run.json()['id']}", json={"params": {"argv": ["id"]}}), 403, "needs_admin")
        assert admin.post("/api/jobs", json={"type": "shell", "params": argv, "not_before": FAR}).status_code == 201
        schedule = admin.post("/api/schedules", json={**scheduled, "template": name})
        assert schedule.status_code == 201
        problem_of(writer.patch(f"/api/schedules/{schedule.json()['id']}", json={"params": argv}), 403, "needs_admin")
        problem_of(writer.delete(f"/api/schedules/{schedule.json()['id']}"), 403, "needs_admin")
