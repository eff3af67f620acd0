"""Groups, templates, queue, direct requests, webhooks, figures and health through the API."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest

from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, eventually, open_gate, problem_of, unique

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"


# --- groups -------------------------------------------------------------------------------------------------


@pytest.mark.rule("DEC-012", "GRP-04")
def test_a_group_is_answered_with_its_jobs_and_ends_as_one(served: Served, client: httpx2.Client) -> None:
    body: dict[str, Any] = {
        "name": unique("g"),
        "mode": "sequential",
        "jobs": [{"type": "echo"}, {"type": "echo", "params": {"x": 2}}],
    }
    answer = client.post("/api/job-groups", json=body)
    assert answer.status_code == 201
    group = answer.json()
    assert (group["mode"], group["on_failure"], group["status"]) == ("sequential", "stop", "QUEUED")
    assert [job["sequence"] for job in group["jobs"]] == [0, 1]
    path = f"/api/job-groups/{group['id']}"
    ended = eventually(lambda: (found := client.get(path).json())["status"] == "COMPLETED" and found)
    assert all(job["status"] == "COMPLETED" for job in ended["jobs"])
    listed = client.get("/api/job-groups", params={"name": body["name"]}).json()["items"]
    assert [each["id"] for each in listed] == [group["id"]]
    problem_of(client.post(f"{path}/cancel"), 409, "already_ended")


@pytest.mark.rule("GRP-03")
def test_a_group_is_cancelled_as_a_whole(served: Served, client: httpx2.Client) -> None:
    jobs = [{"type": "echo", "not_before": FAR} for _ in range(3)]
    group = client.post("/api/job-groups", json={"mode": "parallel", "jobs": jobs}).json()
    cancelled = client.post(f"/api/job-groups/{group['id']}/cancel", json={"reason": "enough"}).json()
    assert cancelled["status"] == "CANCELLED"
    assert {job["cancel_reason"] for job in cancelled["jobs"]} == {"enough"}


@pytest.mark.rule("GRP-04", "API-02")
@pytest.mark.parametrize(
    "body",
    [
        {"mode": "parallel", "jobs": []},
        {"mode": "parallel"},
        {"jobs": [{"type": "echo"}]},
        {"mode": "diagonal", "jobs": [{"type": "echo"}]},
        {"mode": [], "jobs": [{"type": "echo"}]},
        {"mode": "parallel", "on_failure": "panic", "jobs": [{"type": "echo"}]},
        {"mode": "parallel", "jobs": [{"type": "nope"}]},
        {"mode": "parallel", "jobs": ["echo"]},
        {"mode": "parallel", "name": 5, "jobs": [{"type": "echo"}]},
        {"mode": "parallel", "colour": 1, "jobs": [{"type": "echo"}]},
    ],
)
def test_a_group_that_breaks_a_rule_is_refused(client: httpx2.Client, body: dict[str, Any]) -> None:
    problem_of(client.post("/api/job-groups", json=body), 422)


# --- templates ----------------------------------------------------------------------------------------------


@pytest.mark.rule("API-02", "INV-005")
def test_a_template_is_edited_under_its_version_and_archived(served: Served, client: httpx2.Client) -> None:
    name = unique("template")
    made = client.post("/api/job-templates", json={"name": name, "type": "echo", "default_params": {"x": 5}})
    assert made.status_code == 201
    template = made.json()
    path = f"/api/job-templates/{template['id']}"
    assert made.headers["etag"] == '"1"'
    job = client.post("/api/jobs", json={"template": name, "not_before": FAR}).json()
    assert (job["template_id"], job["params"]) == (template["id"], {"x": 5})
    changed = client.patch(path, json={"default_params": {"x": 6}}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["etag"], changed.json()["version"]) == (200, '"2"', 2)
    for stale in ('"1"', "1", '"x"', "99"):
        problem_of(client.patch(path, json={"priority": 1}, headers={"If-Match": stale}), 412, "stale_version")
    assert client.patch(path, json={"priority": 1}, headers={"If-Match": "2"}).status_code == 200
    assert client.patch(path, json={"priority": None}, headers={"If-Match": "*"}).status_code == 200
    assert client.patch(path, json={}).status_code == 200
    assert served.job(job["id"])["params"] == {"x": 5}
    assert client.get(f"/api/job-templates/{name}").json()["default_params"] == {"x": 6}
    problem_of(client.post("/api/job-templates", json={"name": name, "type": "echo"}), 409, "name_taken")
    problem_of(client.patch(path, json={"colour": 1}), 422, "unknown_field")
    problem_of(client.post("/api/jobs", json={"template": name, "type": "fail"}), 422, "other_type")
    assert client.delete(path).json()["archived_at"] is not None
    problem_of(client.post("/api/jobs", json={"template": name}), 409, "archived")
    problem_of(client.patch(path, json={"priority": 1}), 409)
    assert name not in [each["name"] for each in client.get("/api/job-templates?limit=500").json()["items"]]
    assert name in [each["name"] for each in client.get("/api/job-templates?limit=500&archived=all").json()["items"]]


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    "body",
    [
        {"type": "echo"},
        {"name": "x"},
        {"name": "", "type": "echo"},
        {"name": ANY_ID, "type": "echo"},
        {"name": "x", "type": "nope"},
        {"name": "x", "type": "echo", "default_params": {"x": "no"}},
        {"name": "x", "type": "echo", "version": 5},
        {"name": "x\n", "type": "echo"},
        {"name": ["x"], "type": "echo"},
        {"name": "x", "type": ["echo"]},
    ],
)
def test_a_template_that_breaks_a_rule_is_refused(client: httpx2.Client, body: dict[str, Any]) -> None:
    problem_of(client.post("/api/job-templates", json=body), 422)


# --- the queue ----------------------------------------------------------------------------------------------


@pytest.mark.rule("QUE-04")
def test_a_paused_resource_starts_nothing_until_it_is_resumed(served: Served, client: httpx2.Client) -> None:
    resource = unique("paused")
    paused = client.post("/api/queue/pause", json={"resource": resource, "reason": "service"}).json()["paused"]
    assert [(each["resource"], each["reason"]) for each in paused if each["resource"] == resource] == [
        (resource, "service")
    ]
    job = served.submit("echo", resource=resource)
    entry = client.get("/api/queue", params={"resource": resource}).json()
    assert "paused" in entry["items"][0]["blocked_by"]
    assert any(each["resource"] == resource for each in entry["paused"])
    assert served.job(job["id"])["status"] == "QUEUED"
    client.post("/api/queue/resume", json={"resource": resource})
    assert served.wait_for(job["id"])["status"] == "COMPLETED"
    problem_of(client.post("/api/queue/pause", json={"resource": "*"}), 422)
    problem_of(client.post("/api/queue/pause", json={"resource": 5}), 422)
    problem_of(client.post("/api/queue/resume", json={"reason": "x"}), 422)


@pytest.mark.rule("QUE-04")
def test_everything_can_be_paused_without_a_body(serve: Serve) -> None:
    server = serve()
    assert server.client.post("/api/queue/pause").json()["paused"][0]["resource"] is None
    job = server.submit("echo")
    assert server.client.get("/api/queue").json()["items"][0]["blocked_by"] == ["paused"]
    assert server.client.post("/api/queue/resume").json()["paused"] == []
    assert server.wait_for(job["id"])["status"] == "COMPLETED"


@pytest.mark.rule("INV-004", "API-03")
def test_the_queue_is_paged_in_claim_order(served: Served, client: httpx2.Client) -> None:
    resource = unique("order")
    priorities = [3, 50, 0, 50, 7, 3, 100]
    jobs = [served.submit("echo", resource=resource, not_before=FAR, priority=each) for each in priorities]
    expected = [job["id"] for job in sorted(jobs, key=lambda job: (-job["priority"], job["position"]))]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"resource": resource, "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/queue", params=query).json()
        seen += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == expected


# --- direct requests ----------------------------------------------------------------------------------------


@pytest.mark.rule("DIR-05", "DEC-004")
@pytest.mark.parametrize("path", ["/api/direct/story", "/story/generate"])
def test_a_direct_request_answers_with_the_result_and_makes_no_job(client: httpx2.Client, path: str) -> None:
    before = client.get("/api/jobs", params={"type": "story"}).json()["items"]
    answer = client.post(path, json={"params": {"x": 4}})
    assert answer.status_code == 200
    found = answer.json()
    assert found.keys() == {"reservation_id", "outcome", "result", "waited_s", "ran_s"}
    assert (found["outcome"], found["result"]) == ("COMPLETED", {"x": 4, "text": None})
    assert client.get("/api/jobs", params={"type": "story"}).json()["items"] == before
    reservation = client.get(f"/api/reservations/{found['reservation_id']}").json()
    assert (reservation["status"], reservation["outcome"]) == ("RELEASED", "COMPLETED")
    assert client.post(path).json()["result"] == {"x": 1, "text": None}


@pytest.mark.rule("DIR-06", "DIR-04")
def test_a_direct_request_says_what_went_wrong(served: Served, client: httpx2.Client) -> None:
    problem_of(client.post("/api/direct/nope", json={}), 422, "unknown_type")
    problem_of(client.post("/api/direct/echo", json={"params": {"x": "no"}}), 422, "invalid_params")
    problem_of(client.post("/api/direct/echo", json={"params": []}), 422)
    problem_of(client.post("/api/direct/echo", json={"wait_s": -1}), 422)
    problem_of(client.post("/api/direct/echo", json={"priority": 1}), 422, "unknown_field")
    failed = problem_of(client.post("/api/direct/fail", json={"params": {"message": "broken"}}), 502, "handler_failed")
    assert "broken" in failed["detail"]
    problem_of(client.post("/api/direct/impatient", json={"params": {"gate": unique("never")}}), 502, "timeout")
    skipped = client.post("/api/direct/skip", json={}).json()
    assert (skipped["outcome"], skipped["reason"]) == ("SKIPPED", "nothing to do")


@pytest.mark.rule("DIR-06")
def test_without_a_worker_for_it_a_direct_request_is_refused_at_once(serve: Serve) -> None:
    server = serve(has_worker=False)
    answer = server.client.post("/api/direct/echo", json={})
    problem_of(answer, 503, "no_worker")
    assert "retry-after" in answer.headers


@pytest.mark.rule("DIR-03")
def test_a_direct_request_that_waits_too_long_is_given_up(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    served.wait_for(job["id"], "RUNNING")
    problem_of(
        client.post("/api/direct/narrow_hold", json={"params": {"gate": gate}, "wait_s": 0.2}), 504, "waited_too_long"
    )
    assert client.get("/api/reservations?status=ACTIVE").json()["items"] == []
    open_gate(gate)
    served.wait_for(job["id"])


@pytest.mark.rule("DIR-03")
def test_a_client_that_goes_away_gives_its_place_back(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    with served.new_client() as own, pytest.raises(httpx2.ReadTimeout):
        own.post("/api/direct/narrow_hold", json={"params": {"gate": gate}}, timeout=0.5)

    def ended() -> Any:
        newest = client.get("/api/reservations?limit=1").json()["items"][0]
        return newest if newest["status"] != "ACTIVE" else None

    assert eventually(ended)["outcome"] == "CANCELLED"


@pytest.mark.rule("DIR-03")
def test_a_waiting_direct_request_can_be_cancelled(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    served.wait_for(job["id"], "RUNNING")
    with ThreadPoolExecutor(1) as pool, served.new_client() as own:
        waiting = pool.submit(own.post, "/api/direct/narrow_hold", json={"params": {"gate": gate}})
        found = eventually(lambda: client.get("/api/reservations?status=ACTIVE").json()["items"])
        cancelled = client.post(f"/api/reservations/{found[0]['id']}/cancel", json={"reason": "never mind"})
        assert cancelled.json()["outcome"] == "CANCELLED"
        problem_of(waiting.result(), 409, "cancelled")
    problem_of(client.post(f"/api/reservations/{found[0]['id']}/cancel"), 409, "already_ended")
    open_gate(gate)
    served.wait_for(job["id"])


# --- webhooks -----------------------------------------------------------------------------------------------


class Receiver:
    """Takes messages and remembers them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.rule("WEB-04", "SEC-07")
