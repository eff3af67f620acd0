"""Secrets stay inside: nothing that can be read shows one, whichever route it is read by."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest

from holdbeat.domain.webhook import new_secret
from tests.api.conftest import Serve
from tests.api.serving import Served, unique
from tests.waiting import eventually

WORDS = {"archived": "all", "all": "true", "limit": "500", "after": "0"}
"""Parameters of lists that show more than they would without."""
AS_JSON = {"Accept": "application/json"}


class Target:
    """Answers every call with a cookie of its own, and remembers what it was sent."""

    def __init__(self, cookie: str) -> None:
        self.authorizations: list[str | None] = []
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                target.authorizations.append(self.headers["authorization"])
                self.send_response(200)
                self.send_header("Set-Cookie", f"session={cookie}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def cookie() -> str:
    return unique("canary-cookie")


@pytest.fixture
def target(cookie: str) -> Iterator[Target]:
    result = Target(cookie)
    yield result
    result.close()


@pytest.mark.rule("SEC-07")
def test_no_route_that_reads_shows_a_secret(serve: Serve, target: Target, cookie: str) -> None:
    server = serve(is_key_needed=True)
    assert server.admin_key is not None
    header, webhook_secret = unique("canary-header"), new_secret(unique("canary-webhook").encode().ljust(32))
    secrets = (header, cookie, webhook_secret, server.admin_key)
    with server.new_client(server.admin_key) as client:
        known = things_with_secrets(client, target, header, webhook_secret)
        document = client.get("/openapi.json").json()
        walked = 0
        for path, methods in document["paths"].items():
            if "get" not in methods:
                continue
            names = {item["name"] for item in methods["get"].get("parameters", ()) if item["in"] == "query"}
            query = {name: value for name, value in WORDS.items() if name in names}
            # Whoever adds a route with a place in its path says here what stands there.
            url = known[path] if "{" in path else path
            answer = client.get(url, params=query, headers=AS_JSON)
            assert answer.status_code == 200, (url, answer.text)
            output = answer.text + str(answer.headers)
            assert [item for item in secrets if item in output] == [], url
            walked += 1
        assert walked > 35
        for item in followed(client, known):
            assert [secret for secret in secrets if secret in item] == []
        is_kept = f"Bearer {header}"
        assert set(target.authorizations) == {is_kept, None}, "the calls themselves carried it, the messages did not"
    assert header in stored(server)


def things_with_secrets(client: httpx2.Client, target: Target, header: str, webhook_secret: str) -> dict[str, str]:
    """One of everything, with a secret wherever one can be; answers what to read at each path that has a place."""
    params = {"url": target.url, "headers": {"Authorization": f"Bearer {header}", "Cookie": f"c={header}"}}

    def post(path: str, **body: Any) -> dict[str, Any]:
        answer = client.post(path, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        assert header not in answer.text, path
        result: dict[str, Any] = answer.json()
        return result

    webhook = post("/api/webhooks", url=target.url, secret=webhook_secret)
    template = post("/api/job-templates", name=unique("t"), type="http", default_params=params)
    schedule = post("/api/schedules", name=unique("s"), type="http", params=params, interval_s=9e6)
    endpoint = post("/api/endpoints", name=unique("e"), interval_s=9e6, **params)
    post(f"/api/endpoints/{endpoint['id']}/test")
    reservation = post("/api/direct/http", params=params)["reservation_id"]
    group = post("/api/job-groups", mode="parallel", jobs=[{"type": "http", "params": params}])
    batch = post("/jobs/batch/trigger", jobs=[{"type": "http", "params": params}])["batch_id"]
    jobs = [
        post("/api/jobs", type="http", params=params, webhook_url=target.url)["id"],
        post("/api/jobs", template=template["name"])["id"],
        post(f"/api/schedules/{schedule['id']}/trigger")["id"],
        post(f"/api/endpoints/{endpoint['id']}/trigger")["id"],
        group["jobs"][0]["id"],
        post("/jobs/http/trigger", **params)["job_id"],
    ]
    post("/api/jobs", type="http", params=params, not_before="2099-01-01T00:00:00.000Z")

    def is_done(job_id: str) -> dict[str, Any] | None:
        job: dict[str, Any] = client.get(f"/api/jobs/{job_id}").json()
        return job if job["status"] == "COMPLETED" and job["run"]["status"] else None

    ran, *_ = [eventually(partial(is_done, job_id)) for job_id in jobs]
    eventually(lambda: client.get(f"/jobs/batch/{batch}").json()["status"] == "succeeded")
    deliveries = eventually(lambda: client.get("/api/deliveries", params={"job_id": ran["id"]}).json()["items"])
    known = {
        "/api/job-runs/{id}/artifacts/{name}": f"/api/job-runs/{ran['run']['id']}/artifacts/result",
        "/jobs/batch/{id}": f"/jobs/batch/{batch}",
    }
    for prefix, each, steps in (
        ("/api/jobs", ran["id"], ("", "/explain", "/logs", "/events", "/steps", "/graph", "/chunks")),
        ("/jobs", ran["id"], ("",)),
        ("/api/job-runs", ran["run"]["id"], ("",)),
        ("/api/job-templates", template["id"], ("",)),
        ("/api/job-groups", group["id"], ("",)),
        ("/api/schedules", schedule["id"], ("", "/occurrences", "/explain", "/preview")),
        ("/api/endpoints", endpoint["id"], ("", "/occurrences", "/explain", "/preview", "/health")),
        ("/api/reservations", reservation, ("", "/explain", "/logs", "/chunks")),
        ("/api/webhooks", webhook["id"], ("",)),
        ("/api/deliveries", deliveries[0]["id"], ("",)),
    ):
        known |= {f"{prefix}/{{id}}{step}": f"{prefix}/{each}{step}" for step in steps}
    return known


def followed(client: httpx2.Client, known: dict[str, str]) -> Iterator[str]:
    """The same as streams: the log of the job until it ends, and the events until the last that there is."""
    yield client.get(known["/api/jobs/{id}/logs"], params={"follow": "true"}).text
    events = client.get("/api/events", params={"after": "0", "limit": "500"}, headers=AS_JSON).json()["items"]
    last, lines = str(events[-1]["id"]), []
    with client.stream("GET", "/api/events", params={"after": "0"}) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if line.startswith("data:") and f'"id":{last}' in line.replace(" ", ""):
                break
    yield "\n".join(lines)


def stored(server: Served) -> str:
    """The params as they are kept, for the calls that need them."""

    def look(tx: Any) -> str:
        return str(tx.rows("SELECT params FROM jobs"))

    return server.store.read_sync(look)
