"""Figures, health and the legacy API."""

from __future__ import annotations

import time

import httpx2
import pytest

from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of
from tests.waiting import eventually

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"


# --- figures and health -------------------------------------------------------------------------------------


@pytest.mark.rule("API-01")
def test_the_figures_add_up(served: Served, client: httpx2.Client) -> None:
    served.run_job("echo")
    body = client.get("/api/stats").json()
    assert body["jobs"].keys() == {
        "QUEUED",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "SKIPPED",
        "CANCELLED",
        "CONTINUED",
        "total",
    }
    assert body["jobs"]["total"] == sum(value for name, value in body["jobs"].items() if name != "total")
    assert body["resources"]["default"].keys() >= {"slots", "used", "waiting", "oldest_wait_s"}
    assert body["runs"]["last_hour"]["COMPLETED"] >= 1
    assert {"workers", "zombies_recovered", "stale_results", "schedules"} <= body.keys()
    workers = client.get("/api/workers").json()["items"]
    assert [worker["kind"] for worker in workers] == ["serve"]
    assert "echo" in workers[0]["types"]
    types = {item["name"]: item for item in client.get("/api/job-types").json()["items"]}
    assert types["echo"]["schema"]["properties"]["x"]["type"] == "integer"
    assert types["echo"]["aliases"] == ["parrot"]


@pytest.mark.rule("API-05")
def test_readiness_is_a_probe_of_store_claim_trigger_and_dispatcher(served: Served, client: httpx2.Client) -> None:
    body = client.get("/readyz").json()
    assert body["ready"] is True
    assert body["checks"].keys() == {"server", "store", "trigger", "dispatcher"}
    assert all(check["ok"] for check in body["checks"].values())


@pytest.mark.rule("API-05")
def test_a_server_whose_store_cannot_write_is_alive_but_not_ready(serve: Serve) -> None:
    server = serve(has_worker=False)
    assert server.client.get("/readyz").status_code == 200
    server.store.close()
    assert server.client.get("/healthz").status_code == 200
    began = time.monotonic()
    problem_of(server.client.get("/readyz"), 503)
    assert time.monotonic() - began < 12


@pytest.mark.rule("API-05", "SEC-02")
def test_the_process_answers_while_its_store_is_away_and_says_nothing_about_the_store(serve: Serve) -> None:
    server = serve(has_worker=False, is_key_needed=True)
    server.store.close()
    server.server.context.keys._is_stale = True
    assert server.client.get("/healthz").json() == {"status": "ok"}
    assert server.client.head("/healthz").status_code == 200
    problem = problem_of(server.client.get("/api/jobs"), 503)
    assert "does not answer" in problem["detail"]
    assert server.settings.store not in str(problem)
    assert "127.0.0.1" not in str(problem)


@pytest.mark.rule("API-03")
def test_workers_and_job_types_come_in_pages(served: Served, client: httpx2.Client) -> None:
    whole = client.get("/api/job-types?limit=500").json()
    assert whole["next_cursor"] is None
    seen, cursor = [], None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/job-types", params=query).json()
        assert len(page["items"]) <= 3
        seen += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [item["name"] for item in whole["items"]] == sorted(seen)
    for query_text in ("limit=1", "limit=1&all=true"):
        page = client.get(f"/api/workers?{query_text}").json()
        assert len(page["items"]) == 1
    problem_of(client.get("/api/workers?cursor=x"), 422, "bad_cursor")
    problem_of(client.get("/api/job-types?cursor=x"), 422, "bad_cursor")
    problem_of(client.get("/api/workers?limit=0"), 422)


@pytest.mark.rule("OPS-05")
def test_metrics_come_from_the_hook(serve: Serve) -> None:
    server = serve(has_worker=False)
    server.server.context.metrics = lambda: (b"holdbeat_up 1\n", "text/plain; version=0.0.4")
    answer = server.client.get("/metrics")
    assert (answer.text, answer.headers["content-type"]) == ("holdbeat_up 1\n", "text/plain; version=0.0.4")


# --- legacy -------------------------------------------------------------------------------------------------


