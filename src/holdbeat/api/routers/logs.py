"""Logs and output of jobs and direct requests: page by page, or followed live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse

from holdbeat.api.context import ApiContext
from holdbeat.api.event_feed import HEARTBEAT_S, sse_text
from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Endpoint, Parameter, Routes
from holdbeat.api.stream_access import KEY_ID, while_admitted
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.operations import output
from holdbeat.operations.operation import Operation
from holdbeat.schemas.base import Page
from holdbeat.schemas.jobs import LogLine
from holdbeat.schemas.system import Chunk
from holdbeat.store.reads.ids import Noun
from holdbeat.store.topics import Topic

routes = Routes("jobs")

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
POLL_S = 0.5


PARAMETERS = (
    Parameter("follow", "Stream it as it is written, until the run has ended.", {"type": "boolean"}),
    Parameter(
        "after",
        "Only what comes after this sequence number.",
        {"type": "integer", "minimum": 0, "maximum": output.LAST_LINE},
    ),
    Parameter(
        "limit",
        "How many at most.",
        {"type": "integer", "minimum": 1, "maximum": output.LOG_PAGE, "default": output.LOG_PAGE},
    ),
    Parameter("cursor", "`next_cursor` of the page before.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
    Parameter(
        "Last-Event-ID",
        "Where a stream that was cut off continues.",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
        place="header",
    ),
)


def _reading(operation: Operation, read: output.ReadOutput, noun: Noun, *, emitted: bool) -> Endpoint:
    """Serves an output: pages of it, or all of it as it is written."""

    async def serve(request: ApiRequest) -> Response:
        id_ = await request.id(noun)
        after = request.whole("after", 0, 0, output.LAST_LINE) or 0
        limit = request.whole("limit", None, 1, output.LOG_PAGE)
        cursor = request.text("cursor")
        if not request.flag("follow"):
            return answer(await request.run(operation, id_, after=after, limit=limit, cursor=cursor))
        await request.context.store.read_for_client(read, id_, after, 1, emitted)
        last = request.header("last-event-id")
        if last is not None:
            if not (last.isascii() and last.isdigit() and len(last) < 19):
                raise Invalid(
                    f"{last[:60]!r} is no id of this stream; continue from an id that the stream gave you, or leave "
                    "it out.",
                    code="invalid_cursor",
                    field="Last-Event-ID",
                )
            after = int(last)
        elif cursor is not None:
            after = max(after, request.whole("cursor", 0, 0, output.LAST_LINE) or 0)
        return streamed(request, _follow(request.context, read, id_, after, emitted))

    serve.__name__ = f"get_job_{operation.__name__[4:]}" if noun == "job" else operation.__name__
    serve.__doc__ = f"{(operation.__doc__ or '')[:-1]}, or follow it live with `follow=true` (server-sent events)."
    return serve


_noun: Noun
for _noun, _path, _logs, _chunks, _read in (
    ("job", "/api/jobs/{id}", output.get_logs, output.get_chunks, output.job_output),
    (
        "reservation",
        "/api/reservations/{id}",
        output.get_reservation_logs,
        output.get_reservation_chunks,
        output.reservation_output,
    ),
):
    routes.get(f"{_path}/logs", answers={200: (Page[LogLine], EVENT_STREAM)}, parameters=PARAMETERS)(
        _reading(_logs, _read, _noun, emitted=False)
    )
    routes.get(f"{_path}/chunks", answers={200: (Page[Chunk], EVENT_STREAM)}, parameters=PARAMETERS)(
        _reading(_chunks, _read, _noun, emitted=True)
    )


def streamed(request: ApiRequest, messages: AsyncGenerator[bytes, None]) -> Response:
    """A stream of server-sent events, which ends when its reader loses access (SEC-02). A HEAD request starts none."""
    if request.is_head_only:
        return Response(None, 200, STREAM_HEADERS, EVENT_STREAM)
    limits, key_id = request.context.client_limits, request.request.scope[KEY_ID]
    limits.check_streams(key_id)
    admitted = limits.counted(key_id, while_admitted(request.context, request.request.scope, messages))
    return StreamingResponse(admitted, 200, STREAM_HEADERS, EVENT_STREAM)


async def _follow(
    context: ApiContext, read: output.ReadOutput, id_: str, after: int, emitted: bool
) -> AsyncGenerator[bytes, None]:
    """Entries as they are written, each once, until the output is whole."""
    name, form = ("chunk", output.chunk_json) if emitted else ("log", output.line_json)
    woken = asyncio.Event()
    topics = {Topic.LOGS, Topic.READY, Topic.SLOTS, Topic.CANCEL, Topic.DIRECT}
    unsubscribe = context.store.on_topics(asyncio.get_running_loop(), topics, woken.set)
    silent_s = 0.0
    try:
        yield f": holdbeat {name}\n\n".encode()
        while not context.feed.is_closed:
            woken.clear()
            try:
                part = await context.store.read_for_client(read, id_, after, output.LOG_PAGE, emitted)
            except HoldbeatError:
                return
            if part.lines:
                after = part.lines[-1].sequence
                silent_s = 0.0
                yield b"".join(sse_text(str(line.sequence), name, form(line)) for line in part.lines)
                continue
            if part.is_whole:
                yield sse_text(str(after), "end", {"status": part.status})
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
