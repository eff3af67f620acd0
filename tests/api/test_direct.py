"""Direct requests through the API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from holdbeat.domain.errors import SettingsError
from tests.api.conftest import Serve
from tests.api.serving import Served, open_gate, problem_of, unique
from tests.waiting import eventually

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"


@pytest.mark.rule("DIR-05", "DEC-004")
@pytest.mark.parametrize("path", ["/api/direct/story", "/story/generate"])
def test_a_direct_request_answers_with_the_result_and_makes_no_job(client: httpx2.Client, path: str) -> None:
    before = client.get("/api/jobs", params={"type": "story"}).json()["items"]
    answer = client.post(path, json={"params": {"x": 4}})
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"reservation_id", "outcome", "result", "waited_s", "ran_s"}
    assert (body["outcome"], body["result"]) == ("COMPLETED", {"x": 4, "text": None})
    assert client.get("/api/jobs", params={"type": "story"}).json()["items"] == before
    reservation = client.get(f"/api/reservations/{body['reservation_id']}").json()
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
        answer = eventually(lambda: client.get("/api/reservations?status=ACTIVE").json()["items"])
        cancelled = client.post(f"/api/reservations/{answer[0]['id']}/cancel", json={"reason": "never mind"})
        assert cancelled.json()["outcome"] == "CANCELLED"
        problem_of(waiting.result(), 409, "cancelled")
    problem_of(client.post(f"/api/reservations/{answer[0]['id']}/cancel"), 409, "already_ended")
    open_gate(gate)
    served.wait_for(job["id"])


@pytest.mark.rule("DIR-06", "DIR-04")
def test_a_direct_request_that_a_shutdown_interrupts_is_a_503_that_invites_nobody_to_repeat_it(serve: Serve) -> None:
    server = serve(shutdown_grace_s=0)
    with ThreadPoolExecutor() as pool, server.new_client() as own:
        asked = pool.submit(own.post, "/api/direct/hold", json={"params": {"gate": unique("never")}})
        eventually(
            lambda: [
                item
                for item in server.client.get("/api/reservations?status=ACTIVE").json()["items"]
                if item["granted_at"]
            ]
        )
        server.run(server.supervisor.stop(0))
        answer = asked.result(20)
    problem = problem_of(answer, 503, "interrupted")
    assert problem["error_kind"] == "interrupted"
    assert "retry-after" not in answer.headers


@pytest.mark.rule("API-06", "DIR-01")
def test_a_waiting_direct_request_is_explained_and_told_when_it_will_start(serve: Serve) -> None:
    server = serve()
    first, second = unique("gate"), unique("gate")
    open_gate(first)
    server.run_job("narrow_hold", {"gate": first})
    holder = server.submit("narrow_hold", {"gate": second})
    server.wait_for(holder["id"], "RUNNING")
    with ThreadPoolExecutor() as pool, server.new_client() as own:
        asked = pool.submit(own.post, "/api/direct/narrow_hold", json={"params": {"gate": first}})
        waiting = eventually(lambda: server.client.get("/api/reservations?status=ACTIVE").json()["items"])[0]
        path = f"/api/reservations/{waiting['id']}"
        assert waiting["estimated_start"] is not None
        assert server.client.get(path).json()["estimated_start"] is not None
        explained = server.client.get(f"{path}/explain").json()
        assert explained["state"] == "ACTIVE"
        assert explained["estimated_start"] is not None
        assert "resource_full" in [reason["code"] for reason in explained["reasons"]]
        open_gate(second)
        assert asked.result(20).status_code == 200
    ended = server.client.get(f"{path}/explain").json()
    assert (ended["state"], ended["estimated_start"]) == ("RELEASED", None)
    assert server.client.get(path).json()["estimated_start"] is None
    problem_of(server.client.get(f"/api/reservations/{ANY_ID}/explain"), 404)
    problem_of(server.client.get("/api/reservations/nonsense/explain"), 404)


@pytest.mark.rule("OPS-01", "DIR-05")
@pytest.mark.parametrize(
    "path",
    ["/api/jobs", "/api/new", "/jobs", "/jobs/x/trigger", "/healthz", "/login", "/static/x", "/docs", "/", "//x",
     "/x/{id}", "/x y", "/x?y=1", "/x/../api/jobs", "/x/", "/é"],
)  # fmt: skip
def test_an_extra_path_that_would_hide_another_or_is_none_is_refused_at_the_start(
    new_store_url: Any, path: str
) -> None:
    with pytest.raises(SettingsError, match="direct_routes") as refused:
        Served(new_store_url(), has_worker=False, direct_routes={path: "echo"})
    assert refused.value.field == "direct_routes"


@pytest.mark.rule("DIR-05")
def test_an_extra_path_takes_bare_params_and_may_answer_the_bare_result(serve: Serve) -> None:
    server = serve(direct_routes={"/echo": "echo", "/bare/echo": {"type": "echo", "bare": True}})
    post = server.client.post
    assert post("/echo", json={"x": 3}).json()["result"] == {"x": 3, "text": None}
    assert post("/echo", json={"params": {"x": 4}, "wait_s": 5}).json()["result"] == {"x": 4, "text": None}
    assert post("/bare/echo", json={"x": 5}).json() == {"x": 5, "text": None}
    assert post("/bare/echo").json() == {"x": 1, "text": None}
    problem_of(post("/bare/echo", json={"params": {"x": 5}}), 422, "invalid_params")
    problem_of(post("/echo", json={"x": "no"}), 422, "invalid_params")
    problem_of(post("/echo", json=[1]), 422, "invalid_body")
    answers = server.client.get("/openapi.json").json()["paths"]["/bare/echo"]["post"]["responses"]
    assert answers["200"]["content"]["application/json"]["schema"] == {}


@pytest.mark.rule("DIR-05")
def test_several_extra_paths_may_lead_to_one_type(serve: Serve) -> None:
    server = serve(direct_routes={"/one/echo": "echo", "/two-echo": "echo", "/two_echo": "echo"})
    for path in ("/one/echo", "/two-echo", "/two_echo"):
        assert server.client.post(path, json={"params": {"x": 3}}).json()["result"] == {"x": 3, "text": None}
    document = server.client.get("/openapi.json").json()["paths"]
    names = [operation["operationId"] for methods in document.values() for operation in methods.values()]
    assert len(names) == len(set(names))
