"""Who comes in, and from where."""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from holdbeat.api.doors import OPEN_PATHS
from holdbeat.api.server import ApiServer
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import SettingsError
from holdbeat.store.verbs.api_keys import list_api_keys, revoke_api_key
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, eventually, problem_of, unique

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
    found = []
    for path, methods in document["paths"].items():
        for place, value in PLACES.items():
            path = path.replace(place, value)
        found += [(method.upper(), path) for method in methods]
    return found


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
    bodies = set()
    for method, path in closed:
        for headers in wrong if path in ("/api/jobs", "/metrics") else wrong[:2]:
            answer = locked.client.request(method, path, headers=headers)
            problem_of(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            bodies.add(answer.content)
    assert len(bodies) == 1


@pytest.mark.rule("SEC-02")
@pytest.mark.parametrize(
    "path",
    [
        "//api/jobs", "/api//jobs", "/%61pi/jobs", "/api/%2e%2e/api/jobs", "/healthz/../api/jobs", "/healthz/",
        "/api/jobs/", "/static/../api/jobs", "/api/jobs?key=x", "/openapi.json", "/docs", "/docs/style.css", "/readyz",
        "/metrics", "/", "/nothing", "/healthz%2f..%2fapi%2fjobs", "/login/../api/jobs", "/HEALTHZ",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_goes_round_the_doors(locked: Served, path: str) -> None:
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
            if method == "GET":
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
        stored = [each for each in locked.store.read_sync(list_api_keys) if each.hash and key.startswith(each.prefix)]
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
    time.sleep(1.2)
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
        key_id, ends, signature = value[1].rsplit(".", 2)
        for forged in (
            f"{key_id}.{int(ends) + 1}.{signature}",
            f"{key_id}.{ends}.",
            f"{key_id}.1.{signature}",
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
        stored = next(each for each in locked.store.read_sync(list_api_keys) if key.startswith(each.prefix))
        locked.store.write_sync(revoke_api_key, stored.id)
        eventually(lambda: browser.get("/api/jobs").status_code == 401)


# --- names and sites ----------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:7450", "127.0.0.1.evil.example", "localhost.evil.example", "evil@127.0.0.1",
        "127.0.0.1@evil.example", "", "169.254.169.254", "10.0.0.1", "localhost:99999", "0.0.0.0",
        "127.0.0.1, evil.example",
    ],
)  # fmt: skip
def test_a_strange_host_is_misdirected_on_every_path(served: Served, host: str) -> None:
    for path in ("/api/jobs", "/healthz", "/api/events", "/openapi.json", "/static/x.js", "/nothing"):
        answer = served.client.get(path, headers={"Host": host})
        problem_of(answer, 421, "misdirected")


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7450", "127.0.0.1", "[::1]:7450", "127.0.0.2:80", "localhost."]
)
def test_loopback_goes_by_its_names(served: Served, host: str) -> None:
    assert served.client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.rule("SEC-03")
def test_the_operator_can_name_more_hosts(serve: Serve) -> None:
    server = serve(has_worker=False, allowed_hosts=("holdbeat.example",))
    assert server.client.get("/healthz", headers={"Host": "holdbeat.example:443"}).status_code == 200
    assert server.client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[bad"},
        {"Origin": "chrome-extension://abc"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
    ],
)
def test_a_write_from_another_site_is_refused_and_does_nothing(served: Served, headers: dict[str, str]) -> None:
    label = unique("csrf")
    body = {"type": "echo", "labels": {"csrf": label}, "not_before": FAR}
    for path in ("/api/jobs", "/api/queue/pause", "/jobs/echo/trigger", "/login"):
        problem_of(served.client.post(path, json=body, headers=headers), 403, "cross_site")
    assert served.client.get("/api/jobs", params={"label": f"csrf={label}"}).json()["items"] == []
    assert served.client.get("/api/jobs", headers=headers).status_code == 200


@pytest.mark.rule("SEC-03")
def test_a_write_from_the_own_page_is_taken(served: Served) -> None:
    own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    body = {"type": "echo", "not_before": FAR}
    assert served.client.post("/api/jobs", json=body, headers=own).status_code == 201


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize("path", ["/api/jobs", "/healthz", "/nothing", "/docs", "/api/jobs/x", "/openapi.json"])
def test_every_answer_carries_the_headers_that_keep_browsers_safe(served: Served, path: str) -> None:
    answer = served.client.get(path, headers={"Origin": "http://evil.example"})
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "referrer-policy" in answer.headers
    assert not any(name.startswith("access-control-") for name in answer.headers)
    if answer.headers["content-type"].startswith("text/html"):
        assert "<script" not in answer.text


@pytest.mark.rule("API-01")
def test_what_the_router_refuses_is_a_problem_too(served: Served) -> None:
    problem_of(served.client.get("/api/nothing"), 404, "not_found")
    answer = served.client.put("/api/jobs", json={})
    problem_of(answer, 405, "method_not_allowed")
    assert set(re.split(r", ?", answer.headers["allow"])) & {"GET", "POST"}
    problem_of(served.client.get("/api/jobs/"), 404)
    words = (
        "PATCH /api/jobs/batch",
        "GET /api/job-runs/retry",
        "DELETE /api/schedules/preview",
        "GET /jobs/batch/trigger",
    )
    for method, path in (word.split() for word in words):
        refused = served.client.request(method, path)
        problem_of(refused, 405)
        assert refused.headers["allow"] == "POST"


@pytest.mark.rule("API-01")
def test_a_fault_of_the_server_shows_an_id_and_nothing_else(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(has_worker=False)

    def broken() -> tuple[bytes, str]:
        raise ZeroDivisionError("a secret detail")

    server.server.service.metrics = broken
    found = problem_of(server.client.get("/metrics"), 500, "internal_error")
    assert "secret" not in str(found)
    assert "Traceback" not in str(found)
    assert any(found["id"] in record.getMessage() and record.exc_info for record in caplog.records)


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


# --- slow clients -------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-06")
def test_a_client_that_sends_nothing_or_drips_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdbeat.api.server.REQUEST_PATIENCE_S", 0.5)
    head = b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    starts = (
        b"",
        b"GET /hea",
        head,
        head + b"Content-Length: 100\r\n\r\n{",
        head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    )
    lines = []
    for start in starts:
        line = socket.create_connection(("127.0.0.1", served.server.port), timeout=10)
        line.sendall(start)
        lines.append(line)
    began = time.monotonic()
    for line in lines:
        while line.recv(4096):
            continue
        line.close()
    assert time.monotonic() - began < 5
    assert served.client.get("/healthz").status_code == 200


@pytest.mark.rule("SEC-06")
def test_hundreds_of_idle_connections_leave_the_api_alive(served: Served) -> None:
    lines = [socket.create_connection(("127.0.0.1", served.server.port), timeout=10) for _ in range(300)]
    try:
        began = time.monotonic()
        assert served.client.get("/healthz").status_code == 200
        assert time.monotonic() - began < 2
    finally:
        for line in lines:
            line.close()


@pytest.mark.rule("SEC-06")
def test_a_head_without_end_is_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 200_000)
        assert line.recv(100).startswith(b"HTTP/1.1 4")


def test_the_server_is_one_that_can_be_asked_where_it_is(served: Served) -> None:
    assert isinstance(served.server, ApiServer)
    assert served.server.address == f"http://127.0.0.1:{served.server.port}"