def test_a_subscription_shows_its_secret_once_and_is_edited_and_rotated(client: httpx2.Client) -> None:
    made = client.post("/api/webhooks", json={"url": "https://example.org/x", "events": ["job.run.failed"]})
    assert made.status_code == 201
    webhook = made.json()
    assert webhook["secret"].startswith("whsec_")
    path = f"/api/webhooks/{webhook['id']}"
    shown = client.get(path).json()
    assert shown == {**webhook, "secret": "[redacted]"}
    assert webhook["secret"] not in client.get("/api/webhooks?limit=500").text
    edited = client.patch(path, json={**{k: shown[k] for k in ("url", "secret")}, "events": [], "enabled": False})
    assert (edited.status_code, edited.json()["events"], edited.json()["enabled"]) == (200, [], False)
    problem_of(client.patch(path, json={"enabled": True}, headers={"If-Match": '"1"'}), 412)
    problem_of(client.patch(path, json={"secret": "whsec_abc"}), 422, "use_rotate")
    rotated = client.post(f"{path}/rotate").json()
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != webhook["secret"]
    assert client.delete(path).status_code == 204
    problem_of(client.get(path), 404)
    problem_of(client.delete(path), 404)


@pytest.mark.rule("WEB-04", "API-02")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "nope"},
        {"url": 5},
        {"url": "https://user:pass@example.org/"},
        {"url": "https://example.org", "events": ["job.exploded"]},
        {"url": "https://example.org", "events": "job.run.failed"},
        {"url": "https://example.org", "secret": "short"},
        {"url": "https://example.org", "secret": 5},
        {"url": "https://example.org", "enabled": True},
    ],
)
def test_a_subscription_that_breaks_a_rule_is_refused(client: httpx2.Client, body: dict[str, Any]) -> None:
    problem_of(client.post("/api/webhooks", json=body), 422)


