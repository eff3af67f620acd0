"""A stream outlives the moment at which its listener was let in, but not the right to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from holdbeat.api.sessions import LIFE_S
from holdbeat.domain.api_key import Scope
from holdbeat.domain.clock import SystemClock
from holdbeat.store.access.api_keys import list_api_keys, revoke_api_key
from tests.api.conftest import Serve
from tests.api.serving import Served, open_gate, problem_of, unique
from tests.waiting import eventually


class FastClock(SystemClock):
    """The machine's clock, some time ahead."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


@pytest.fixture
def locked(new_store_url: Any) -> Iterator[Served]:
    server = Served(new_store_url(), is_key_needed=True)
    yield server
    server.stop()


def begin(stream: httpx2.Response) -> Iterator[str]:
    """The lines of a stream that has said its first word."""
    assert stream.status_code == 200
    lines = stream.iter_lines()
    assert next(lines).startswith(":")
    return lines


def revoke(server: Served, key: str) -> None:
    stored = next(api_key for api_key in server.store.read_sync(list_api_keys) if key.startswith(api_key.prefix))
    server.store.write_sync(revoke_api_key, stored.id)


def submit_as_admin(server: Served, type_: str = "echo", **params: Any) -> dict[str, Any]:
    with server.new_client(server.admin_key) as admin:
        answer = admin.post("/api/jobs", json={"type": type_, "params": params})
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body


@pytest.mark.rule("SEC-02")
def test_a_revoked_key_gets_no_more_events_on_the_stream_that_it_opened(locked: Served) -> None:
    key = locked.add_key(Scope.READ, unique("listener"))
    with locked.new_client(key) as own, own.stream("GET", "/api/events") as stream:
        lines = begin(stream)
        heard = submit_as_admin(locked)
        assert any(heard["id"] in line for line in lines)
        revoke(locked, key)
        eventually(lambda: own.get("/api/jobs").status_code == 401)
        later = submit_as_admin(locked)
        assert not any(later["id"] in line for line in lines)


@pytest.mark.rule("SEC-02")
def test_a_revoked_key_follows_a_log_no_further(locked: Served) -> None:
    key = locked.add_key(Scope.READ, unique("follower"))
    gate = unique("gate")
    job = submit_as_admin(locked, "chat", lines=3, gate=gate)
    with locked.new_client(key) as own, own.stream("GET", f"/api/jobs/{job['id']}/logs?follow=true") as stream:
        lines = begin(stream)
        assert any("line 2" in line for line in lines)
        revoke(locked, key)
        eventually(lambda: own.get("/api/jobs").status_code == 401)
        open_gate(gate)
        assert not any(line.startswith("data:") for line in lines)


@pytest.mark.rule("SEC-02")
def test_a_session_that_is_over_opens_nothing_and_its_streams_end(serve: Serve) -> None:
    clock = FastClock()
    server = serve(has_worker=False, is_key_needed=True, clock=clock)
    with server.new_client() as browser:
        assert browser.post("/login", json={"key": server.admin_key}).status_code == 204
        with browser.stream("GET", "/api/events") as stream:
            lines = begin(stream)
            clock.ahead_s = LIFE_S - 60
            heard = submit_as_admin(server)
            assert any(heard["id"] in line for line in lines)
            assert browser.get("/api/jobs").status_code == 200
            clock.ahead_s = LIFE_S + 1
            # With the cookie itself: a browser would drop it by its Max-Age, a thief would not.
            cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
            with server.new_client() as thief:
                problem_of(thief.get("/api/jobs", headers={"Cookie": cookie}), 401)
            later = submit_as_admin(server)
            assert not any(later["id"] in line for line in lines)


@pytest.mark.rule("SEC-01", "SEC-02")
def test_a_stream_that_was_opened_without_a_key_ends_with_the_first_key(serve: Serve) -> None:
    server = serve(has_worker=False)
    with server.new_client() as own, own.stream("GET", "/api/events") as stream:
        lines = begin(stream)
        heard = server.submit("echo")
        assert any(heard["id"] in line for line in lines)
        server.admin_key = server.add_key(Scope.ADMIN)
        eventually(lambda: own.get("/api/jobs").status_code == 401)
        later = submit_as_admin(server)
        assert not any(later["id"] in line for line in lines)


@pytest.mark.rule("SEC-02", "API-04")
def test_a_key_that_still_opens_keeps_its_stream_when_another_is_revoked(locked: Served) -> None:
    key, other = locked.add_key(Scope.READ, unique("listener")), locked.add_key(Scope.READ, unique("other"))
    with locked.new_client(key) as own, own.stream("GET", "/api/events?name=run.ended") as stream:
        lines = begin(stream)
        revoke(locked, other)
        job = submit_as_admin(locked)
        data = next(line for line in lines if line.startswith("data: "))
        assert json.loads(data.removeprefix("data: "))["job_id"] == job["id"]
