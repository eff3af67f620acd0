"""Logs of a job: page by page, or followed live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse

from holdbeat.api.context import ApiContext
from holdbeat.api.event_feed import HEARTBEAT_S, sse_text
from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Parameter, Routes
from holdbeat.api.stream_access import KEY_ID, while_admitted
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.operations import jobs
from holdbeat.schemas.base import Page
from holdbeat.schemas.jobs import LogLine
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.topics import Topic

routes = Routes("jobs")

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
POLL_S = 0.5


@routes.get(
    "/api/jobs/{id}/logs",
    answers={200: (Page[LogLine], EVENT_STREAM)},
    parameters=(
        Parameter("follow", "Stream lines as they are written, until the run has ended.", {"type": "boolean"}),
        Parameter(
            "after",
            "Only lines after this sequence number.",
            {"type": "integer", "minimum": 0, "maximum": jobs.LAST_LINE},
        ),
        Parameter(
            "limit",
            "How many lines at most.",
            {"type": "integer", "minimum": 1, "maximum": jobs.LOG_PAGE, "default": jobs.LOG_PAGE},
        ),
        Parameter("cursor", "`next_cursor` of the page before.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
        Parameter(
            "Last-Event-ID",
            "Where a stream that was cut off continues.",
            {"type": "string", "pattern": "^[0-9]{1,18}$"},
            place="header",
        ),
    ),
)
async def get_job_logs(request: ApiRequest) -> Response:
    """Read what a job's handler logged, or follow it live with `follow=true` (server-sent events)."""
    job_id = request.id("job")
    after = request.whole("after", 0, 0, jobs.LAST_LINE) or 0
    limit = request.whole("limit", None, 1, jobs.LOG_PAGE)
    cursor = request.text("cursor")
    if not request.flag("follow"):
        return answer(await request.run(jobs.get_logs, job_id, after=after, limit=limit, cursor=cursor))
    await request.context.store.read_for_client(load_job, job_id)
    last = request.header("last-event-id")
    if last is not None:
        if not (last.isascii() and last.isdigit() and len(last) < 19):
            raise Invalid(
                f"{last[:60]!r} is no id of a line of a log; continue from an id that the stream gave you, or leave "
                "it out.",
                code="invalid_cursor",
                field="Last-Event-ID",
            )
        after = int(last)
    elif cursor is not None:
        after = max(after, request.whole("cursor", 0, 0, jobs.LAST_LINE) or 0)
    return streamed(request, _follow(request.context, job_id, after))


def streamed(request: ApiRequest, messages: AsyncGenerator[bytes, None]) -> Response:
    """A stream of server-sent events, which ends when its reader loses access (SEC-02). A HEAD request starts none."""
    if request.is_head_only:
        return Response(None, 200, STREAM_HEADERS, EVENT_STREAM)
    limits, key_id = request.context.client_limits, request.request.scope[KEY_ID]
    limits.check_streams(key_id)
    admitted = limits.counted(key_id, while_admitted(request.context, request.request.scope, messages))
    return StreamingResponse(admitted, 200, STREAM_HEADERS, EVENT_STREAM)


async def _follow(context: ApiContext, job_id: str, after: int) -> AsyncGenerator[bytes, None]:
    """Lines as they are written, each once, until the log is whole."""
    woken = asyncio.Event()
    topics = {Topic.LOGS, Topic.READY, Topic.SLOTS, Topic.CANCEL}
    unsubscribe = context.store.on_topics(asyncio.get_running_loop(), topics, woken.set)
    silent_s = 0.0
    try:
        yield b": holdbeat log\n\n"
        while not context.feed.is_closed:
            woken.clear()
            try:
                job, lines = await context.store.read_for_client(jobs.job_and_lines, job_id, after, jobs.LOG_PAGE)
            except HoldbeatError:
                return
            if lines:
                after = lines[-1].sequence
                silent_s = 0.0
                yield b"".join(sse_text(str(line.sequence), "log", jobs.line_json(line)) for line in lines)
                continue
            if jobs.has_whole_log(job):
                yield sse_text(str(after), "end", {"status": job.status})
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await woken.wait()
            silent_s += POLL_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield b": still here\n\n"
    finally:
        unsubscribe()
