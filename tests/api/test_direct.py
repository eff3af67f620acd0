"""Direct requests through the API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.api.conftest import Serve
from tests.api.serving import Served, eventually, open_gate, problem_of, unique

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"


@pytest.mark.rule("DIR-05", "DEC-004")
@pytest.mark.parametrize("path", ["/api/direct/story", "/story/generate"])
def test_a_direct_request_answers_with_the_result_and_makes_no_job(client: httpx2.Client, path: str) -> None:
    before = client.get("/api/jobs", params={"type": "story"}).json()["items"]
    answer = client.post(path, json={"params": {"x": 4}})
    assert answer.status_code == 200
    found = answer.json()
    assert found.keys() == {"reservation_id", "outcome", "result", "waited_s", "ran_s"}
    assert (found["outcome"], found["result"]) == ("COMPLETED", {"x": 4, "text": None})
    assert client.get("/api/jobs", params={"type": "story"}).json()["items"] == before
    reservation = client.get(f"/api/reservations/{found['reservation_id']}").json()
    assert (reservation["status"], reservation["outcome"]) == ("RELEASED", "COMPLETED")
    assert client.post(path).json()["result"] == {"x": 1, "text": None}


@pytest.mark.rule("DIR-06", "DIR-04")
def test_a_direct_request_says_what_went_wrong(served: Served, client: httpx2.Client) -> None:
    problem_of(client.post("/api/direct/nope", json={}), 422, "unknown_type")
    problem_of(client.post("/api/direct/echo", json={"params": {"x": "no"}}), 422, "invalid_params")
    problem_of(client.post("/api/direct/echo", json={"params": []}), 422)
    problem_of(client.post("/api/direct/echo", json={"wait_s": -1}), 422)
    problem_of(client.post("/api/direct/echo", json={"priority": 1}), 422, "unknown_field")
    failed = problem_of(client.post("/api/direct/fail", json={"params": {"message": "broken"}}), 502, "handler_failed")
    assert "broken" in failed["detail"]
    problem_of(client.post("/api/direct/impatient", json={"params": {"gate": unique("never")}}), 502, "timeout")
    skipped = client.post("/api/direct/skip", json={}).json()
    assert (skipped["outcome"], skipped["reason"]) == ("SKIPPED", "nothing to do")


@pytest.mark.rule("DIR-06")
def test_without_a_worker_for_it_a_direct_request_is_refused_at_once(serve: Serve) -> None:
    server = serve(has_worker=False)
    answer = server.client.post("/api/direct/echo", json={})
    problem_of(answer, 503, "no_worker")
    assert "retry-after" in answer.headers


@pytest.mark.rule("DIR-03")
def test_a_direct_request_that_waits_too_long_is_given_up(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    served.wait_for(job["id"], "RUNNING")
    problem_of(
        client.post("/api/direct/narrow_hold", json={"params": {"gate": gate}, "wait_s": 0.2}), 504, "waited_too_long"
    )
    assert client.get("/api/reservations?status=ACTIVE").json()["items"] == []
    open_gate(gate)
    served.wait_for(job["id"])


@pytest.mark.rule("DIR-03")
def test_a_client_that_goes_away_gives_its_place_back(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    with served.new_client() as own, pytest.raises(httpx2.ReadTimeout):
        own.post("/api/direct/narrow_hold", json={"params": {"gate": gate}}, timeout=0.5)

    def ended() -> Any:
        newest = client.get("/api/reservations?limit=1").json()["items"][0]
        return newest if newest["status"] != "ACTIVE" else None

    assert eventually(ended)["outcome"] == "CANCELLED"


@pytest.mark.rule("DIR-03")
def test_a_waiting_direct_request_can_be_cancelled(served: Served, client: httpx2.Client) -> None:
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    served.wait_for(job["id"], "RUNNING")
    with ThreadPoolExecutor(1) as pool, served.new_client() as own:
        waiting = pool.submit(own.post, "/api/direct/narrow_hold", json={"params": {"gate": gate}})
        found = eventually(lambda: client.get("/api/reservations?status=ACTIVE").json()["items"])
        cancelled = client.post(f"/api/reservations/{found[0]['id']}/cancel", json={"reason": "never mind"})
        assert cancelled.json()["outcome"] == "CANCELLED"
        problem_of(waiting.result(), 409, "cancelled")
    problem_of(client.post(f"/api/reservations/{found[0]['id']}/cancel"), 409, "already_ended")
    open_gate(gate)
    served.wait_for(job["id"])
