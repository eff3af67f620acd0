"""Slots to borrow through the API."""

from __future__ import annotations

import threading

import httpx2
import pytest

from holdbeat.client import AsyncClient, Client
from tests.api.serving import Served, problem_of
from tests.waiting import eventually


@pytest.mark.rule("LIM-12")
def test_a_slot_is_reserved_extended_and_released_over_http(served: Served, client: httpx2.Client) -> None:
    answer = client.post("/api/reservations", json={"resource": "lane", "ttl_s": 30})
    assert answer.status_code == 201
    slot = answer.json()
    assert slot.keys() == {"id", "resource", "granted_at", "expires_at", "slot", "fence"}
    assert slot["slot"] == 0 and answer.headers["location"] == f"/api/reservations/{slot['id']}"
    body = client.get(f"/api/reservations/{slot['id']}").json()
    assert (body["kind"], body["status"], body["fence"]) == ("slot", "ACTIVE", slot["fence"])
    refused = client.post("/api/reservations", json={"resource": "lane", "ttl_s": 30, "wait_s": 0})
    problem_of(refused, 504, "waited_too_long")
    longer = client.post(f"/api/reservations/{slot['id']}/extend", json={"ttl_s": 300}).json()
    assert longer["expires_at"] > slot["expires_at"]
    for _ in range(2):
        released = client.post(f"/api/reservations/{slot['id']}/release")
        assert (released.status_code, released.json()["outcome"]) == (200, "COMPLETED")
    problem_of(client.post(f"/api/reservations/{slot['id']}/extend"), 409, "slot_lost")


@pytest.mark.rule("LIM-12")
def test_a_request_for_a_slot_that_cannot_be_is_refused_with_a_sentence(client: httpx2.Client) -> None:
    problem_of(client.post("/api/reservations", json={"ttl_s": 5}), 422, "missing_field")
    for ttl_s in (0, -1, 86_401, "long", True):
        problem_of(client.post("/api/reservations", json={"resource": "lane", "ttl_s": ttl_s}), 422)
    problem_of(client.post("/api/reservations", json={"resource": "", "ttl_s": 5}), 422)
    problem_of(client.post("/api/reservations", json={"resource": "lane", "priority": 1}), 422, "unknown_field")


@pytest.mark.rule("LIM-12", "DIR-03")
def test_a_client_that_goes_away_while_it_waits_leaves_the_line(served: Served, client: httpx2.Client) -> None:
    slot = client.post("/api/reservations", json={"resource": "lane", "ttl_s": 60}).json()
    with served.new_client() as own, pytest.raises(httpx2.ReadTimeout):
        own.post("/api/reservations", json={"resource": "lane", "ttl_s": 60}, timeout=0.5)
    eventually(lambda: len(client.get("/api/reservations?status=ACTIVE").json()["items"]) == 1)
    client.post(f"/api/reservations/{slot['id']}/release")
    assert client.get("/api/reservations?status=ACTIVE").json()["items"] == []


@pytest.mark.rule("LIM-12")
@pytest.mark.asyncio
async def test_both_clients_hold_a_slot_for_a_block(served: Served) -> None:
    order = []
    with Client(served.url) as blocking:
        with blocking.slot("lane", ttl_s=5) as slot:
            waiting = threading.Event()

            def second() -> None:
                waiting.set()
                with blocking.slot("lane"):
                    order.append("second")

            thread = threading.Thread(target=second)
            thread.start()
            waiting.wait()
            assert blocking.get_reservation(slot.id)["status"] == "ACTIVE" and slot.is_held
            order.append("first")
        thread.join(20)
    async with AsyncClient(served.url) as client, client.slot("lane") as held:
        order.append("third")
        assert held.number == 0
    assert order == ["first", "second", "third"]