@pytest.mark.rule("WEB-01", "WEB-04", "DEC-009")
def test_a_delivery_carries_what_the_api_shows_and_can_be_sent_again(served: Served, client: httpx2.Client) -> None:
    receiver = Receiver()
    try:
        job = served.run_job("echo", webhook_url=receiver.url)
        delivered = eventually(
            lambda: client.get("/api/deliveries", params={"job_id": job["id"], "status": "DELIVERED"}).json()["items"]
        )[0]
        message = delivered["payload"]
        assert message["type"] == "job.run.completed"
        assert message["data"]["job"] == job
        assert message["data"]["run"] == job["run"]
        again = client.post(f"/api/deliveries/{delivered['id']}/redeliver")
        assert (again.status_code, again.json()["id"]) == (200, delivered["id"])
        eventually(lambda: len(receiver.bodies) == 2)
        assert receiver.bodies[0] == receiver.bodies[1]
        assert client.get(f"/api/deliveries/{delivered['id']}").status_code == 200
    finally:
        receiver.close()
    problem_of(client.get("/api/deliveries?status=LOST"), 422)
    problem_of(client.get("/api/deliveries?job_id=x"), 422)
    problem_of(client.get("/api/deliveries?cursor=x"), 422)
    problem_of(client.post(f"/api/deliveries/{ANY_ID}/redeliver"), 404)


