"""What handlers emit, streamed to the caller of a direct request and to whoever follows a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from holdbeat.client import AsyncClient, Client, ProblemError
from holdbeat.client.messages import COMMENT, Message, MessageReader
from tests.api.serving import Served, open_gate, problem_of, unique
from tests.waiting import eventually

STREAM = {"Accept": "text/event-stream"}


def messages(answer: httpx2.Response) -> Iterator[Message]:
    reader = MessageReader()
    for part in answer.iter_raw():
        yield from (message for message in reader.feed(part) if message.event != COMMENT)


@pytest.mark.rule("STR-01")
def test_a_direct_request_streams_its_wait_its_chunks_and_its_result(served: Served, client: httpx2.Client) -> None:
    slot = client.post("/api/reservations", json={"resource": "narrow", "ttl_s": 60}).json()
    gate = unique("gate")
    body = {"params": {"gate": gate}}
    with served.new_client() as own, own.stream("POST", "/api/direct/narrow_talk", json=body, headers=STREAM) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = messages(answer)
        waiting = next(stream)
        assert (waiting.event, waiting.data["place"]) == ("waiting", 1) and "estimated_start" in waiting.data
        client.post(f"/api/reservations/{slot['id']}/release")
        assert next(stream).event == "granted"
        seen = [next(stream) for _ in range(4)]
        assert [one.data["chunk"] for one in seen if one.event == "chunk"] == ["word0 ", "word1 ", "word2 "]
        assert [one.data for one in seen if one.event == "progress"] == [{"fraction": 0.5, "message": "half"}]
        open_gate(gate)
        last = list(stream)
    assert [one.event for one in last] == ["chunk", "result"]
    assert last[0].data["chunk"] == {"done": True}
    assert (last[1].data["outcome"], last[1].data["result"]) == ("COMPLETED", "said")


@pytest.mark.rule("STR-01")
def test_what_a_direct_request_said_can_be_read_afterwards(client: httpx2.Client) -> None:
    done = client.post("/api/direct/talk", json={"params": {"words": 2}}).json()
    path = f"/api/reservations/{done['reservation_id']}"
    kept = client.get(path).json()
    assert (kept["params"], kept["result"]) == ({"words": 2}, "said")
    assert kept["progress"] == {"fraction": 0.5, "message": "half"}
    chunks = client.get(f"{path}/chunks").json()["items"]
    assert [chunk["chunk"] for chunk in chunks] == ["word0 ", "word1 ", {"done": True}]
    assert [line["text"] for line in client.get(f"{path}/logs").json()["items"]] == ["begins to talk"]
    after = client.get(f"{path}/chunks", params={"after": chunks[1]["sequence"]}).json()["items"]
    assert after == chunks[2:]


@pytest.mark.rule("STR-01", "DIR-06")
def test_what_fails_before_the_line_is_refused_and_what_fails_after_is_a_problem(client: httpx2.Client) -> None:
    problem_of(client.post("/api/direct/nope", headers=STREAM), 422, "unknown_type")
    with client.stream("POST", "/api/direct/fail", json={"params": {"message": "broken"}}, headers=STREAM) as answer:
        assert answer.status_code == 200
        last = list(messages(answer))[-1]
    assert (last.event, last.data["status"], last.data["code"]) == ("problem", 502, "handler_failed")
    assert "broken" in last.data["detail"]


@pytest.mark.rule("STR-01", "DIR-03")
def test_who_leaves_the_stream_cancels_the_request(served: Served, client: httpx2.Client) -> None:
    body = {"params": {"gate": unique("never")}}
    with served.new_client() as own, own.stream("POST", "/api/direct/talk", json=body, headers=STREAM) as answer:
        stream = messages(answer)
        reservation_id = next(one.data["reservation_id"] for one in stream if one.event == "granted")
    ended = eventually(
        lambda: (one := client.get(f"/api/reservations/{reservation_id}").json())["status"] != "ACTIVE" and one
    )
    assert ended["outcome"] == "CANCELLED"


@pytest.mark.rule("STR-01")
def test_the_chunks_of_a_job_are_followed_from_any_id_and_kept_apart_from_its_log(served: Served) -> None:
    gate = unique("gate")
    job = served.submit("talk", {"gate": gate})
    path = f"/api/jobs/{job['id']}"
    eventually(lambda: len(served.client.get(f"{path}/chunks").json()["items"]) == 3)
    first = served.client.get(f"{path}/chunks").json()["items"][0]["sequence"]
    follow: dict[str, Any] = {"follow": "true", "after": first}
    with served.new_client() as own, own.stream("GET", f"{path}/chunks", params=follow) as answer:
        stream = messages(answer)
        assert [next(stream).data["chunk"] for _ in range(2)] == ["word1 ", "word2 "]
        open_gate(gate)
        rest = list(stream)
    assert [one.event for one in rest] == ["chunk", "end"] and rest[1].data == {"status": "COMPLETED"}
    assert [line["text"] for line in served.client.get(f"{path}/logs").json()["items"]] == ["begins to talk"]


@pytest.mark.rule("STR-01")
@pytest.mark.asyncio
async def test_both_clients_stream_direct_requests_and_the_chunks_of_jobs(served: Served) -> None:
    with Client(served.url) as client:
        seen = list(client.stream_direct("talk", {"words": 1}))
        assert [one.event for one in seen if one.event in ("chunk", "result")] == ["chunk", "chunk", "result"]
        with pytest.raises(ProblemError, match="broken"):
            list(client.stream_direct("fail", {"message": "broken"}))
        job = served.run_job("talk", {"words": 1})
        assert [one["chunk"] for one in client.follow_chunks(job["id"])] == ["word0 ", {"done": True}]
        request = client.direct("talk", {"words": 1})["reservation_id"]
        chunks = list(client.follow_reservation_chunks(request))
        assert [one["chunk"] for one in chunks] == ["word0 ", {"done": True}]
    async with AsyncClient(served.url) as later:
        rest = later.follow_reservation_chunks(request, after=chunks[0]["sequence"])
        assert [one["chunk"] async for one in rest] == [{"done": True}]
        events = [one.event async for one in later.stream_direct("talk", {"words": 1})]
        assert events[-1] == "result"
        chunks = [one["chunk"] async for one in later.follow_chunks(job["id"])]
        assert json.dumps(chunks) == '["word0 ", {"done": true}]'
