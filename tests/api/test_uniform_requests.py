"""Requests that differ in their params alone: what was checked and prepared for one serves the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from holdbeat.api.problem import encode, encode_in_turns
from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import Invalid
from holdbeat.operations.kept_kinds import KINDS_MAX
from holdbeat.operations.operation import OperationContext
from holdbeat.operations.submitting import PART, submit_jobs
from holdbeat.store.queue.job_types import AnnouncedType, announce
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique


@pytest.mark.rule("API-01", "DEC-006")
@pytest.mark.parametrize(
    "request_body",
    [
        {"type": "anything"},
        {"type": "anything", "params": None},
        {"type": "anything", "params": {"deep": [{"x": None}], "n": 1, "text": "ä"}},
        {"type": "anything", "priority": 7, "resource": "lane", "timeout_s": 2.5, "weight": 1},
        {"type": "parrot", "params": {"x": 2}},
        {"type": "anything", "labels": {"team": "art"}, "not_before": FAR},
    ],
)
def test_the_answer_to_each_request_of_a_kind_is_the_job_that_was_stored(
    serve: Serve, request_body: dict[str, object]
) -> None:
    client = serve(has_worker=False).client
    answers = [client.post("/api/jobs", json=request_body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3
    stored = [client.get(answer.headers["location"]) for answer in answers]
    assert [answer.content for answer in answers] == [answer.content for answer in stored]
    assert len({answer.json()["id"] for answer in answers}) == 3


@pytest.mark.rule("DEC-006")
def test_requests_at_the_same_time_each_get_the_job_with_their_params(serve: Serve) -> None:
    client = serve(has_worker=False).client

    def post(number: int) -> tuple[int, dict[str, object]]:
        body = {"type": "anything", "params": {"number": number}, "priority": number % 3}
        return number, client.post("/api/jobs", json=body).json()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, range(96)))
    for number, job in answers:
        assert (job["params"], job["title"], job["priority"]) == ({"number": number}, f"number={number}", number % 3)
        assert client.get(f"/api/jobs/{job['id']}").json() == job
    assert len({job["position"] for _, job in answers if job["priority"] == 0}) == 32


@pytest.mark.rule("API-02", "SEC-06")
def test_a_request_is_refused_however_many_of_its_kind_were_accepted(client: httpx2.Client) -> None:
    good = {"type": "anything", "params": {}, "priority": 1}
    for _ in range(2):
        assert client.post("/api/jobs", json=good).status_code == 201
    refused: list[tuple[dict[str, object], str, str]] = [
        ({"priority": True}, "out_of_range", "priority"),
        ({"priority": 1.0}, "out_of_range", "priority"),
        ({"priority": [1]}, "out_of_range", "priority"),
        ({"params": []}, "invalid_params", "params"),
        ({"params": {"text": "\x00"}}, "invalid_text", "body.params.text"),
        ({"speed": 1}, "unknown_field", "speed"),
        ({"type": None}, "missing_type", "type"),
        ({"type": {}}, "invalid_text", "type"),
    ]
    for change, code, field in refused:
        problem = problem_of(client.post("/api/jobs", json={**good, **change}), 422)
        assert (problem["code"], problem["field"]) == (code, field)


@pytest.mark.rule("QUE-06")
def test_a_type_that_was_announced_anew_counts_at_once(serve: Serve) -> None:
    server = serve(has_worker=False)
    name = unique("changing")

    def announce_with(**fields: object) -> None:
        server.run(server.store.write(announce, [AnnouncedType(name, **fields)]))  # type: ignore[arg-type]

    def post(**params: object) -> httpx2.Response:
        return server.client.post("/api/jobs", json={"type": name, "params": params})

    announce_with(defaults={"priority": 3, "params": {"a": 1}})
    assert [(post().json()["priority"], post(b=2).json()["params"]) for _ in range(2)] == [(3, {"a": 1, "b": 2})] * 2
    announce_with(defaults={"priority": 5}, schema={"type": "object", "required": ["b"]})
    assert post(b=2).json()["priority"] == 5
    assert problem_of(post(), 422)["code"] == "invalid_params"


@pytest.mark.rule("QUE-06")
def test_an_alias_that_goes_over_to_another_type_counts_at_once(serve: Serve) -> None:
    server = serve(has_worker=False)
    first, second, alias = unique("a-type"), unique("b-type"), unique("alias")

    def announce_with(*types: AnnouncedType) -> None:
        server.run(server.store.write(announce, list(types)))

    announce_with(AnnouncedType(first, aliases=(alias,)), AnnouncedType(second, aliases=(alias,)))
    assert server.client.post("/api/jobs", json={"type": alias}).json()["type"] == first
    announce_with(AnnouncedType(first))
    assert server.client.post("/api/jobs", json={"type": alias}).json()["type"] == second


@pytest.mark.rule("AUD-01")
def test_the_event_of_each_job_names_the_key_that_submitted_it(serve: Serve) -> None:
    server = serve(has_worker=False, is_key_needed=True)
    names = ["ann", "ben"]
    keys = {name: server.add_key(Scope.WRITE, name) for name in names}
    for name in names * 2:
        with server.new_client(keys[name]) as client:
            job = client.post("/api/jobs", json={"type": "anything"}).json()
            (event,) = client.get(f"/api/jobs/{job['id']}/events").json()["items"]
        assert event["data"]["actor"] == name


def test_more_kinds_than_are_kept_are_served_all_the_same(serve: Serve) -> None:
    server = serve(has_worker=False)
    for round_number in range(2):
        for number in range(KINDS_MAX + 2):
            body = {"type": "anything", "timeout_s": number + 1, "params": {"round": round_number}}
            job = server.client.post("/api/jobs", json=body).json()
            assert (job["timeout_s"], job["params"]) == (number + 1, {"round": round_number})


@pytest.mark.rule("QUE-02", "DEC-006")
@pytest.mark.parametrize("is_uniform", [True, False])
def test_a_large_batch_is_answered_with_the_jobs_that_were_stored(serve: Serve, is_uniform: bool) -> None:
    client = serve(has_worker=False).client
    count = 2 * PART + 1
    requests = [{"type": "anything", "params": {"n": n}, "priority": 0 if is_uniform else n % 2} for n in range(count)]
    answer = client.post("/api/jobs/batch", json={"jobs": requests})
    assert answer.status_code == 201
    jobs = answer.json()["items"]
    assert [job["params"]["n"] for job in jobs] == list(range(count))
    assert answer.content == encode({"items": jobs})
    for job in (jobs[0], jobs[PART], jobs[-1]):
        assert client.get(f"/api/jobs/{job['id']}").json() == job
    assert len({job["id"] for job in jobs}) == count


@pytest.mark.rule("QUE-02", "API-01")
def test_a_refused_job_of_a_batch_is_named_and_none_is_stored(serve: Serve) -> None:
    client = serve(has_worker=False).client
    good = {"type": "anything", "params": {}}
    for bad, code, field in (
        ({**good, "params": 1}, "invalid_params", "jobs[2].params"),
        ({**good, "priority": 101}, "out_of_range", "jobs[2].priority"),
        ({**good, "type": "nobody"}, "unknown_type", "jobs[2].type"),
        (7, "invalid_body", "jobs[2]"),
    ):
        problem = problem_of(client.post("/api/jobs/batch", json={"jobs": [good, good, bad]}), 422)
        assert (problem["code"], problem["field"]) == (code, field)
    same_kind = problem_of(client.post("/api/jobs/batch", json={"jobs": [{**good, "type": "nobody"}] * 2}), 422)
    assert (same_kind["code"], same_kind["field"]) == ("unknown_type", "jobs[0].type")
    assert client.get("/api/jobs").json()["items"] == []


async def turns_of_others(work: Coroutine[Any, Any, object]) -> int:
    """How often another task of the loop goes on before the work has ended."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    with contextlib.suppress(Invalid):
        await task
    return turns


@pytest.mark.rule("SEC-08")
def test_other_requests_have_a_turn_while_a_large_batch_is_read(served: Served) -> None:
    context = OperationContext("test", True, lambda tx: OutboundPolicy(loopback_server=True))
    requests = [{"type": "anything", "priority": number % 2} for number in range(4 * PART)]
    # The last one is refused, so that nothing is waited for but the reading.
    reading = submit_jobs.run(served.store, context, [*requests, {"type": "anything", "priority": -1}])
    assert asyncio.run(turns_of_others(reading)) > 4


@pytest.mark.rule("SEC-08")
def test_other_requests_have_a_turn_while_a_long_list_is_encoded() -> None:
    assert asyncio.run(turns_of_others(encode_in_turns({"items": [{}] * 1001}))) > 4