@pytest.mark.rule("SEC-07")
def test_secret_headers_of_http_jobs_are_never_shown_and_survive_an_edit(served: Served, client: httpx2.Client) -> None:
    canary = unique("canary")
    params = {"url": "http://127.0.0.1:1/", "headers": {"Authorization": f"Bearer {canary}", "X-Plain": "yes"}}
    job = served.submit("http", params, not_before=FAR)
    path = f"/api/jobs/{job['id']}"
    assert job["params"]["headers"] == {"Authorization": "[redacted]", "X-Plain": "yes"}
    edited = client.patch(path, json={"params": {**job["params"], "url": "http://127.0.0.1:2/"}})
    assert edited.status_code == 200

    def stored(tx: Any) -> str:
        return str(tx.one("SELECT params FROM jobs WHERE id = :id", id=job["id"])[0])

    assert canary in served.store.read_sync(stored)
    template = {"name": unique("http"), "type": "http", "default_params": params}
    made = client.post("/api/job-templates", json=template).json()
    assert made["default_params"]["headers"]["Authorization"] == "[redacted]"
    for seen in (path, f"{path}/events", f"{path}/explain", "/api/jobs?limit=500", "/api/queue?limit=500"):
        assert canary not in client.get(seen).text
    lost = {"params": {"url": "http://127.0.0.1:2/", "headers": {"Cookie": "[redacted]"}}}
    problem_of(client.patch(path, json=lost), 422, "nothing_to_keep")


