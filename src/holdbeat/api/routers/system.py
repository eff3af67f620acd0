"""Routes of figures, workers and job types, and the log of events as pages or as a stream."""

from __future__ import annotations

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.logs import EVENT_STREAM, streamed
from holdbeat.api.routes import LIMIT, Parameter, Routes
from holdbeat.domain.errors import Invalid
from holdbeat.operations import system
from holdbeat.operations.checks import check_id_filter
from holdbeat.schemas.base import Items, Page
from holdbeat.schemas.system import AttentionItem, Event, JobType, SeenRequest, Stats, Worker
from holdbeat.store.reads.event_log import read_events

routes = Routes("state")

routes.operation("GET", "/api/stats", system.stats, name="get_stats", answers={200: Stats})
routes.operation("GET", "/api/attention", system.list_attention, answers={200: Items[AttentionItem]})
routes.operation(
    "POST", "/api/attention/seen", system.mark_attention_seen, body=SeenRequest, body_optional=True,
    answers={200: Items[AttentionItem]},
)  # fmt: skip
routes.operation(
    "GET", "/api/workers", system.workers, name="list_workers", answers={200: Page[Worker]},
    parameters=(Parameter("all", "Also those that have ended or fallen silent.", {"type": "boolean"}),),
)  # fmt: skip
routes.operation("GET", "/api/job-types", system.job_types, name="list_job_types", answers={200: Page[JobType]})

_ID = {"type": "string", "format": "uuid"}
_INSTANT = {"type": "string", "format": "date-time"}
routes.operation(
    "GET", "/api/events/search", system.search_events, answers={200: Page[Event]},
    parameters=(
        Parameter("q", "A part of a name, an id, a job's title, a schedule's name or the data.", {"type": "string"}),
        Parameter("name", "Only events of this name; several by repeating it.", {"type": "string"}, is_multiple=True),
        Parameter("actor", "A part of the name of who acted.", {"type": "string"}),
        Parameter("job_id", "Only events of this job.", _ID),
        Parameter("schedule_id", "Only events of this schedule.", _ID),
        Parameter("worker_id", "Only events of this worker.", {"type": "string"}),
        Parameter("since", "Only events from this instant on.", _INSTANT),
        Parameter("until", "Only events before this instant.", _INSTANT),
    ),
)  # fmt: skip

_CURSOR = {"type": "string", "pattern": "^[0-9]{1,19}(-[0-9]{1,19})?$"}


@routes.get(
    "/api/events",
    answers={200: (Page[Event], EVENT_STREAM)},
    parameters=(
        Parameter("after", "Only events after this id; 0 for all that are kept, left out for new ones.", _CURSOR),
        Parameter("name", "Only events of this name; several by repeating it.", {"type": "string"}, is_multiple=True),
        Parameter("job_id", "Only events of this job.", {"type": "string", "format": "uuid"}),
        LIMIT,
        Parameter("cursor", "`next_cursor` of the page before; the same as `after`.", _CURSOR),
        Parameter("Last-Event-ID", "Where a stream that was cut off continues.", _CURSOR, place="header"),
    ),
)
async def stream_events(request: ApiRequest) -> Response:
    """Follow what the scheduler decides (server-sent events); with `Accept: application/json` a page of it.

    Each message carries an id. Who comes back with it, as Last-Event-ID or as `after`, misses and repeats nothing. The
    last page has no `next_cursor`: ask again after the id of its last item for what has come since.
    """
    cursor = request.text("cursor")
    if request.text("after") is not None and cursor is not None:
        raise Invalid("after and cursor mean the same; give one of them.", code="duplicate_parameter", field="cursor")
    after = request.header("last-event-id") or request.text("after") or cursor
    names = frozenset(request.texts("name")) or None
    job_id = check_id_filter(request.text("job_id"), "job_id")
    if "application/json" in request.request.headers.get("accept", ""):
        limit = request.whole("limit", None, 1, 500)
        return answer(
            await request.run(system.list_events, after=after, name=names and sorted(names), job_id=job_id, limit=limit)
        )
    # A place that the store would not understand is refused here, while there is still a status to refuse it with.
    await request.context.store.read_for_client(read_events, system.place_of(after), limit=1)
    return streamed(request, request.context.feed.listen(after, names=names, job_id=job_id))
