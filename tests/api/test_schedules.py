"""Schedules and endpoints through the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest

from holdbeat.domain.schedule import VERBS
from tests.api.serving import FAR, Served, open_gate, problem_of, unique
from tests.waiting import eventually


def make(client: httpx2.Client, **fields: Any) -> dict[str, Any]:
    body = {"name": unique("schedule"), "type": "echo", "interval_s": 3600, **fields}
    answer = client.post("/api/schedules", json={name: value for name, value in body.items() if value is not None})
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


@pytest.mark.rule("DEC-010", "API-02")
def test_a_schedule_is_made_found_edited_under_its_version_and_deleted(served: Served, client: httpx2.Client) -> None:
    made = make(client, interval_s=None, cron="0 3 * * *", timezone="Europe/Berlin", params={"x": 3}, priority=4)
    path = f"/api/schedules/{made['id']}"
    assert (made["cron"], made["timezone"], made["dst"], made["version"]) == ("0 3 * * *", "Europe/Berlin", "vixie", 1)
    assert made["next_run_at"] is not None
    answer = client.get(path)
    assert answer.json() == made
    assert answer.headers["etag"] == '"1"'
    assert client.get(f"/api/schedules/{made['name']}").json() == made
    edited = client.patch(path, json={"interval_s": 60}, headers={"If-Match": '"1"'})
    assert (edited.status_code, edited.json()["cron"], edited.json()["interval_s"]) == (200, None, 60)
    problem_of(client.patch(path, json={"interval_s": 90}, headers={"If-Match": '"1"'}), 412, "stale_version")
    problem_of(client.patch(path, json={"colour": 1}), 422, "unknown_field")
    problem_of(
        client.post("/api/schedules", json={"name": made["name"], "type": "echo", "interval_s": 5}), 409, "name_taken"
    )
    listed = client.get("/api/schedules", params={"limit": 500}).json()["items"]
    assert made["id"] in [item["id"] for item in listed]
    assert client.get("/api/schedules", params={"enabled": "false", "limit": 500}).status_code == 200
    assert client.delete(path).status_code == 204
    problem_of(client.get(path), 404)


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"type": "echo", "interval_s": 5}, "name"),
        ({"name": "a", "type": "echo"}, None),
        ({"name": "a", "type": "echo", "cron": "* * * * *", "interval_s": 5}, None),
        ({"name": "a", "type": "nope", "interval_s": 5}, "type"),
        ({"name": "a", "interval_s": 5}, "type"),
        ({"name": "a", "type": "echo", "cron": "61 * * * *"}, "cron"),
        ({"name": "a", "type": "echo", "cron": "9" * 5000}, "cron"),
        ({"name": "a", "type": "echo", "cron": "* * * * *" + " " * 300}, "cron"),
        ({"name": "a", "type": "echo", "cron": 5}, "cron"),
        ({"name": "a", "type": "echo", "cron": "* * * * *", "timezone": "Mars/Phobos"}, "timezone"),
        ({"name": "a", "type": "echo", "cron": "* * * * *", "timezone": "../../etc/passwd"}, "timezone"),
        ({"name": "a", "type": "echo", "cron": "* * * * *", "timezone": 5}, "timezone"),
        ({"name": "a", "type": "echo", "cron": "* * * * *", "dst": "maybe"}, "dst"),
        ({"name": "a", "type": "echo", "interval_s": -5}, "interval_s"),
        ({"name": "a", "type": "echo", "interval_s": 1e400}, None),
        ({"name": "a", "type": "echo", "interval_s": 5, "params": {"x": "no"}}, "params.x"),
        ({"name": "a", "type": "echo", "interval_s": 5, "overlap": "both"}, "overlap"),
        ({"name": "a", "type": "echo", "interval_s": 5, "min_interval_s": 1}, None),
        (
            {"name": "a", "type": "echo", "interval_s": 5, "adaptive": True, "min_interval_s": 9, "max_interval_s": 2},
            None,
        ),
        ({"name": "a", "type": "echo", "interval_s": 5, "next_run_at": FAR}, "next_run_at"),
        ({"name": "a", "template": "no such", "interval_s": 5}, "template"),
        ({"name": "a", "template": {"id": 1}, "interval_s": 5}, "template"),
    ],
)
def test_a_schedule_that_breaks_a_rule_is_refused(
    client: httpx2.Client, body: dict[str, Any], field: str | None
) -> None:
    text = json.dumps(body).replace("Infinity", "1e400")
    problem = problem_of(client.post("/api/schedules", content=text), 422)
    if field is not None:
        assert problem["field"] == field


@pytest.mark.rule("TIME-11")
def test_a_schedule_is_fired_by_hand_and_the_due_time_is_on_record(served: Served, client: httpx2.Client) -> None:
    made = make(client, enabled=False)
    path = f"/api/schedules/{made['id']}"
    fired = client.post(f"{path}/trigger")
    assert fired.status_code == 201
    job = served.wait_for(fired.json()["id"])
    assert (job["status"], job["schedule_id"]) == ("COMPLETED", made["id"])
    assert fired.json()["occurrence"]["status"] == "manual"
    record = client.get(f"{path}/occurrences").json()["items"]
    assert [(item["status"], item["job_id"]) for item in record] == [("manual", job["id"])]
    problem_of(client.get(f"{path}/occurrences?status=lost"), 422)
    problem_of(client.post(f"{path}/trigger", json={"x": 1}), 422)
    gate = unique("gate")
    strict = make(client, type="hold", params={"gate": gate}, overlap="skip", enabled=False)
    assert client.post(f"/api/schedules/{strict['id']}/trigger").status_code == 201
    problem_of(client.post(f"/api/schedules/{strict['id']}/trigger"), 409, "overlap")
    open_gate(gate)


@pytest.mark.rule("TIME-10", "GOV-07")
def test_a_schedule_is_paused_resumed_disabled_and_enabled(client: httpx2.Client) -> None:
    made = make(client)
    path = f"/api/schedules/{made['id']}"
    paused = client.post(f"{path}/pause", json={"until": FAR, "reason": "holiday"}).json()
    assert (paused["paused_until"], paused["pause_reason"]) == (FAR, "holiday")
    assert client.get(f"{path}/explain").json()["state"] == "paused"
    assert client.post(f"{path}/resume").json()["paused_until"] is None
    assert client.post(f"{path}/pause").json()["paused_indefinitely"] is True
    problem_of(client.post(f"{path}/pause", json={"until": "2001-01-01T00:00:00Z"}), 422)
    problem_of(client.post(f"{path}/pause", json={"until": 5}), 422)
    problem_of(client.post(f"{path}/pause", json={"reason": ["x"]}), 422)
    resumed = client.post("/api/schedules/resume", json={"ids": [made["id"]]}).json()["items"]
    assert resumed[0]["paused_until"] is None
    problem_of(client.post("/api/schedules/resume", json={"ids": "all"}), 422)
    disabled = client.post(f"{path}/disable").json()
    assert (disabled["enabled"], disabled["next_run_at"]) == (False, None)
    assert client.post(f"{path}/enable").json()["next_run_at"] is not None
    explained = client.get(f"{path}/explain").json()
    assert explained["state"] == "planned"
    assert explained["summary"].endswith(".")


@pytest.mark.rule("GOV-02", "GOV-08", "TIME-09")
def test_hints_are_for_adaptive_schedules_and_move_the_plan_at_once(client: httpx2.Client) -> None:
    plain = make(client)
    problem_of(client.post(f"/api/schedules/{plain['id']}/hints", json={"interval_s": 60}), 422, "not_adaptive")
    made = make(client, adaptive=True)
    path = f"/api/schedules/{made['id']}"
    hinted = client.post(f"{path}/hints", json={"interval_s": 60, "ttl_s": 600, "reason": "look closer"}).json()
    assert (hinted["hint_interval_s"], hinted["hint_interval_reason"]) == (60, "look closer")
    assert hinted["next_run_at"] < made["next_run_at"]
    cleared = client.delete(f"{path}/hints").json()
    assert cleared["hint_interval_s"] is None
    assert client.post(f"{path}/reset-failures").json()["failure_count"] == 0
    for body in ({}, {"interval_s": -1}, {"interval_s": "x"}, {"next_run_at": "soon"}, {"ttl_s": 5}, {"colour": 1}):
        problem_of(client.post(f"{path}/hints", json=body), 422)


@pytest.mark.rule("TIME-08")
def test_a_preview_marks_gaps_and_folds_before_and_after_saving(client: httpx2.Client) -> None:
    asked = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-03-28T00:00:00Z", "n": 2}
    answer = client.post("/api/schedules/preview", json=asked).json()
    items = answer["items"]
    assert answer["clock_change"]["at"] == "2026-03-29T01:00:00.000Z"
    assert [(item["at"], item["note"]) for item in items] == [
        ("2026-03-28T01:30:00.000Z", None),
        ("2026-03-29T01:00:00.000Z", "gap"),
    ]
    assert items[0]["local"].startswith("2026-03-28T02:30:00")
    fold = client.post(
        "/api/schedules/preview", json={**asked, "after": "2026-10-24T12:00:00Z", "n": 1, "dst": "skip"}
    ).json()["items"]
    assert fold[0]["note"] == "fold"
    assert len(client.post("/api/schedules/preview", json={"interval_s": 60}).json()["items"]) == 10
    assert len(client.post("/api/endpoints/preview", json={"interval_s": 60, "n": 2}).json()["items"]) == 2
    saved = make(client, interval_s=None, cron="30 2 * * *")
    assert len(client.get(f"/api/schedules/{saved['id']}/preview?n=3").json()["items"]) == 3
    problem_of(client.get(f"/api/schedules/{saved['id']}/preview?n=0"), 422)
    bad: list[dict[str, Any]] = [
        {}, {"cron": "x"}, {"cron": 5}, {"interval_s": "x"}, {"interval_s": True}, {"cron": "* * * * *", "n": 0},
        {"cron": "* * * * *", "n": 10**9}, {"cron": "* * * * *", "timezone": "Nowhere"},
        {"cron": "* * * * *", "dst": []}, {"cron": "* * * * *", "after": "x"}, {"cron": "* * * * *", "interval_s": 5},
        {"cron": "* * * * *", "colour": 1},
    ]  # fmt: skip
    for body in bad:
        problem_of(client.post("/api/schedules/preview", json=body), 422)


# --- endpoints ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server that endpoints call."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"hello": "you"}'
            self.send_response(500 if self.path == "/broken" else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Set-Cookie", "session=canary-cookie")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.rule("GOV-11", "GOV-12", "SEC-07")
def test_an_endpoint_is_tested_without_a_trace_and_keeps_its_secrets(client: httpx2.Client, target: str) -> None:
    canary = unique("canary")
    answer = client.post(
        "/api/endpoints",
        json={
            "name": unique("endpoint"),
            "url": f"{target}/fine",
            "headers": {"Authorization": f"Bearer {canary}"},
            "interval_s": 3600,
        },
    )
    assert answer.status_code == 201, answer.text
    made = answer.json()
    path = f"/api/endpoints/{made['id']}"
    assert (made["adaptive"], made["method"], made["resource"]) == (True, "GET", "http")
    assert made["headers"] == {"Authorization": "[redacted]"}
    assert (made["timeout_s"], made["max_execution_s"], made["max_response_kb"]) == (30, 60, 100)
    tested = client.post(f"{path}/test").json()
    assert (tested["ok"], tested["status_code"], tested["body"]) == (True, 200, {"hello": "you"})
    assert "canary-cookie" not in str(tested)
    assert client.get(path).json() == made
    assert client.get(f"{path}/occurrences").json()["items"] == []
    edited = client.patch(path, json={"headers": made["headers"], "url": f"{target}/broken"})
    assert edited.status_code == 200
    assert canary not in edited.text
    broken = client.post(f"{path}/test").json()
    assert (broken["ok"], broken["status_code"]) == (False, 500)
    health = client.get(f"{path}/health").json()
    assert health["windows"]["1h"] == {"successes": 0, "failures": 0, "mean_duration_s": None}
    fired = client.post(f"{path}/trigger").json()
    assert canary not in str(fired)
    eventually(lambda: client.get(f"{path}/health").json()["windows"]["1h"]["failures"] == 1)
    assert client.get(path).json()["failure_count"] == 1
    assert client.post(f"{path}/reset-failures").json()["failure_count"] == 0
    problem_of(client.post(f"{path}/hints", json={"next_run_at": FAR}), 422, "out_of_range")
    assert client.delete(f"{path}/hints").status_code == 200
    assert made["id"] in [item["id"] for item in client.get("/api/endpoints?limit=500").json()["items"]]
    assert made["id"] not in [item["id"] for item in client.get("/api/schedules?limit=500").json()["items"]]
    problem_of(client.get(f"/api/schedules/{made['id']}"), 404)
    assert client.delete(path).status_code == 204
    problem_of(client.post(f"{path}/test"), 404)


@pytest.mark.rule("API-02", "GOV-06")
@pytest.mark.parametrize(
    "fields",
    [
        {"url": "ftp://x"},
        {"url": "http://user:pass@example.org"},
        {"url": 5},
        {"method": "TRACE"},
        {"headers": {"bad header": "x"}},
        {"headers": {"a": "x\r\nInjected: yes"}},
        {"timeout_s": 90},
        {"max_execution_s": 1801},
        {"max_response_kb": 0},
        {"type": "echo"},
        {"min_interval_s": 60, "max_interval_s": 5},
        {"overlap": "allow"},
        {"colour": 1},
    ],
)
def test_an_endpoint_that_breaks_a_rule_is_refused(client: httpx2.Client, fields: dict[str, Any]) -> None:
    body = {"name": unique("endpoint"), "url": "https://example.org/", "interval_s": 60, **fields}
    problem_of(client.post("/api/endpoints", json=body), 422)


@pytest.mark.rule("API-01")
def test_words_of_the_api_that_stand_where_a_name_could_are_no_names(served: Served) -> None:
    paths = served.client.get("/openapi.json").json()["paths"]
    parts = [path.split("/") for path in paths if path.startswith(("/api/schedules/", "/api/endpoints/"))]
    assert {words[3] for words in parts if not words[3].startswith("{")} == VERBS
