"""The state of the whole: figures, workers, job types, and the log of events as a stream."""

from __future__ import annotations

from starlette.responses import Response

from holdbeat.api.event_feed import BEGINNING
from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.logs import EVENT_STREAM, streamed
from holdbeat.api.routes import CURSOR, LIMIT, Parameter, Routes
from holdbeat.api.schemas.others import EventPage, JobTypePage, Stats, WorkerPage
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.views import event_json, worker_json
from holdbeat.store.queue.job_types import AnnouncedType, list_types
from holdbeat.store.reads.event_log import read_events
from holdbeat.store.reads.pagination import Cursors, Page
from holdbeat.store.reads.stats import stats
from holdbeat.store.running.workers import list_workers as list_
from holdbeat.store.transaction import Transaction

routes = Routes("state")


@routes.get("/api/stats", answers={200: Stats})
async def get_stats(call: ApiRequest) -> Response:
    """Read the state of jobs, resources, runs and workers in numbers."""
    return answer(await call.service.store.read(stats))


@routes.get(
    "/api/workers",
    answers={200: WorkerPage},
    parameters=(Parameter("all", "Also those that have ended or fallen silent.", {"type": "boolean"}), LIMIT, CURSOR),
)
async def list_workers(call: ApiRequest) -> Response:
    """List the workers that are alive."""
    page = await call.service.store.read(list_, has_ended_too=call.flag("all"), limit=call.limit, cursor=call.cursor)
    return answer({"items": [worker_json(each) for each in page.items], "next_cursor": page.next_cursor})


@routes.get("/api/job-types", answers={200: JobTypePage}, parameters=(LIMIT, CURSOR))
async def list_job_types(call: ApiRequest) -> Response:
    """List the job types that were announced, with the schemas of their params."""
    page = await call.service.store.read(_job_types, call.limit, call.cursor)
    items = [
        {
            "name": each.name,
            "description": each.description,
            "aliases": list(each.aliases),
            "schema": each.schema,
            "defaults": each.defaults,
            "announced_at": None if each.announced_at is None else iso(each.announced_at),
        }
        for each in page.items
    ]
    return answer({"items": items, "next_cursor": page.next_cursor})


def _job_types(tx: Transaction, limit: int, cursor: str | None) -> Page[AnnouncedType]:
    cursors = Cursors("job_types")
    last = cursors.read(cursor, str)
    # Sorted here: databases have orders of their own.
    found = sorted(list_types(tx), key=lambda each: each.name)
    left = [each for each in found if last is None or each.name > last[0]]
    items = left[:limit]
    return Page(items, cursors.write(items[-1].name) if len(left) > limit else None)


_CURSOR = {"type": "string", "pattern": "^[0-9]{1,19}(-[0-9]{1,19})?$"}


@routes.get(
    "/api/events",
    answers={200: (EventPage, EVENT_STREAM)},
    parameters=(
        Parameter(
            "after", "Go on after the event with this id; 0 for all that are kept, left out for new ones.", _CURSOR
        ),
        Parameter("name", "Only events of this name; several by repeating it.", {"type": "string"}, is_multiple=True),
        Parameter("job_id", "Only events of this job.", {"type": "string", "format": "uuid"}),
        LIMIT,
        Parameter("cursor", "`next_cursor` of the page before; the same as `after`.", _CURSOR),
        Parameter("Last-Event-ID", "Where a stream that was cut off goes on.", _CURSOR, place="header"),
    ),
)
async def stream_events(call: ApiRequest) -> Response:
    """Follow what the scheduler decides (server-sent events); with `Accept: application/json` a page of it.

    Each message carries an id. Who comes back with it, as Last-Event-ID or as `after`, misses and repeats nothing. The
    last page has no `next_cursor`: ask again after the id of its last item for what has come since.
    """
    if call.text("after") is not None and call.cursor is not None:
        raise Invalid("after and cursor mean the same; give one of them.", code="duplicate_parameter", field="cursor")
    after = call.header("last-event-id") or call.text("after") or call.cursor
    names = frozenset(call.texts("name")) or None
    job_id = call.id_filter("job_id")
    store = call.service.store
    start = None if after in (None, BEGINNING) else after
    if "application/json" in call.request.headers.get("accept", ""):
        found = await store.read(
            read_events, start, job_id=job_id, names=sorted(names) if names else None, limit=call.limit
        )
        following = found[-1].cursor if len(found) == call.limit else None
        return answer({"items": [event_json(each.event) for each in found], "next_cursor": following})
    # A place that the store would not understand is refused here, while there is still a status to refuse it with.
    await store.read(read_events, start, limit=1)
    return streamed(call, call.service.feed.listen(after, names=names, job_id=job_id))
