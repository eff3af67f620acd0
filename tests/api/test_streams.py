"""Streams of events and logs: nothing lost, nothing repeated, and no listener is a burden to the others."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from holdbeat.client import Client
from holdbeat.store.reads.event_log import latest_cursor
from tests.api.conftest import Serve
from tests.api.relay import Relay
from tests.api.serving import Served, open_gate, problem_of, unique
from tests.waiting import eventually

Message = dict[str, str]


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """The messages of an event stream, without its comments."""
    message: Message = {}
    for line in lines:
        if not line:
            # One without data only says where the stream stands.
            if "data" in message:
                yield message
            message = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            message[name] = value


def take(served: Served, path: str, count: int, headers: dict[str, str] | None = None, **query: Any) -> list[Message]:
    """The first messages of a stream; then the line is cut."""
    collected: list[Message] = []
    with served.new_client() as own, own.stream("GET", path, params=query, headers=headers or {}) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        for message in messages(stream.iter_lines()):
            collected.append(message)
            if len(collected) == count:
                break
    return collected


@pytest.mark.rule("API-04")
def test_a_stream_that_is_cut_and_resumed_misses_and_repeats_nothing(serve: Serve) -> None:
    served = serve()
    job_ids = [served.run_job("echo", {"x": number})["id"] for number in range(8)]
    first = take(served, "/api/events", 5, after="0")
    seen = list(first)
    while True:
        more = take(served, "/api/events", 3, {"Last-Event-ID": seen[-1]["id"]})
        seen += more
        if job_ids[-1] in more[-1]["data"] and more[-1]["event"] == "run.ended":
            break
        assert len(seen) < 5000
    ids = [message["id"] for message in seen]
    assert len(ids) == len(set(ids))
    ended = [json.loads(message["data"])["job_id"] for message in seen if message["event"] == "run.ended"]
    assert [job_id for job_id in ended if job_id in job_ids] == job_ids
    whole = take(served, "/api/events", len(seen), after="0")
    assert [message["id"] for message in whole] == ids


@pytest.mark.rule("API-04")
def test_a_live_stream_shows_what_happens_from_now_on(served: Served) -> None:
    served.run_job("echo")
    started = threading.Event()
    collected: list[Message] = []

    def listen() -> None:
        with served.new_client() as own, own.stream("GET", "/api/events", params={"name": "run.ended"}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            started.set()
            collected.append(next(messages(lines)))

    thread = threading.Thread(target=listen)
    thread.start()
    assert started.wait(10)
    job = served.run_job("echo")
    thread.join(10)
    assert collected[0]["event"] == "run.ended"
    assert json.loads(collected[0]["data"])["job_id"] == job["id"]


@pytest.mark.rule("API-04")
def test_who_is_cut_off_before_the_first_event_misses_nothing(served: Served) -> None:
    query = {"name": "run.ended"}
    with served.new_client() as own, own.stream("GET", "/api/events", params=query) as stream:
        lines = stream.iter_lines()
        place = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
    job = served.run_job("echo")
    seen = take(served, "/api/events", 1, {"Last-Event-ID": place}, **query)
    assert json.loads(seen[0]["data"])["job_id"] == job["id"]


@pytest.mark.rule("API-04")
def test_the_client_gets_the_events_it_missed_when_it_was_disconnected_before_the_first_one(served: Served) -> None:
    """The line to the server is cut by a relay right after the stream's beginning, and a job ends meanwhile."""
    jobs: list[dict[str, Any]] = []

    def first_connection(heard: bytes) -> bool:
        if b"id: " not in heard:
            return False
        jobs.append(served.run_job("echo"))
        return True

    relay = Relay(served.server.port, first_connection)
    try:
        with Client(relay.url) as client:
            event = next(client.events(name=["run.ended"]))
    finally:
        relay.close()
    assert event["job_id"] == jobs[0]["id"]


@pytest.mark.rule("API-04", "API-02")
@pytest.mark.parametrize("place", ["x", "-1", "1-2", "99999999999999999999", "1 2"])
def test_a_log_goes_on_only_from_an_id_that_it_gave(served: Served, place: str) -> None:
    job = served.run_job("draw")
    path = f"/api/jobs/{job['id']}/logs?follow=true"
    refused = served.client.get(path, headers={"Last-Event-ID": place})
    assert problem_of(refused, 422, "invalid_cursor")["field"] == "Last-Event-ID"


@pytest.mark.rule("API-03", "API-04")
def test_the_log_of_events_is_read_to_its_end_and_then_polled_by_the_id_of_its_last_event(served: Served) -> None:
    def page(**query: Any) -> dict[str, Any]:
        answer = served.client.get("/api/events", params=query, headers={"Accept": "application/json"})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    job = served.run_job("echo")
    whole = eventually(lambda: (items := page(after="0", job_id=job["id"], limit=500)["items"])[-1:] and items)
    pages, cursor = [], "0"
    while cursor is not None:
        found = page(cursor=cursor, job_id=job["id"], limit=2)
        pages += found["items"]
        cursor = found["next_cursor"]
    assert [event["id"] for event in pages[: len(whole)]] == [event["id"] for event in whole]
    assert page(after=str(pages[-1]["id"]), job_id=job["id"])["items"] == []
    assert [event["id"] for event in page(after=str(whole[0]["id"]), job_id=job["id"])["items"]] == [
        event["id"] for event in pages[1:]
    ]
    problem_of(served.client.get("/api/events?after=0&cursor=0", headers={"Accept": "application/json"}), 422)


