"""Jobs through the API."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from holdbeat.domain.ids import is_id
from tests.api.serving import FAR, Served, open_gate, problem_of, unique
from tests.waiting import eventually

FIELDS = {
    "id", "type", "params", "status", "priority", "position", "resource", "template_id", "schedule_id", "scheduled_for",
    "group_id", "sequence", "retry_of", "retry_kind", "retried_by", "permanently_failed", "retry_policy", "timeout_s",
    "cancel_grace_s", "not_before", "idempotency_key", "webhook_url", "labels", "created_at", "started_at",
    "finished_at", "cancel_requested_at", "cancel_reason", "worker_id", "heartbeat_at", "lease_expires_at", "run",
    "attempt", "manual_retries", "progress", "title", "partition", "root_id", "continued_by", "waits_for", "waits",
    "after", "on_upstream", "unique_key", "unique_while", "expires_at", "parent_id",
    "is_detached", "weight", "affinity", "preempt", "preemptible", "open_steps",
}  # fmt: skip


@pytest.mark.rule("API-01", "DEC-006")
def test_a_submitted_job_is_answered_whole_and_found_again(served: Served, client: httpx2.Client) -> None:
    answer = client.post(
        "/api/jobs",
        json={
            "type": "echo",
            "params": {"x": 7},
            "priority": 3,
            "not_before": FAR,
            "timeout_s": 5,
            "cancel_grace_s": None,
            "retry_policy": {"max_attempts": 1},
            "labels": {"team": "art"},
            "webhook_url": "http://127.0.0.1:1/hook",
        },
    )
    assert answer.status_code == 201
    job = answer.json()
    assert job.keys() == FIELDS
    assert answer.headers["location"] == f"/api/jobs/{job['id']}"
    assert is_id(job["id"])
    assert (job["status"], job["priority"], job["not_before"]) == ("QUEUED", 3, FAR)
    assert job["retry_policy"] == {"max_attempts": 1, "base_delay_s": 10, "max_delay_s": 3600, "jitter": 0}
    assert job["cancel_grace_s"] is None
    assert served.job(job["id"]) == job


@pytest.mark.rule("API-01")
def test_a_job_that_ran_shows_its_run_and_result(served: Served) -> None:
    job = served.run_job("echo", {"x": 5})
    assert job["status"] == "COMPLETED"
    assert job["run"]["status"] == "COMPLETED"
    assert job["run"]["result"] == {"x": 5, "text": None}
    run = served.client.get(f"/api/job-runs/{job['run']['id']}").json()
    assert run == job["run"]


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"type": "echo", "colour": 1}, "unknown_field", "colour"),
        ({"params": {}}, "missing_type", "type"),
        ({"type": "ehco"}, "unknown_type", "type"),
        ({"type": "echo", "params": {"x": "no"}}, "invalid_params", "params.x"),
        ({"type": "echo", "params": []}, None, "params"),
        ({"type": "echo", "priority": 101}, None, "priority"),
        ({"type": "echo", "priority": 1.5}, None, "priority"),
        ({"type": "echo", "priority": True}, None, "priority"),
        ({"type": "echo", "not_before": "tomorrow"}, None, "not_before"),
        ({"type": "echo", "delay_s": -1}, None, "delay_s"),
        ({"type": "echo", "delay_s": 1, "not_before": FAR}, None, None),
        ({"type": "echo", "timeout_s": 0}, None, "timeout_s"),
        ({"type": "echo", "retry_policy": {"times": 3}}, "unknown_field", "retry_policy.times"),
        ({"type": "echo", "labels": {"a": 1}}, None, None),
        ({"type": "echo", "webhook_url": "ftp://x"}, None, "webhook_url"),
        ({"type": "echo", "resource": "*"}, None, "resource"),
        ({"type": "echo", "template": "no such"}, "unknown_template", "template"),
        ({"type": 5}, None, "type"),
        ([], "invalid_body", None),
        ("text", "invalid_body", None),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_with_the_field_and_stores_nothing(
    client: httpx2.Client, body: object, code: str | None, field: str | None
) -> None:
    before = client.get("/api/stats").json()["jobs"]["total"]
    problem = problem_of(client.post("/api/jobs", json=body), 422, code)
    if field is not None:
        assert problem["field"] == field
    assert client.get("/api/stats").json()["jobs"]["total"] == before


@pytest.mark.rule("QUE-06")
def test_an_unknown_type_is_refused_with_the_name_that_was_meant(client: httpx2.Client) -> None:
    problem = problem_of(client.post("/api/jobs", json={"type": "ehco"}), 422, "unknown_type")
    assert "echo" in str(problem["detail"])


@pytest.mark.rule("QUE-01")
def test_one_key_is_one_job_and_another_request_with_it_is_refused(client: httpx2.Client) -> None:
    key = unique("key")
    body = {"type": "echo", "params": {"x": 1}, "not_before": FAR}
    first = client.post("/api/jobs", json=body, headers={"Idempotency-Key": key})
    again = client.post("/api/jobs", json=body, headers={"Idempotency-Key": key})
    by_field = client.post("/api/jobs", json={**body, "idempotency_key": key})
    assert (first.status_code, again.status_code, by_field.status_code) == (201, 200, 200)
    assert first.json()["id"] == again.json()["id"] == by_field.json()["id"]
    assert first.json()["idempotency_key"] == key
    problem_of(
        client.post("/api/jobs", json={**body, "priority": 9, "idempotency_key": key}), 409, "idempotency_conflict"
    )
    both = client.post("/api/jobs", json={**body, "idempotency_key": "other"}, headers={"Idempotency-Key": key})
    problem_of(both, 422, "idempotency_mismatch")


@pytest.mark.rule("QUE-01")
def test_a_hundred_parallel_posts_with_one_key_make_one_job(served: Served) -> None:
    key = unique("storm")
    body = {"type": "echo", "params": {"x": 1}, "not_before": FAR, "idempotency_key": key}
    barrier = threading.Barrier(20)

    def post(_: int) -> list[tuple[int, str]]:
        with served.new_client() as own:
            barrier.wait()
            answers = [own.post("/api/jobs", json=body) for _ in range(5)]
        return [(answer.status_code, answer.json()["id"]) for answer in answers]

    with ThreadPoolExecutor(20) as pool:
        collected = [item for answers in pool.map(post, range(20)) for item in answers]
    assert len({job_id for _, job_id in collected}) == 1
    assert sorted(status for status, _ in collected) == [200] * 99 + [201]


@pytest.mark.rule("QUE-01")
def test_a_batch_shows_the_jobs_that_it_finds_as_they_are_now(served: Served) -> None:
    keyed = {"type": "echo", "params": {"x": 1}, "idempotency_key": unique("key")}
    made = served.client.post("/api/jobs/batch", json={"jobs": [keyed]}).json()["items"][0]
    ended = served.wait_for(made["id"], "COMPLETED")
    fresh = {"type": "echo", "params": {"x": 1}, "not_before": FAR}
    items = served.client.post("/api/jobs/batch", json={"jobs": [fresh, keyed]}).json()["items"]
    assert items[1]["run"]["id"] == ended["run"]["id"]
    assert items[1] == ended
    assert items[0]["run"] is None


@pytest.mark.rule("QUE-02")
def test_a_batch_is_stored_whole_or_not_at_all(client: httpx2.Client) -> None:
    label = unique("batch")
    good = {"type": "echo", "labels": {"batch": label}, "not_before": FAR}
    refused = client.post("/api/jobs/batch", json={"jobs": [good, {"type": "echo", "params": {"x": "no"}}]})
    problem = problem_of(refused, 422)
    assert problem["field"] == "jobs[1].params.x"
    assert client.get("/api/jobs", params={"label": f"batch={label}"}).json()["items"] == []
    key = unique("key")
    stored = client.post("/api/jobs/batch", json={"jobs": [good, {**good, "idempotency_key": key}]})
    assert stored.status_code == 201
    assert len(stored.json()["items"]) == 2
    again = client.post("/api/jobs/batch", json={"jobs": [{**good, "idempotency_key": key}]})
    assert again.status_code == 200
    assert again.json()["items"][0]["id"] == stored.json()["items"][1]["id"]
    mixed = client.post("/api/jobs/batch", json={"jobs": [{**good, "idempotency_key": key}, good]})
    assert mixed.status_code == 201
    conflict = client.post("/api/jobs/batch", json={"jobs": [good, {**good, "priority": 1, "idempotency_key": key}]})
    problem_of(conflict, 409, "idempotency_conflict")
    assert len(client.get("/api/jobs", params={"label": f"batch={label}"}).json()["items"]) == 3
    problem_of(client.post("/api/jobs/batch", json={"jobs": []}), 422)
    problem_of(client.post("/api/jobs/batch", json={"jobs": {}}), 422)
    problem_of(client.post("/api/jobs/batch", json={}), 422, "missing_field")
    problem_of(client.post("/api/jobs/batch", json={"jobs": [good]}, headers={"Idempotency-Key": "k"}), 422)


@pytest.mark.rule("INV-001")
def test_a_queued_job_can_be_changed_and_a_running_one_cannot(served: Served, client: httpx2.Client) -> None:
    job = served.submit("echo", not_before=FAR)
    path = f"/api/jobs/{job['id']}"
    changed = client.patch(path, json={"priority": 9, "params": {"x": 2}, "labels": {"a": "b"}})
    assert changed.status_code == 200
    assert (changed.json()["priority"], changed.json()["params"], changed.json()["labels"]) == (9, {"x": 2}, {"a": "b"})
    problem_of(client.patch(path, json={"params": {"x": "no"}}), 422)
    problem_of(client.patch(path, json={"status": "RUNNING"}), 422, "unknown_field")
    assert client.patch(path, json={"not_before": None}).json()["not_before"] is None
    gate = unique("gate")
    running = served.submit("hold", {"gate": gate})
    served.wait_for(running["id"], "RUNNING")
    problem_of(client.patch(f"/api/jobs/{running['id']}", json={"params": {"gate": "x"}}), 409, "not_queued")
    assert served.job(running["id"])["params"] == {"gate": gate}
    open_gate(gate)


@pytest.mark.rule("CAN-01")
def test_cancelling_ends_a_job_once(served: Served, client: httpx2.Client) -> None:
    job = served.submit("echo", not_before=FAR)
    cancelled = client.post(f"/api/jobs/{job['id']}/cancel", json={"reason": "not needed"})
    assert cancelled.status_code == 200
    assert (cancelled.json()["status"], cancelled.json()["cancel_reason"]) == ("CANCELLED", "not needed")
    problem_of(client.post(f"/api/jobs/{job['id']}/cancel"), 409, "already_ended")
    problem_of(client.post(f"/api/jobs/{job['id']}/cancel", json={"because": 1}), 422, "unknown_field")
    gate = unique("gate")
    running = served.submit("hold", {"gate": gate})
    served.wait_for(running["id"], "RUNNING")
    assert client.post(f"/api/jobs/{running['id']}/cancel").json()["status"] == "CANCELLED"
    ended = served.wait_for(running["id"], "CANCELLED")
    assert (ended["run"]["status"], ended["run"]["error_kind"]) == ("FAILED", "cancelled")


@pytest.mark.rule("RET-04")
def test_a_failed_job_is_retried_by_hand_and_a_completed_one_is_not(served: Served, client: httpx2.Client) -> None:
    failed = served.run_job("fail")
    retried = client.post(f"/api/jobs/{failed['id']}/retry")
    assert retried.status_code == 201
    assert (retried.json()["retry_of"], retried.json()["retry_kind"]) == (failed["id"], "manual")
    by_run = client.post(f"/api/job-runs/{failed['run']['id']}/retry")
    assert by_run.status_code == 201
    assert served.job(failed["id"])["manual_retries"] == [retried.json()["id"], by_run.json()["id"]]
    done = served.run_job("echo")
    problem_of(client.post(f"/api/jobs/{done['id']}/retry"), 409, "already_completed")
    problem_of(client.post(f"/api/job-runs/{done['run']['id']}/retry"), 409)
    problem_of(client.post(f"/api/jobs/{done['id']}/retry", json={"x": 1}), 422, "unknown_field")


@pytest.mark.rule("DEC-005")
def test_jobs_are_moved_within_their_priority(served: Served, client: httpx2.Client) -> None:
    resource = unique("line")
    first, second, third = (
        served.submit("echo", resource=resource, not_before=FAR, priority=41)["id"] for _ in range(3)
    )

    def order() -> list[str]:
        return [item["id"] for item in client.get("/api/queue", params={"resource": resource}).json()["items"]]

    assert order() == [first, second, third]
    assert client.post(f"/api/jobs/{third}/move", json={"before": first}).status_code == 200
    assert order() == [third, first, second]
    assert client.post(f"/api/jobs/{third}/move", json={"after": second}).status_code == 200
    assert order() == [first, second, third]
    assert client.post(f"/api/jobs/{third}/move", json={"to": "top"}).status_code == 200
    assert order()[0] == third
    problem_of(client.post(f"/api/jobs/{third}/move", json={"to": "middle"}), 422)
    problem_of(client.post(f"/api/jobs/{third}/move", json={"to": 2**63 - 1}), 422)
    problem_of(client.post(f"/api/jobs/{third}/move", json={"to": -1}), 422)
    problem_of(client.post(f"/api/jobs/{third}/move", json={"before": 5}), 422)
    problem_of(client.post(f"/api/jobs/{third}/move", json={}), 422)
    other = served.submit("echo", not_before=FAR)["id"]
    problem_of(client.post(f"/api/jobs/{third}/move", json={"before": other}), 409, "other_priority")
    reordered = client.post("/api/queue/reorder", json={"job_ids": [second, third, first]})
    assert [item["id"] for item in reordered.json()["items"]] == [second, third, first]
    assert order() == [second, third, first]
    problem_of(client.post("/api/queue/reorder", json={"job_ids": []}), 422)
    problem_of(client.post("/api/queue/reorder", json={"job_ids": [first, first]}), 422)
    problem_of(client.post("/api/queue/reorder", json={"job_ids": [first, other]}), 409)


@pytest.mark.rule("API-01")
def test_bulk_cancel_and_retry_need_a_filter_and_can_be_tried_dry(served: Served, client: httpx2.Client) -> None:
    label = unique("bulk")
    jobs = [served.submit("echo", not_before=FAR, labels={"bulk": label})["id"] for _ in range(3)]
    impossible: list[dict[str, Any]] = [
        {"filter": {}}, {}, {"filter": []}, {"filter": {"colour": 1}}, {"filter": {"label": 5}}
    ]  # fmt: skip
    for body in impossible:
        problem_of(client.post("/api/jobs/cancel", json=body), 422)
        problem_of(client.post("/api/job-runs/retry", json=body), 422)
    chosen = {"filter": {"label": f"bulk={label}"}}
    dry = client.post("/api/jobs/cancel", json={**chosen, "dry_run": True}).json()
    assert (dry["matched"], dry["changed"], sorted(dry["ids"])) == (3, 0, sorted(jobs))
    done = client.post("/api/jobs/cancel", json={**chosen, "reason": "spring cleaning"}).json()
    assert (done["matched"], done["changed"]) == (3, 3)
    assert served.job(jobs[0])["cancel_reason"] == "spring cleaning"
    again = {"filter": {"label": f"bulk={label}", "status": "CANCELLED"}}
    assert client.post("/api/job-runs/retry", json={**again, "dry_run": True}).json()["matched"] == 3
    retried = client.post("/api/job-runs/retry", json=again).json()
    assert retried["changed"] == 3
    problem_of(client.post("/api/jobs/cancel", json={**chosen, "dry_run": "yes"}), 422)


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=1000000000", "limit=x", "limit=-1", "cursor=tampered", "cursor=%00", "sort=id",
        "status=DONE", "colour=red", "type=a&type=b", "label=alone", "limit=1&limit=2",
        "order=created_at;drop table jobs",
        "status=%27)%20or%201=1--", "limit=%ff",
    ],
)  # fmt: skip
def test_an_unknown_or_impossible_filter_is_refused(client: httpx2.Client, query: str) -> None:
    problem_of(client.get(f"/api/jobs?{query}"), 422)


@pytest.mark.rule("API-03")
def test_a_list_under_load_neither_repeats_nor_drops_what_was_there_throughout(served: Served) -> None:
    label = unique("list")
    jobs = [{"type": "echo", "not_before": FAR, "labels": {"list": label}} for _ in range(60)]
    made = served.client.post("/api/jobs/batch", json={"jobs": jobs}).json()["items"]
    ended = threading.Event()

    def load() -> None:
        with served.new_client() as own:
            while not ended.is_set():
                own.post("/api/jobs", json={"type": "echo", "labels": {"list": label}})

    with ThreadPoolExecutor(2) as pool:
        pool.submit(load)
        pool.submit(load)
        try:
            seen: list[str] = []
            cursor = None
            while True:
                query = {"label": f"list={label}", "limit": "7"} | ({"cursor": cursor} if cursor else {})
                page = served.client.get("/api/jobs", params=query).json()
                seen += [job["id"] for job in page["items"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
        finally:
            ended.set()
    assert len(seen) == len(set(seen))
    assert {job["id"] for job in made} <= set(seen)


@pytest.mark.rule("API-06", "API-01")
def test_explain_says_why_a_job_waits(served: Served, client: httpx2.Client) -> None:
    job = served.submit("echo", not_before=FAR)
    explanation = client.get(f"/api/jobs/{job['id']}/explain").json()
    assert explanation["state"] == "QUEUED"
    assert explanation["summary"].endswith(".")
    assert "delayed" in [reason["code"] for reason in explanation["reasons"]]
    assert all(reason["detail"] for reason in explanation["reasons"])
    assert "estimated_start" in explanation
    entry = next(
        item for item in client.get("/api/queue", params={"limit": 500}).json()["items"] if item["id"] == job["id"]
    )
    assert entry["blocked_by"] == ["delayed"]


@pytest.mark.rule("EXE-03")
def test_logs_events_and_artifacts_of_a_job_can_be_read(served: Served, client: httpx2.Client) -> None:
    job = served.run_job("draw")
    lines = client.get(f"/api/jobs/{job['id']}/logs").json()
    assert [line["text"] for line in lines["items"]] == ["line 0", "line 1", "line 2"]
    page = client.get(f"/api/jobs/{job['id']}/logs", params={"limit": 2}).json()
    rest = client.get(f"/api/jobs/{job['id']}/logs", params={"cursor": page["next_cursor"]}).json()
    assert [line["text"] for line in page["items"] + rest["items"]] == ["line 0", "line 1", "line 2"]
    names = [event["name"] for event in client.get(f"/api/jobs/{job['id']}/events").json()["items"]]
    assert names[0] == "job.queued"
    assert "run.ended" in names
    run = job["run"]["id"]
    picture = client.get(f"/api/job-runs/{run}/artifacts/picture.bin")
    assert picture.content == b"\x00\x01picture"
    assert picture.headers["content-type"] == "application/octet-stream"
    assert picture.headers["content-disposition"].startswith("attachment")
    assert client.get(f"/api/job-runs/{run}/artifacts/result").json() == "drawn"
    assert job["progress"] == {"fraction": 0.5, "message": "half"}
    problem_of(client.get(f"/api/job-runs/{run}/artifacts/other.bin"), 404)


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "//etc/passwd",
        "picture.bin%00.png", "..\\..\\etc\\passwd", "....//....//etc/passwd", "%252e%252e%252fetc%252fpasswd",
        "..%c0%af..%c0%afetc/passwd", "", ".", "..",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_artifacts_of_a_run(served: Served, name: str) -> None:
    run = eventually(
        lambda: (
            served.client.get("/api/job-runs?status=COMPLETED&type=draw&limit=1").json()["items"]
            or [served.run_job("draw")["run"]]
        )
    )[0]
    # The standard library sends the path as it stands; a friendlier client would resolve the dots itself.
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=10)
    connection.request("GET", f"/api/job-runs/{run['id']}/artifacts/{name}")
    answer = connection.getresponse()
    body = answer.read()
    assert 400 <= answer.status < 500
    assert b"root:" not in body
    connection.close()


@pytest.mark.parametrize("path", ["/api/jobs/{id}", "/api/job-runs/{id}", "/api/job-groups/{id}", "/api/webhooks/{id}"])
@pytest.mark.parametrize("name", ["0190b5a0-0000-7000-8000-000000000000", "nope", "%00", "1' or '1'='1", "%ff"])
@pytest.mark.rule("API-01")
def test_what_is_not_there_is_not_found(client: httpx2.Client, path: str, name: str) -> None:
    problem_of(client.get(path.replace("{id}", name)), 404, "not_found")
