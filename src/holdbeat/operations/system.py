"""Operations that read the state of the whole: figures, workers, job types, events, and what needs attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.attention import AttentionItem
from holdbeat.domain.bounds import check_instant, check_line
from holdbeat.domain.views import event_json, form
from holdbeat.operations.checks import check_id_filter, check_texts, page_json
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas import system as schemas
from holdbeat.store.attention import mark_seen, read_attention
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.reads.event_log import read_events
from holdbeat.store.reads.find_events import EventSearch, find_events
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.reads.stats import stats as read_stats
from holdbeat.store.reads.workers import list_workers
from holdbeat.store.transaction import Transaction

BEGINNING = "0"
"""The cursor before every event, on any store."""


@reads
def stats(tx: Transaction, context: OperationContext) -> Any:
    """Read counts of jobs, resources, runs and workers."""
    return read_stats(tx)


@reads
def workers(
    tx: Transaction,
    context: OperationContext,
    *,
    all: bool | None = None,
    limit: int | None = 500,
    cursor: str | None = None,
) -> Any:
    """List the workers that are alive."""
    page = list_workers(tx, has_ended_too=bool(all), limit=limit, cursor=cursor)
    return page_json(page, lambda worker: form(worker, schemas.Worker))


@reads
def job_types(tx: Transaction, context: OperationContext, *, limit: int | None = 500, cursor: str | None = None) -> Any:
    """List the job types that were announced, with the schemas of their params."""
    count = check_limit(limit)
    cursors = Cursors("job_types")
    last = cursors.read(cursor, str)
    # Sorted here: databases have orders of their own.
    types = sorted(list_types(tx), key=lambda announced: announced.name)
    types_after = [announced for announced in types if last is None or announced.name > last[0]]
    page = types_after[:count]
    following = cursors.write(page[-1].name) if len(types_after) > count else None
    return page_json(Page(page, following), lambda announced: form(announced, schemas.JobType))


@reads
def list_events(
    tx: Transaction,
    context: OperationContext,
    *,
    after: str | None = None,
    name: Sequence[str] | None = None,
    job_id: str | None = None,
    limit: int | None = None,
) -> Any:
    """List events, the oldest first."""
    count = check_limit(limit)
    names = sorted(set(name)) if name else None
    events = read_events(tx, place_of(after), job_id=check_id_filter(job_id, "job_id"), names=names, limit=count)
    next_cursor = events[-1].cursor if len(events) == count else None
    return {"items": [event_json(logged.event) for logged in events], "next_cursor": next_cursor}


@reads
def search_events(
    tx: Transaction,
    context: OperationContext,
    *,
    q: str | None = None,
    name: Sequence[str] | None = None,
    actor: str | None = None,
    job_id: str | None = None,
    schedule_id: str | None = None,
    worker_id: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """Find events by text, name, actor, job, schedule, worker or time, the newest first.

    The text is looked for in names, ids, titles of jobs and data. A page may be short and still have a next_cursor:
    each looks at a part of the log.
    """
    count = check_limit(limit)
    search = EventSearch(
        text=None if not q else check_line(q, "q", 200),
        names=sorted(set(name)) if name else None,
        actor=None if not actor else check_line(actor, "actor"),
        job_id=check_id_filter(job_id, "job_id"),
        schedule_id=check_id_filter(schedule_id, "schedule_id"),
        worker_id=worker_id,
        since=None if since is None else check_instant(since, "since"),
        until=None if until is None else check_instant(until, "until"),
    )
    cursors = Cursors("events", dataclasses.asdict(search))
    last = cursors.read(cursor, int)
    page = find_events(tx, search, before=last[0] if last else None, limit=count)
    return {
        "items": [event_json(event) for event in page.events],
        "next_cursor": None if page.following is None else cursors.write(page.following),
    }


def place_of(after: str | None) -> str | None:
    """Where to start reading, as the event log takes it."""
    return None if after == BEGINNING else after


@reads
def list_attention(tx: Transaction, context: OperationContext) -> Any:
    """List what needs attention, the worst first, with since when and what to do."""
    return {"items": [item_json(item) for item in read_attention(tx)]}


@writes
def mark_attention_seen(tx: Transaction, context: OperationContext, name: str | None = None) -> Any:
    """Mark operational events as seen, of one name or all. States stay until they are repaired."""
    mark_seen(tx, None if name is None else check_texts([name], "name", "names", 1)[0])
    return {"items": [item_json(item) for item in read_attention(tx)]}


def item_json(item: AttentionItem) -> dict[str, Any]:
    return form(item, schemas.AttentionItem)
