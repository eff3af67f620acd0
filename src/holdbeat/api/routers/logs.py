"""Logs of a job: page by page, or followed live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response, StreamingResponse

from holdbeat.api.context import ApiContext
from holdbeat.api.event_feed import HEARTBEAT_S, sse_text
from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Parameter, Routes
from holdbeat.api.schemas.jobs import LogPage
from holdbeat.api.stream_access import while_admitted
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.job import Job
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.running.run_output import LogLine, read_logs
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

routes = Routes("jobs")

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LOOK_S = 0.5
PAGE = 500
_LAST = 2**62


@routes.get(
    "/api/jobs/{id}/logs",
    answers={200: (LogPage, EVENT_STREAM)},
    parameters=(
        Parameter("follow", "Stream lines as they are written, until the run has ended.", {"type": "boolean"}),
        Parameter(
            "after", "Only lines after this sequence number.", {"type": "integer", "minimum": 0, "maximum": _LAST}
        ),
        Parameter(
            "limit", "How many lines at most.", {"type": "integer", "minimum": 1, "maximum": PAGE, "default": PAGE}
        ),
        Parameter("cursor", "`next_cursor` of the page before.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
        Parameter(
            "Last-Event-ID",
            "Where a stream that was cut off goes on.",
            {"type": "string", "pattern": "^[0-9]{1,18}$"},
            place="header",
        ),
    ),
)
async def get_job_logs(call: ApiRequest) -> Response:
    """Read what a job's handler logged, or follow it live with `follow=true` (server-sent events)."""
    job_id = call.id("job")
    after = call.whole("after", 0, 0, _LAST)
    after = max(after, call.whole("cursor", 0, 0, _LAST))
    limit = call.whole("limit", PAGE, 1, PAGE)
    store = call.service.store
    if call.flag("follow"):
        await store.read(load_job, job_id)
        last = call.header("last-event-id")
        if last is not None:
            if not (last.isascii() and last.isdigit() and len(last) < 19):
                raise Invalid(
                    f"{last[:60]!r} is no id of a line of a log; go on from an id that the stream gave you, or leave "
                    "it out.",
                    code="invalid_cursor",
                    field="Last-Event-ID",
                )
            after = int(last)
        return streamed(call, _follow(call.service, job_id, after))
    _, lines = await store.read(_read, job_id, after, limit)
    following = str(lines[-1].sequence) if len(lines) == limit else None
    return answer({"items": [_line_json(each) for each in lines], "next_cursor": following})


def streamed(call: ApiRequest, messages: AsyncGenerator[bytes, None]) -> Response:
    """A stream of server-sent events, for as long as who listens may (SEC-02); who asked for the head alone gets it,
    and nothing is begun."""
    if call.is_head_only:
        return Response(None, 200, STREAM_HEADERS, EVENT_STREAM)
    admitted = while_admitted(call.service, call.request.scope, messages)
    return StreamingResponse(admitted, 200, STREAM_HEADERS, EVENT_STREAM)


def _read(tx: Transaction, job_id: str, after: int, limit: int) -> tuple[Job, list[LogLine]]:
    job = load_job(tx, job_id)
    return job, read_logs(tx, job.run.id, after, limit) if job.run else []


def _line_json(logged: LogLine) -> dict[str, Any]:
    """One entry of the log; the line break at its end is what makes it one, and is not shown."""
    text = logged.text.removesuffix("\n")
    return {"sequence": logged.sequence, "at": iso(logged.at), "stream": logged.stream, "text": text}


async def _follow(service: ApiContext, job_id: str, after: int) -> AsyncGenerator[bytes, None]:
    """Lines as they come, each once. A run that has ended says nothing more: what it said was written before."""
    woken = asyncio.Event()
    topics = {Topic.LOGS, Topic.READY, Topic.SLOTS, Topic.CANCEL}
    unsubscribe = service.store.on_topics(asyncio.get_running_loop(), topics, woken.set)
    silent_s = 0.0
    try:
        yield b": holdbeat log\n\n"
        while not service.feed.is_closed:
            woken.clear()
            try:
                job, lines = await service.store.read(_read, job_id, after, PAGE)
            except HoldbeatError:
                return
            if lines:
                after = lines[-1].sequence
                silent_s = 0.0
                yield b"".join(sse_text(str(each.sequence), "log", _line_json(each)) for each in lines)
                continue
            if job.status.is_terminal and (job.run is None or job.run.status is not None):
                yield sse_text(str(after), "end", {"status": job.status})
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await woken.wait()
            silent_s += LOOK_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield b": still here\n\n"
    finally:
        unsubscribe()
