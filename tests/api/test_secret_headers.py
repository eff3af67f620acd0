"""A stored secret header stays with the server that it was stored for, whoever changes the url."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.redaction import REDACTED, is_secret_header
from tests.api.serving import FAR, Served, problem_of, unique

pytestmark = pytest.mark.rule("SEC-07")
OWN, OTHER = "https://api.example.com/poll", "https://evil.example.net/poll"
SECRET = {"Authorization": "Bearer s3cret"}
MOVED = [OTHER, "http://api.example.com/poll", "https://api.example.com:8443/poll"]


def new_endpoint(served: Served) -> str:
    body = {"name": unique("place"), "url": OWN, "headers": SECRET, "enabled": False, "interval_s": 3600}
    answer = served.client.post("/api/endpoints", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize("url", MOVED)
def test_an_endpoint_that_moves_to_another_server_needs_its_secret_again(served: Served, url: str) -> None:
    path = f"/api/endpoints/{new_endpoint(served)}"
    for change in ({"url": url}, {"url": url, "headers": {"Authorization": REDACTED}}):
        problem_of(served.client.patch(path, json=change), 422, "secret_of_another_server")
    moved = served.client.patch(path, json={"url": url, "headers": {"Authorization": "Bearer other"}})
    assert moved.status_code == 200, moved.text


def test_an_endpoint_that_stays_on_its_server_keeps_its_secret(served: Served) -> None:
    path = f"/api/endpoints/{new_endpoint(served)}"
    for url in ("https://api.example.com/other?x=1", "https://API.example.com:443/poll"):
        change: dict[str, Any] = {"url": url, "headers": {"Authorization": REDACTED}}
        assert served.client.patch(path, json=change).status_code == 200
        assert served.client.patch(path, json={"url": url}).status_code == 200


def test_a_schedule_and_a_queued_job_keep_the_secret_for_their_server_only(served: Served) -> None:
    params = {"url": OWN, "headers": SECRET}
    body = {"name": unique("place"), "type": "http", "params": params, "cron": "0 0 1 1 *", "enabled": False}
    schedule = served.client.post("/api/schedules", json=body).json()
    job = served.submit("http", params, not_before=FAR)
    for path in (f"/api/schedules/{schedule['id']}", f"/api/jobs/{job['id']}"):
        moved = {"params": {"url": OTHER, "headers": {"Authorization": REDACTED}}}
        problem_of(served.client.patch(path, json=moved), 422, "secret_of_another_server")
        same = {"params": {"url": f"{OWN}/2", "headers": {"Authorization": REDACTED}}}
        assert served.client.patch(path, json=same).status_code == 200


@pytest.mark.parametrize("defaults", [{"url": OWN, "headers": SECRET}, {"headers": SECRET}])
def test_the_secret_of_a_template_goes_to_no_url_of_the_submitter(served: Served, defaults: dict[str, Any]) -> None:
    name = unique("place")
    body = {"name": name, "type": "http", "default_params": defaults}
    assert served.client.post("/api/job-templates", json=body).status_code == 201
    own_url = {"template": name, "params": {"url": OTHER}, "not_before": FAR}
    problem_of(served.client.post("/api/jobs", json=own_url), 422, "secret_of_another_server")
    scheduled = {"name": unique("place"), "template": name, "params": {"url": OTHER}, "cron": "0 0 1 1 *"}
    problem_of(served.client.post("/api/schedules", json=scheduled), 422, "secret_of_another_server")
    own_headers = {"url": OTHER, "headers": {"Authorization": "Bearer mine"}}
    answer = served.client.post("/api/jobs", json={"template": name, "params": own_headers, "not_before": FAR})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    "name", ["X-Goog-Api-Key", "PRIVATE-TOKEN", "X-Vault-Token", "X-Amz-Security-Token", "X-Functions-Key", "apikey"]
)
def test_headers_that_are_credentials_by_their_name_are_hidden(name: str) -> None:
    assert is_secret_header(name)


@pytest.mark.parametrize("name", ["Accept", "Content-Type", "Idempotency-Key", "X-Request-Id", "User-Agent", "ETag"])
def test_other_headers_are_shown(name: str) -> None:
    assert not is_secret_header(name)
