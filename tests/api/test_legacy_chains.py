"""The old API knew no chains: a job keeps the id that its client was given, whatever is retried behind it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from holdbeat.operations.submitting import MOST_JOBS
from tests.api.conftest import Serve
from tests.api.serving import Served, problem_of

LATER = {"max_attempts": 1, "base_delay_s": 3600}


def listed(client: httpx2.Client, **query: Any) -> dict[str, str]:
    """Ids and statuses of jobs of the type `fail`."""
    jobs = client.get("/jobs", params={"type": "fail", "limit": 500, **query}).json()["jobs"]
    statuses = {item["job_id"]: item["status"] for item in jobs}
    assert len(statuses) == len(jobs)
    return statuses


@pytest.mark.rule("CON-004", "DEC-007")
def test_lists_of_the_legacy_api_show_a_retried_job_once_as_its_last_attempt_stands(
    served: Served, client: httpx2.Client
) -> None:
    job_id = served.submit("fail", retry_policy=LATER)["id"]
    retry = served.wait_for(job_id, "FAILED")["retried_by"]
    assert client.get(f"/jobs/{job_id}").json()["status"] == "queued"
    for item in (listed(client), listed(client, status="queued")):
        assert item[job_id] == "queued"
        assert retry not in item
    assert not {job_id, retry} & listed(client, status="failed").keys()
    assert list(listed(client, limit=1)) == [job_id]
    assert client.post(f"/jobs/{job_id}/cancel").json()["status"] == "cancelled"
    assert listed(client)[job_id] == listed(client, status="cancelled")[job_id] == "cancelled"
    manual = client.post(f"/api/jobs/{retry}/retry").json()["id"]
    served.wait_for(manual)
    assert manual in listed(client)
    assert listed(client)[job_id] == "cancelled"


@pytest.mark.rule("CON-004", "DEC-007")
def test_a_legacy_batch_keeps_the_ids_of_its_jobs_over_retries(served: Served, client: httpx2.Client) -> None:
    jobs = [{"type": "fail", "retry_policy": LATER}, {"type": "echo"}]
    group = client.post("/api/job-groups", json={"mode": "parallel", "jobs": jobs}).json()
    ids = [job["id"] for job in group["jobs"]]
    for job_id in ids:
        served.wait_for(job_id)
    batch = client.get(f"/jobs/batch/{group['id']}").json()
    assert {job["job_id"]: job["status"] for job in batch["jobs"]} == {ids[0]: "queued", ids[1]: "succeeded"}
    assert [job["job_id"] for job in batch["jobs"]] == ids


@pytest.mark.rule("CON-004", "SEC-06")
def test_a_legacy_batch_holds_no_more_jobs_than_any_other(served: Served, client: httpx2.Client) -> None:
    jobs = [{"type": "echo"}] * (MOST_JOBS + 1)
    before = client.get("/api/stats").json()["jobs"]["total"]
    old = problem_of(client.post("/jobs/batch/trigger", json={"jobs": jobs}), 422)
    new = problem_of(client.post("/api/jobs/batch", json={"jobs": jobs}), 422)
    assert (old["detail"], old["code"], old["field"]) == (new["detail"], new["code"], new["field"])
    assert client.get("/api/stats").json()["jobs"]["total"] == before


@pytest.mark.rule("CON-004", "AUD-01", "OPS-05")
def test_a_legacy_batch_records_who_asked_and_their_trace_like_any_other(serve: Serve) -> None:
    server = serve(is_key_needed=True)
    client = server.new_client(server.admin_key)
    trace = f"00-{'ab' * 16}-{'cd' * 8}-01"
    for path in ("/jobs/batch/trigger", "/api/jobs/batch"):
        answer = client.post(path, json={"jobs": [{"type": "echo"}]}, headers={"traceparent": trace})
        answer.raise_for_status()
    jobs = server.store.read_sync(lambda tx: tx.rows("SELECT id, trace FROM jobs ORDER BY id"))
    assert [row[1] for row in jobs] == [trace, trace]
    actors = [
        client.get("/api/events/search", params={"job_id": row[0], "name": "job.queued"}).json()["items"][0]["data"]
        for row in jobs
    ]
    assert actors[0].get("actor") == actors[1]["actor"]
    client.close()


@pytest.mark.rule("CON-004", "DEC-006")
def test_the_oldest_words_for_a_status_are_understood_by_the_old_list_and_explained_by_the_new(
    served: Served, client: httpx2.Client
) -> None:
    job_id = served.submit("fail", retry_policy={"max_attempts": 0})["id"]
    served.wait_for(job_id, "FAILED")
    assert listed(client, status="error")[job_id] == "failed"
    assert job_id not in listed(client, status="dispatched")
    for word, ours in (("error", "FAILED"), ("succeeded", "COMPLETED"), ("PENDING", "QUEUED")):
        refused = problem_of(client.get("/api/jobs", params={"status": word}), 422)
        assert f"It is called {ours} here." in refused["detail"]
    assert "It is called FAILED here." in problem_of(client.get("/api/job-runs?status=error"), 422)["detail"]
    # Groups have no FAILED.
    assert "It is called" not in problem_of(client.get("/api/job-groups?status=error"), 422)["detail"]
    refused = problem_of(client.post("/api/endpoints", json={"maxExecutionTimeMs": 5}), 422, "unknown_field")
    assert "It is called max_execution_s (seconds)." in refused["detail"]
