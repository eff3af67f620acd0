"""Webhooks, their deliveries, and secrets that are never shown."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest

from holdbeat.domain.api_key import Scope
from holdbeat.domain.webhook import new_secret, sign
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique
from tests.waiting import eventually

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"


class Receiver:
    """Takes messages and remembers them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.paths.append(self.path)
                receiver.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(500 if self.path.endswith("/broken") else receiver.status)
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
    body = client.get(path).json()
    assert body == {**webhook, "secret": "[redacted]"}
    assert webhook["secret"] not in client.get("/api/webhooks?limit=500").text
    edited = client.patch(path, json={**{k: body[k] for k in ("url", "secret")}, "events": [], "enabled": False})
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


@pytest.mark.rule("WEB-02")
def test_a_message_to_a_plain_url_is_verified_with_the_server_s_own_secret_and_over_its_rotation(
    served: Served, client: httpx2.Client
) -> None:
    receiver = Receiver()

    def is_signed_with(number: int, secret: str) -> bool:
        headers = receiver.headers[number]
        signature = sign(
            secret,
            message_id=headers["webhook-id"],
            timestamp=int(headers["webhook-timestamp"]),
            body=receiver.bodies[number],
        )
        return signature in headers["webhook-signature"].split(" ")

    try:
        first = client.get("/api/webhooks/secret").json()
        assert first["secret"].startswith("whsec_")
        assert client.get("/api/webhooks/secret").json() == first
        served.run_job("echo", webhook_url=receiver.url)
        eventually(lambda: len(receiver.bodies) == 1)
        assert is_signed_with(0, first["secret"])
        second = client.post("/api/webhooks/secret/rotate").json()
        assert second["previous_secret"] == first["secret"]
        assert second["secret"] != first["secret"]
        assert second["rotated_at"] is not None
        served.run_job("echo", webhook_url=receiver.url)
        eventually(lambda: len(receiver.bodies) == 2)
        assert is_signed_with(1, first["secret"])
        assert is_signed_with(1, second["secret"])
    finally:
        receiver.close()
    value = new_secret(bytes(range(32)))
    assert client.post("/api/webhooks/secret/rotate", json={"secret": value}).json()["secret"] == value
    problem_of(client.post("/api/webhooks/secret/rotate", json={"secret": "short"}), 422)
    problem_of(client.post("/api/webhooks/secret/rotate", json={"colour": 1}), 422)
    assert value not in client.get("/api/events?after=0&limit=500", headers={"Accept": "application/json"}).text


@pytest.mark.rule("WEB-02", "SEC-02")
def test_only_an_admin_sees_or_rotates_the_server_s_own_secret(serve: Serve) -> None:
    server = serve(has_worker=False, is_key_needed=True)
    with server.new_client(server.add_key(Scope.WRITE)) as writer, server.new_client(server.admin_key) as admin:
        for answer in (writer.get("/api/webhooks/secret"), writer.post("/api/webhooks/secret/rotate")):
            problem_of(answer, 403, "needs_admin")
            assert "whsec_" not in answer.text
        assert admin.get("/api/webhooks/secret").status_code == 200


@pytest.mark.rule("WEB-04", "DEC-009")
def test_a_subscription_that_was_corrected_gets_what_is_pending_and_what_is_replayed(
    served: Served, client: httpx2.Client
) -> None:
    receiver = Receiver()
    wrong, right = f"{receiver.url}/broken", f"{receiver.url}/right"
    webhook = client.post("/api/webhooks", json={"url": wrong, "events": ["job.run.skipped"]}).json()
    path = f"/api/webhooks/{webhook['id']}"
    try:
        job = served.run_job("skip")

        def delivery(status: str) -> Any:
            return client.get("/api/deliveries", params={"job_id": job["id"], "status": status}).json()["items"]

        pending = eventually(lambda: [item for item in delivery("PENDING") if item["attempts"]])[0]
        assert client.patch(path, json={"url": right}).status_code == 200
        assert client.get(f"/api/deliveries/{pending['id']}").json()["url"] == right
        delivered = eventually(lambda: delivery("DELIVERED"))[0]
        assert (delivered["id"], delivered["url"], receiver.paths[-1]) == (pending["id"], right, "/hook/right")
        assert client.patch(path, json={"url": f"{receiver.url}/third"}).status_code == 200
        assert client.get(f"/api/deliveries/{pending['id']}").json()["url"] == right, "where it went stays on record"
        again = client.post(f"/api/deliveries/{pending['id']}/redeliver").json()
        assert again["url"] == f"{receiver.url}/third"
        eventually(lambda: receiver.paths[-1] == "/hook/third")
    finally:
        client.delete(path)
        receiver.close()


@pytest.mark.rule("SEC-07")
def test_secret_headers_of_http_jobs_are_never_shown_and_survive_an_edit(served: Served, client: httpx2.Client) -> None:
    canary = unique("canary")
    params = {"url": "http://127.0.0.1:1/", "headers": {"Authorization": f"Bearer {canary}", "X-Plain": "yes"}}
    job = served.submit("http", params, not_before=FAR)
    path = f"/api/jobs/{job['id']}"
    assert job["params"]["headers"] == {"Authorization": "[redacted]", "X-Plain": "yes"}
    edited = client.patch(path, json={"params": {**job["params"], "url": "http://127.0.0.1:1/other"}})
    assert edited.status_code == 200

    def stored(tx: Any) -> str:
        return str(tx.one("SELECT params FROM jobs WHERE id = :id", id=job["id"])[0])

    assert canary in served.store.read_sync(stored)
    template = {"name": unique("http"), "type": "http", "default_params": params}
    made = client.post("/api/job-templates", json=template).json()
    assert made["default_params"]["headers"]["Authorization"] == "[redacted]"
    assert canary not in client.get(path).text
    lost = {"params": {"url": "http://127.0.0.1:2/", "headers": {"Cookie": "[redacted]"}}}
    problem_of(client.patch(path, json=lost), 422, "nothing_to_keep")


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("host", ["169.254.169.254", "0xa9fea9fe", "[::ffff:169.254.169.254]", "0.0.0.0", "[fe80::1]"])
def test_an_address_that_is_never_called_is_refused_when_it_is_given(client: httpx2.Client, host: str) -> None:
    url = f"http://{host}/latest/meta-data"
    problem_of(client.post("/api/webhooks", json={"url": url}), 422, "forbidden_target")
    endpoint = {"name": unique("endpoint"), "url": url, "interval_s": 60}
    problem_of(client.post("/api/endpoints", json=endpoint), 422, "forbidden_target")
    kept = client.post("/api/endpoints", json={**endpoint, "url": "http://127.0.0.1:9/"}).json()
    problem_of(client.patch(f"/api/endpoints/{kept['id']}", json={"url": url}), 422, "forbidden_target")
    client.delete(f"/api/endpoints/{kept['id']}")