# --- figures and health -------------------------------------------------------------------------------------


@pytest.mark.rule("API-01")
def test_the_figures_add_up(served: Served, client: httpx2.Client) -> None:
    served.run_job("echo")
    found = client.get("/api/stats").json()
    assert found["jobs"].keys() == {"QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "total"}
    assert found["jobs"]["total"] == sum(value for name, value in found["jobs"].items() if name != "total")
    assert found["resources"]["default"].keys() >= {"slots", "used", "waiting", "oldest_wait_s"}
    assert found["runs"]["last_hour"]["COMPLETED"] >= 1
    assert {"workers", "zombies_recovered", "stale_results", "schedules"} <= found.keys()
    workers = client.get("/api/workers").json()["items"]
    assert [worker["kind"] for worker in workers] == ["serve"]
    assert "echo" in workers[0]["types"]
    types = {each["name"]: each for each in client.get("/api/job-types").json()["items"]}
    assert types["echo"]["schema"]["properties"]["x"]["type"] == "integer"
    assert types["echo"]["aliases"] == ["parrot"]


@pytest.mark.rule("API-05")
def test_readiness_is_a_probe_of_store_claim_trigger_and_dispatcher(served: Served, client: httpx2.Client) -> None:
    found = client.get("/readyz").json()
    assert found["ready"] is True
    assert found["checks"].keys() == {"server", "store", "trigger", "dispatcher"}
    assert all(check["ok"] for check in found["checks"].values())


@pytest.mark.rule("API-05")
def test_a_server_whose_store_cannot_write_is_alive_but_not_ready(serve: Serve) -> None:
    server = serve(has_worker=False)
    assert server.client.get("/readyz").status_code == 200
    server.store.close()
    assert server.client.get("/healthz").status_code == 200
    began = time.monotonic()
    problem_of(server.client.get("/readyz"), 503)
    assert time.monotonic() - began < 12


@pytest.mark.rule("OPS-05")
def test_metrics_come_from_the_hook(serve: Serve) -> None:
    server = serve(has_worker=False)
    server.server.service.metrics = lambda: (b"holdbeat_up 1\n", "text/plain; version=0.0.4")
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
    found = client.get(f"/jobs/{job_id}").json()
    assert (found["job_id"], found["status"], found["result"]) == (job_id, "succeeded", {"x": 9, "text": None})
    assert job_id in [each["job_id"] for each in client.get("/jobs").json()["jobs"]]
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
                lambda: (found := client.get(path).json())["status"] not in ("queued", "running") and found["status"]
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
def test_the_legacy_api_can_be_switched_off(serve: Serve) -> None:
    server = serve(has_worker=False, legacy_api=False)
    problem_of(server.client.get("/jobs"), 404)
    problem_of(server.client.post("/jobs/echo/trigger", json={}), 404)
    assert "/jobs" not in server.client.get("/openapi.json").json()["paths"]
