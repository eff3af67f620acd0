"""A server behind a proxy is exposed, whatever address it listens on."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import SettingsError
from holdbeat.store.access.exposed_servers import is_exposed
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique

pytestmark = pytest.mark.rule("SEC-04")
LOCAL = "http://127.0.0.1:9/"
PROXIED = {"X-Forwarded-For": "203.0.113.7"}


def authorized(server: Served) -> httpx2.Client:
    server.client.headers["Authorization"] = f"Bearer {server.admin_key}"
    return server.client


def local_requests(server: Served) -> list[tuple[str, dict[str, Any]]]:
    template = unique("place")
    name = {"name": unique("place")}
    return [
        ("/api/jobs", {"type": "http", "params": {"url": LOCAL}, "not_before": FAR}),
        ("/api/jobs/batch", {"jobs": [{"type": "http", "params": {"url": "http://10.1.2.3/"}, "not_before": FAR}]}),
        ("/api/schedules", {**name, "type": "http", "params": {"url": LOCAL}, "cron": "0 0 1 1 *"}),
        ("/api/endpoints", {"name": template, "url": LOCAL, "interval_s": 3600}),
        ("/api/job-templates", {"name": template, "type": "http", "default_params": {"url": LOCAL}}),
        ("/api/jobs", {"type": "anything", "webhook_url": LOCAL, "not_before": FAR}),
        ("/api/schedules", {**name, "type": "anything", "webhook_url": LOCAL, "cron": "0 0 1 1 *"}),
        ("/api/job-templates", {"name": template, "type": "anything", "webhook_url": LOCAL}),
        ("/api/job-groups", {"mode": "parallel", "jobs": [{"type": "anything", "webhook_url": LOCAL}]}),
    ]


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP"])
def test_a_request_with_a_key_through_a_proxy_makes_the_server_exposed(serve: Serve, header: str) -> None:
    server = serve(is_key_needed=True)
    client = authorized(server)
    path, body = local_requests(server)[0]
    assert client.post(path, json=body).status_code == 201
    assert client.get("/api/jobs", headers={header: "for=203.0.113.7"}).status_code == 200
    assert server.store.read_sync(is_exposed)
    for path, body in local_requests(server):
        answer = client.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)


def test_an_exposed_server_refuses_local_addresses_when_they_are_submitted(serve: Serve) -> None:
    server = serve(is_key_needed=True, exposed="true", outbound_allow=("10.9.9.9",))
    client = authorized(server)
    for path, body in local_requests(server):
        answer = client.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
    allowed = {"type": "http", "params": {"url": "http://10.9.9.9/"}, "not_before": FAR}
    job = client.post("/api/jobs", json=allowed)
    assert job.status_code == 201, job.text
    problem_of(client.patch(f"/api/jobs/{job.json()['id']}", json={"params": {"url": LOCAL}}), 422)
    template = unique("place")
    client.post("/api/job-templates", json={"name": template, "type": "http", "default_params": {"method": "GET"}})
    member = {"template": template, "params": {"url": LOCAL}}
    problem_of(client.post("/api/jobs", json=member), 422)
    for change in ({"default_params": {"url": LOCAL}}, {"webhook_url": LOCAL}):
        problem_of(client.patch(f"/api/job-templates/{template}", json=change), 422, "forbidden_target")
    problem_of(client.post("/api/job-groups", json={"mode": "parallel", "jobs": [member]}), 422)
    legacy = {"type": "http", "params": {"url": LOCAL}}
    problem_of(client.post("/jobs/http/trigger", json=legacy["params"]), 422)
    problem_of(client.post("/jobs/batch/trigger", json={"jobs": [legacy]}), 422)
    other_type = {"type": "anything", "params": {"url": LOCAL}, "not_before": FAR}
    assert client.post("/api/jobs", json=other_type).status_code == 201


def test_a_server_that_is_said_not_to_be_exposed_stays_so(serve: Serve) -> None:
    server = serve(is_key_needed=True, exposed="false")
    client = authorized(server)
    assert client.get("/api/jobs", headers=PROXIED).status_code == 200
    path, body = local_requests(server)[0]
    assert client.post(path, json=body).status_code == 201


def test_a_server_without_keys_serves_nobody_through_a_proxy(serve: Serve) -> None:
    server = serve()
    assert server.client.get("/api/jobs").status_code == 200
    problem_of(server.client.get("/api/jobs", headers=PROXIED), 401, "unauthorized")
    assert not server.store.read_sync(is_exposed)
    server.add_key(Scope.READ)
    problem_of(server.client.get("/api/jobs", headers=PROXIED), 401, "unauthorized")


def test_an_exposed_server_needs_a_key_to_start(serve: Serve) -> None:
    with pytest.raises(SettingsError, match="no API key"):
        serve(exposed="true")
