"""The client library against a live server, and against the network's worst days."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import Iterator
from operator import attrgetter

import httpx2
import pytest
from opentelemetry import trace

from holdbeat import AsyncClient, Client
from holdbeat.client import ProblemError
from holdbeat.client.messages import COMMENT, MessageReader
from holdbeat.domain.errors import HoldbeatError, Unavailable
from tests.cli.conftest import Server


def test_a_method_is_a_coroutine_function_of_one_client_and_a_plain_function_of_the_other() -> None:
    one, other = AsyncClient("http://server"), Client("http://server")
    for name in ("submit_job", "get_job", "list_webhooks", "schedules.pause", "endpoints.health"):
        assert inspect.iscoroutinefunction(attrgetter(name)(one)), name
        assert not inspect.iscoroutinefunction(attrgetter(name)(other)), name
        assert inspect.signature(attrgetter(name)(one)) == inspect.signature(attrgetter(name)(other)), name
    for name in {name for name in dir(AsyncClient) if not name.startswith("_")} - {"schedules", "endpoints"}:
        method, plain = getattr(one, name), getattr(other, name)
        assert not inspect.iscoroutinefunction(inspect.unwrap(plain)), name
        assert inspect.signature(method).parameters == inspect.signature(plain).parameters, name
        assert method.__doc__ == plain.__doc__ and method.__name__ == plain.__name__, name
    with pytest.raises(TypeError, match=r"get_job.* missing 1 required positional argument: 'job_id'"):
        other.get_job()  # type: ignore[call-arg]
    other.close()


def test_both_clients_submit_wait_and_follow(server: Server) -> None:
    with Client(server.url) as client:
        job = client.submit("story", {"prompt": "x"}, priority=3)
        done = client.wait_job(job["id"], timeout_s=60)
        assert done["status"] == "COMPLETED" and done["run"] is not None and done["run"]["result"] == {"text": "x x x"}
        assert [line["text"] for line in client.follow_logs(job["id"])] == ["about x", "done"]
        assert json.loads(client.get_artifact(done["run"]["id"], "result")) == {"text": "x x x"}
        events = client.events(after="0", job_id=job["id"])
        assert next(events)["job_id"] == job["id"]
        events.close()
        assert client.stats()["jobs"]["COMPLETED"] >= 1 and client.health() == {"status": "ok"}
        assert client.readiness()["ready"] and "holdbeat_" in client.metrics()

    async def other() -> None:
        async with AsyncClient(server.url) as client:
            first, second = await asyncio.gather(client.submit("story"), client.submit("broken"))
            ended = await asyncio.gather(*[client.wait_job(job["id"], timeout_s=60) for job in (first, second)])
            assert [job["status"] for job in ended] == ["COMPLETED", "FAILED"]
            lines = [line["text"] async for line in client.follow_logs(first["id"])]
            assert lines == ["about a fox", "done"]

    asyncio.run(other())


def test_the_blocking_client_works_where_an_event_loop_runs() -> None:
    text = b'id: 1\nevent: log\ndata: {"sequence": 1}\n\nid: 2\nevent: log\ndata: {"sequence": 2}\n\n'

    def handler(request: httpx2.Request) -> httpx2.Response:
        is_stream = request.url.path.endswith("/logs")
        return httpx2.Response(200, content=iter([text])) if is_stream else httpx2.Response(200, json=JOB)

    async def work() -> None:
        with client_of(httpx2.MockTransport(handler)) as client:
            assert client.get_job("j")["id"] == "j"
            lines = client.follow_logs("j")
            assert next(lines)["sequence"] == 1
            lines.close()
            assert list(lines) == []

    asyncio.run(work())


def test_every_noun_of_the_api_can_be_reached(server: Server) -> None:
    with Client(server.url) as client:
        jobs = client.submit_jobs([{"type": "story"}, {"type": "story"}])["items"]
        assert len({job["id"] for job in jobs}) == 2
        later = client.submit("story", not_before="2999-01-01T00:00:00Z")
        assert client.update_job(later["id"], {"priority": 5})["priority"] == 5
        assert client.move_job(later["id"], to="top")["id"] == later["id"]
        assert client.reorder_queue([later["id"]])["items"][0]["id"] == later["id"]
        assert client.explain_job(later["id"])["state"] == "QUEUED"
        assert client.cancel_job(later["id"], "enough")["status"] == "CANCELLED"
        assert client.retry_job_runs({"ids": [later["id"]]}, dry_run=True)["matched"] == 1
        assert client.cancel_jobs({"ids": [later["id"]]}, dry_run=True)["changed"] == 0
        assert client.get_queue(resource="default")["next_cursor"] is None
        assert client.pause_queue("unused", reason="r")["paused"] and client.resume_queue("unused")["paused"] == []
        group = client.create_group({"mode": "parallel", "jobs": [{"type": "story"}]})
        assert client.get_group(group["id"])["jobs"] and client.list_groups(limit=1)["items"]
        template = client.create_template({"name": "a/b ü", "type": "story"})
        assert client.get_template(template["id"])["name"] == "a/b ü"
        assert client.update_template(template["id"], {"priority": 1}, version=1)["version"] == 2
        with pytest.raises(ProblemError) as stale:
            client.update_template(template["id"], {"priority": 2}, version=1)
        assert stale.value.status == 412
        assert client.archive_template(template["id"])["archived_at"]
        assert client.list_job_runs(status="COMPLETED", limit=1)["items"]
        hook = client.create_webhook("https://example.org/", events=["job.run.failed"])
        assert client.update_webhook(hook["id"], {"enabled": False})["enabled"] is False
        assert client.rotate_webhook(hook["id"])["secret"] != hook["secret"]
        client.delete_webhook(hook["id"])
        assert client.list_deliveries(limit=1)["items"] == [] and client.workers()["items"]
        assert client.direct("story", {"words": 1})["result"] == {"text": "a fox"}
        request = client.list_reservations(limit=1)["items"][0]
        assert (request["outcome"], request["estimated_start"]) == ("COMPLETED", None)
        assert client.explain_reservation(request["id"])["state"] == "RELEASED"
        own = client.webhook_secret()
        assert client.rotate_webhook_secret()["previous_secret"] == own["secret"]
        assert client.job_events(jobs[0]["id"], limit=1)["next_cursor"]
        assert {item["name"] for item in client.job_types()["items"]} >= {"story", "broken", "http"}
        assert client.list_events(after="0", limit=2)["next_cursor"]
        made = client.schedules.create({"name": "by client", "type": "story", "interval_s": 3600})
        assert client.schedules.pause("by client", reason="r")["paused_indefinitely"]
        assert client.schedules.resume(made["id"])["paused_until"] is None
        assert client.schedules.trigger("by client")["schedule_id"] == made["id"]
        assert client.schedules.occurrences("by client")["items"][0]["status"] == "manual"
        assert client.schedules.explain("by client")["state"]
        client.schedules.delete("by client")
        shop = client.endpoints.create({"name": "shop", "url": "http://127.0.0.1:1/", "interval_s": 3600})
        assert client.endpoints.hint(shop["id"], interval_s=60)["hint_interval_s"] == 60
        assert client.endpoints.test("shop")["ok"] is False
        assert client.endpoints.health("shop")["failure_count"] == 0
        client.endpoints.delete("shop")


def test_a_refusal_is_the_server_s_own_sentence_and_code(server: Server) -> None:
    with Client(server.url) as client, pytest.raises(ProblemError, match="Did you mean story") as refused:
        client.submit("stroy")
    error = refused.value
    assert isinstance(error, HoldbeatError)
    assert (error.status, error.code, error.field) == (422, "unknown_type", "type")
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.code, again.detail) == (error.status, error.code, error.detail)


def test_waiting_ends_at_its_timeout_and_the_job_goes_on(server: Server) -> None:
    with Client(server.url) as client:
        job = client.submit("slow")
        with pytest.raises(TimeoutError):
            client.wait_job(job["id"], timeout_s=0.3)
        assert client.cancel_job(job["id"])["status"] in ("RUNNING", "QUEUED", "CANCELLED")


# --- the network's worst days -----------------------------------------------------------------------------

JOB = {"id": "j", "status": "COMPLETED", "retried_by": None}


def client_of(handler: httpx2.MockTransport, **options: object) -> Client:
    return Client("http://server", transport=handler, **options)  # type: ignore[arg-type]


def test_a_submission_whose_answer_was_lost_is_sent_again_under_the_same_key() -> None:
    keys: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx2.ReadError("cut off")
        return httpx2.Response(201, json=JOB)

    with client_of(httpx2.MockTransport(handler)) as client:
        assert client.submit("story")["id"] == "j"
        client.submit("story")
    assert len(keys) == 4 and len(set(keys[:3])) == 1 and keys[3] != keys[0]


def test_a_retry_or_cancel_whose_answer_was_lost_is_not_sent_again() -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.path)
        raise httpx2.ReadError("cut off")

    with client_of(httpx2.MockTransport(handler)) as client:
        for call in (client.retry_job, client.cancel_job):
            with pytest.raises(Unavailable, match="cannot be reached"):
                call("j")
    assert len(seen) == 2


def test_what_never_reached_the_server_or_was_put_off_is_sent_again() -> None:
    answers: Iterator[Exception | httpx2.Response] = iter(
        [
            httpx2.ConnectError("refused"),
            httpx2.Response(503, headers={"Retry-After": "0"}, json={"detail": "busy", "code": "store_busy"}),
            httpx2.Response(200, json=JOB),
        ]
    )

    def handler(request: httpx2.Request) -> httpx2.Response:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with client_of(httpx2.MockTransport(handler)) as client:
        assert client.cancel_job("j")["id"] == "j"


@pytest.mark.rule("DIR-04", "DIR-06")
@pytest.mark.parametrize("code", ["no_worker", "interrupted"])
def test_a_refusal_that_waiting_does_not_change_is_told_at_once(code: str) -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.path)
        return httpx2.Response(503, headers={"Retry-After": "1"}, json={"detail": "Nobody is there.", "code": code})

    with client_of(httpx2.MockTransport(handler)) as client, pytest.raises(ProblemError, match="Nobody"):
        client.direct("story")
    assert len(seen) == 1


def test_a_server_that_stays_away_is_unavailable_and_one_that_is_none_is_a_problem() -> None:
    def busy(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503, json={"detail": "Not ready.", "code": "not_ready"})

    def other(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(502, text="<html>proxy</html>")

    with client_of(httpx2.MockTransport(busy)) as client, pytest.raises(ProblemError, match="Not ready"):
        client.stats()
    with client_of(httpx2.MockTransport(other)) as client, pytest.raises(ProblemError, match="is this address"):
        client.stats()


@pytest.mark.rule("API-04")
def test_a_stream_that_was_cut_off_goes_on_after_the_last_event_seen() -> None:
    asked: list[str | None] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("last-event-id"))
        number = len(asked)
        text = f': hello\n\nid: {number}\nevent: log\ndata: {{"sequence": {number}, "text": "a\u2028b"}}\n\n'
        if number == 3:
            text += "id: 3\nevent: end\ndata: {}\n\n"
        else:
            text += f"id: {number + 1}\nevent: log\ndata: " + '{"half": '
        return httpx2.Response(200, content=iter([text.encode()]))

    with client_of(httpx2.MockTransport(handler)) as client:
        lines = list(client.follow_logs("j"))
    assert [line["sequence"] for line in lines] == [1, 2, 3] and lines[0]["text"] == "a\u2028b"
    assert asked == [None, "1", "2"]


def test_messages_are_the_same_however_the_bytes_are_cut() -> None:
    text = ': hi\r\n\r\n: here\nid: 6\n\nid: 7\nevent: x\ndata: {"a":\ndata: "\u2028é"}\n\ndata: 1\n\n'.encode()
    whole = MessageReader().feed(text)
    reader = MessageReader()
    assert [message for byte in text for message in reader.feed(bytes([byte]))] == whole
    assert [(m.event, m.id, m.data) for m in whole] == [
        (COMMENT, None, "hi"),
        (COMMENT, "6", "here"),
        ("x", "7", {"a": "\u2028é"}),
        ("message", "7", 1),
    ]


def test_the_clients_take_server_and_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDBEAT_SERVER", "http://elsewhere:1/")
    monkeypatch.setenv("HOLDBEAT_KEY", "hb_x")
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={})

    with Client(transport=httpx2.MockTransport(handler)) as client:
        client.get_template("../a b/ü")
    assert str(seen[0].url) == "http://elsewhere:1/api/job-templates/..%2Fa%20b%2F%C3%BC"
    assert seen[0].headers["authorization"] == "Bearer hb_x"


@pytest.mark.rule("OPS-05")
def test_a_request_made_within_a_span_names_it_and_one_without_names_none() -> None:
    seen: list[str | None] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("traceparent"))
        return httpx2.Response(201, json={"id": "x"})

    span = trace.NonRecordingSpan(trace.SpanContext(0xA, 0xB, is_remote=False, trace_flags=trace.TraceFlags(1)))
    with client_of(httpx2.MockTransport(handler)) as client:
        client.submit("story")
        with trace.use_span(span):
            client.submit("story")
    assert seen == [None, f"00-{0xA:032x}-{0xB:016x}-01"]


@pytest.mark.rule("OPS-05")
def test_a_client_is_given_the_traceparent_of_a_program_that_is_in_no_span() -> None:
    seen: list[str | None] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("traceparent"))
        return httpx2.Response(201, json={"id": "x"})

    given = f"00-{0xC:032x}-{0xD:016x}-01"
    span = trace.NonRecordingSpan(trace.SpanContext(0xA, 0xB, is_remote=False, trace_flags=trace.TraceFlags(1)))
    with client_of(httpx2.MockTransport(handler), traceparent=given) as client:
        client.submit("story")
        with trace.use_span(span):
            client.submit("story")
    assert seen == [given, f"00-{0xA:032x}-{0xB:016x}-01"]
