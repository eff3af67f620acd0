"""The redaction mark stands for a value that is there already; something new has none."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.serving import FAR, Served, problem_of, unique

URL = "http://127.0.0.1:9/"
MARKED: dict[str, Any] = {"url": URL, "headers": {"Authorization": "[redacted]"}}


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/jobs", {"type": "http", "params": MARKED}, "params.headers"),
        (
            "/api/jobs/batch",
            {"jobs": [{"type": "echo"}, {"type": "http", "params": MARKED}]},
            "jobs[1].params.headers",
        ),
        ("/api/job-groups", {"mode": "parallel", "jobs": [{"type": "http", "params": MARKED}]}, "params.headers"),
        ("/api/job-templates", {"type": "http", "default_params": MARKED}, "default_params.headers"),
        ("/api/schedules", {"type": "http", "params": MARKED, "interval_s": 3600}, "params.headers"),
        ("/api/endpoints", {**MARKED, "interval_s": 3600}, "headers"),
        ("/api/direct/http", {"params": MARKED}, "params.headers"),
        ("/jobs/http/trigger", MARKED, "params.headers"),
    ],
)
def test_a_mark_is_not_stored_as_a_secret(client: httpx2.Client, path: str, body: dict[str, Any], field: str) -> None:
    if path in ("/api/job-templates", "/api/schedules", "/api/endpoints"):
        body = {**body, "name": unique("marked")}
    assert problem_of(client.post(path, json=body), 422, "nothing_to_keep")["field"] == field


@pytest.mark.rule("SEC-07")
def test_a_mark_beside_a_template_is_not_stored_either(served: Served, client: httpx2.Client) -> None:
    secret = {"url": URL, "headers": {"Authorization": "Bearer s3cret"}}
    made = client.post("/api/job-templates", json={"name": unique("call"), "type": "http", "default_params": secret})
    template = made.json()["id"]
    fields = {"template": template, "params": {"headers": {"Authorization": "[redacted]"}}}
    problem_of(client.post("/api/jobs", json=fields), 422, "nothing_to_keep")
    schedule = {**fields, "name": unique("marked"), "interval_s": 3600}
    problem_of(client.post("/api/schedules", json=schedule), 422, "nothing_to_keep")
    assert client.post("/api/jobs", json={"template": template, "not_before": FAR}).status_code == 201


@pytest.mark.rule("SEC-07")
def test_the_mark_is_a_word_like_others_where_nothing_is_redacted(served: Served) -> None:
    params = {"headers": {"Authorization": "[redacted]"}}
    assert served.submit("anything", params, not_before=FAR)["params"] == params
