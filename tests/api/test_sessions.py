"""A session of the dashboard is a row: it ends when its user logs out, and nothing in the store makes another one."""

from __future__ import annotations

import pytest

from holdbeat.api.sessions import COOKIE
from holdbeat.store.transaction import Transaction
from tests.api.conftest import Serve
from tests.api.serving import Served

pytestmark = pytest.mark.rule("SEC-02")


def log_in(server: Served) -> str:
    answer = server.client.post("/login", json={"key": server.admin_key})
    assert answer.status_code == 204
    server.client.cookies.clear()
    return str(answer.headers["set-cookie"].partition(";")[0].partition("=")[2])


def status_with(server: Served, cookie: str) -> int:
    return int(server.client.get("/api/jobs", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code)


def test_a_cookie_is_useless_after_logout_and_others_are_not(serve: Serve) -> None:
    server = serve(is_key_needed=True)
    first, second = log_in(server), log_in(server)
    assert (status_with(server, first), status_with(server, second)) == (200, 200)
    answer = server.client.post("/logout", headers={"Cookie": f"{COOKIE}={first}"})
    assert answer.status_code == 303
    assert (status_with(server, first), status_with(server, second)) == (401, 200)


def test_nothing_in_the_store_is_a_cookie_or_signs_one(serve: Serve) -> None:
    server = serve(is_key_needed=True)
    cookie = log_in(server)

    def texts(tx: Transaction) -> list[str]:
        return [text for row in tx.rows("SELECT key, value FROM meta") for text in row]

    stored = server.store.read_sync(texts)
    assert not any(cookie in text or "session_secret" in text for text in stored)
    for text in stored:
        if text.startswith("session:"):
            assert status_with(server, text.removeprefix("session:")) == 401