@pytest.mark.rule("API-03")
def test_the_events_of_a_job_come_in_pages_too(served: Served) -> None:
    job = served.run_job("echo")
    path = f"/api/jobs/{job['id']}/events"
    whole = served.client.get(path).json()
    assert len(whole["items"]) > 2
    assert whole["next_cursor"] is None
    seen: list[Any] = []
    cursor: str | None = None
    while True:
        body = served.client.get(path, params={"limit": 1} | ({"cursor": cursor} if cursor else {})).json()
        seen += body["items"]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert seen == whole["items"]
    problem_of(served.client.get(f"{path}?cursor=x"), 422, "bad_cursor")


@pytest.mark.rule("API-04", "API-02")
@pytest.mark.parametrize(
    "query", ["after=x", "after=-1", "after=%00", "colour=1", "after=99999999999999999999", "job_id=1"]
)
def test_a_place_that_no_stream_gave_is_refused(client: httpx2.Client, query: str) -> None:
    problem_of(client.get(f"/api/events?{query}"), 422)


def test_the_log_of_events_can_be_read_in_pages_too(served: Served) -> None:
    job = served.run_job("echo")
    accept = {"Accept": "application/json"}
    page = eventually(
        lambda: served.client.get("/api/events", params={"job_id": job["id"]}, headers=accept).json()["items"]
    )
    assert {event["job_id"] for event in page} == {job["id"]}


@pytest.mark.rule("API-04")
def test_a_followed_log_ends_with_the_run_and_goes_on_where_it_was_cut(served: Served) -> None:
    gate = unique("gate")
    job = served.submit("chat", {"lines": 20, "gate": gate})
    path = f"/api/jobs/{job['id']}/logs"
    first = take(served, path, 5, follow="true")
    open_gate(gate)
    rest = take(served, path, 1000, {"Last-Event-ID": first[-1]["id"]}, follow="true")
    lines = [json.loads(message["data"])["text"] for message in first + rest if message["event"] == "log"]
    assert lines == [f"line {number}" for number in range(20)] + ["last"]
    assert rest[-1]["event"] == "end"
    assert json.loads(rest[-1]["data"])["status"] == "COMPLETED"
    problem_of(served.client.get("/api/jobs/0190b5a0-0000-7000-8000-000000000000/logs?follow=true"), 404)
    problem_of(served.client.get(f"{path}?follow=yes"), 422)


@pytest.mark.rule("API-04")
def test_streams_end_when_the_server_shuts_down(serve: Serve) -> None:
    server = serve()
    job = server.submit("hold", {"gate": unique("never")})
    ended: list[str] = []
    began = threading.Barrier(3)

    def listen(path: str) -> None:
        with server.new_client() as own, own.stream("GET", path) as stream:
            lines = stream.iter_lines()
            next(lines)
            began.wait(10)
            for _ in lines:
                continue
            ended.append(path)

    paths = ["/api/events", f"/api/jobs/{job['id']}/logs?follow=true"]
    threads = [threading.Thread(target=listen, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    began.wait(10)

    async def begin_to_stop() -> None:
        server.server.begin_to_stop()

    server.run(begin_to_stop())
    for thread in threads:
        thread.join(10)
    assert sorted(ended) == sorted(paths)
    assert server.client.get("/healthz").status_code == 200
    problem_of(server.client.get("/readyz"), 503, "not_ready")


@pytest.mark.rule("API-04")
def test_many_listeners_see_the_same_and_a_deaf_one_costs_nothing(served: Served) -> None:
    count = 60
    begin = served.store.read_sync(latest_cursor)
    marker = [served.submit("echo", {"x": number}) for number in range(40)]
    job_ids = {job["id"] for job in marker}

    async def listen(reader: asyncio.StreamReader, enough: set[str]) -> list[str]:
        ids = []
        left = set(enough)
        while left:
            line = (await asyncio.wait_for(reader.readline(), 30)).decode()
            if line.startswith("id: "):
                ids.append(line[4:].strip())
            if line.startswith("data: ") and '"name":"run.ended"' in line:
                left.discard(json.loads(line[6:])["job_id"])
        return ids

    async def all_listen() -> list[list[str]]:
        port = served.server.port
        readers, writers = [], []
        # The last one asks for everything and never reads.
        for after in (*[begin] * count, 0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
            writer.write(f"GET /api/events?after={after} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            readers.append(reader)
            writers.append(writer)
        result = await asyncio.gather(*(listen(reader, job_ids) for reader in readers[:-1]))
        for writer in writers:
            writer.close()
        return list(result)

    for job in marker:
        served.wait_for(job["id"])
    began = time.monotonic()
    received = asyncio.run(all_listen())
    assert time.monotonic() - began < 30
    shortest = min(len(ids) for ids in received)
    assert len({tuple(ids[:shortest]) for ids in received}) == 1