@pytest.mark.rule("CON-004")
def test_the_legacy_api_works_in_its_old_words_and_says_that_it_goes(served: Served, client: httpx2.Client) -> None:
    answer = client.post("/jobs/echo/trigger", json={"x": 9})
    assert answer.status_code == 202
    assert answer.json()["status"] == "queued"
    for name in ("deprecation", "sunset", "link"):
        assert name in answer.headers
    job_id = answer.json()["job_id"]
    served.wait_for(job_id)
    body = client.get(f"/jobs/{job_id}").json()
    assert (body["job_id"], body["status"], body["result"]) == (job_id, "succeeded", {"x": 9, "text": None})
    assert job_id in [job["job_id"] for job in client.get("/jobs").json()["jobs"]]
    assert client.get("/jobs?status=running").status_code == 200
    problem_of(client.get("/jobs?status=RUNNING"), 422)
    refused = client.post("/jobs/nope/trigger", json={})
    problem_of(refused, 422, "unknown_type")
    assert "deprecation" in refused.headers
    problem_of(client.post(f"/jobs/{job_id}/cancel"), 409)
    waiting = served.submit("echo", not_before=FAR)["id"]
    assert client.post(f"/jobs/{waiting}/cancel").json()["status"] == "cancelled"
    assert client.get(f"/jobs/{served.run_job('fail')['id']}").json()["status"] == "failed"
    assert client.get(f"/jobs/{served.run_job('skip')['id']}").json()["status"] == "skipped"
    assert "/jobs/{type}/trigger" in served.legacy_calls


@pytest.mark.rule("CON-004")
def test_a_legacy_batch_has_a_status_of_its_own(served: Served, client: httpx2.Client) -> None:
    def status_of(*types: str) -> str:
        answer = client.post("/jobs/batch/trigger", json={"jobs": [{"type": type_} for type_ in types]})
        assert answer.status_code == 202
        path = f"/jobs/batch/{answer.json()['batch_id']}"
        return str(
            eventually(
                lambda: (body := client.get(path).json())["status"] not in ("queued", "running") and body["status"]
            )
        )

    assert status_of("echo", "echo") == "succeeded"
    assert status_of("echo", "fail") == "partial"
    assert status_of("fail", "fail") == "failed"
    problem_of(client.post("/jobs/batch/trigger", json={"jobs": []}), 422)
    problem_of(client.post("/jobs/batch/trigger", json={"jobs": [{"params": {}}]}), 422)
    problem_of(client.post("/jobs/batch/trigger", json={"jobs": [{"type": "echo", "priority": 1}]}), 422)
    problem_of(client.get(f"/jobs/batch/{ANY_ID}"), 404)


@pytest.mark.rule("CON-004")
@pytest.mark.parametrize(
    ("method", "path", "status", "counted"),
    [
        ("GET", "/jobs?foo=1", 422, "/jobs"),
        ("GET", f"/jobs/{ANY_ID}?foo=1", 422, "/jobs/{id}"),
        ("PUT", "/jobs", 405, "/jobs"),
        ("DELETE", f"/jobs/{ANY_ID}", 405, "/jobs/{id}"),
        ("GET", "/jobs/batch/trigger", 405, "/jobs/batch/trigger"),
        ("POST", "/jobs/echo/trigger?x=1", 422, "/jobs/{type}/trigger"),
    ],
)
def test_what_the_legacy_api_refuses_says_too_that_it_goes_and_is_counted(
    served: Served, method: str, path: str, status: int, counted: str
) -> None:
    before = served.legacy_calls.count(counted)
    refused = served.client.request(method, path)
    problem_of(refused, status)
    assert {"deprecation", "sunset", "link"} <= {*refused.headers}
    assert served.legacy_calls.count(counted) == before + 1


@pytest.mark.rule("CON-004")
def test_the_legacy_api_can_be_switched_off(serve: Serve) -> None:
    server = serve(has_worker=False, legacy_api=False)
    problem_of(server.client.get("/jobs"), 404)
    problem_of(server.client.post("/jobs/echo/trigger", json={}), 404)
    assert "/jobs" not in server.client.get("/openapi.json").json()["paths"]
