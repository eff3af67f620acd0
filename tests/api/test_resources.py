"""Groups, templates and the queue through the API."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique
from tests.waiting import eventually

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
    ended = eventually(lambda: (body := client.get(path).json())["status"] == "COMPLETED" and body)
    assert all(job["status"] == "COMPLETED" for job in ended["jobs"])
    listed = client.get("/api/job-groups", params={"name": body["name"]}).json()["items"]
    assert [item["id"] for item in listed] == [group["id"]]
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
    assert name not in [item["name"] for item in client.get("/api/job-templates?limit=500").json()["items"]]
    assert name in [item["name"] for item in client.get("/api/job-templates?limit=500&archived=all").json()["items"]]


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


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/jobs", "status"), ("/api/job-runs", "status"), ("/api/job-runs", "error_kind"),
        ("/api/job-groups", "status"), ("/api/schedules/{id}/occurrences", "status"),
        ("/api/job-templates", "archived"),
    ],
)  # fmt: skip
def test_every_list_refuses_a_word_that_its_filter_does_not_have(client: httpx2.Client, path: str, field: str) -> None:
    name = unique("s")
    client.post("/api/schedules", json={"name": name, "type": "echo", "interval_s": 3600}).raise_for_status()
    refused = problem_of(client.get(path.format(id=name), params={field: "nope"}), 422, "invalid_filter")
    assert refused["field"] == field


# --- the queue ----------------------------------------------------------------------------------------------


@pytest.mark.rule("QUE-04")
def test_a_paused_resource_starts_nothing_until_it_is_resumed(served: Served, client: httpx2.Client) -> None:
    resource = unique("paused")
    paused = client.post("/api/queue/pause", json={"resource": resource, "reason": "service"}).json()["paused"]
    assert [(item["resource"], item["reason"]) for item in paused if item["resource"] == resource] == [
        (resource, "service")
    ]
    job = served.submit("echo", resource=resource)
    entry = client.get("/api/queue", params={"resource": resource}).json()
    assert "paused" in entry["items"][0]["blocked_by"]
    assert any(item["resource"] == resource for item in entry["paused"])
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
    jobs = [served.submit("echo", resource=resource, not_before=FAR, priority=priority) for priority in priorities]
    expected = [job["id"] for job in sorted(jobs, key=lambda job: (-job["priority"], job["position"]))]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"resource": resource, "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/queue", params=query).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == expected
