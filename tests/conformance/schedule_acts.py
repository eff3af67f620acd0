"""What tests do with Schedules, in words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.schedule import Schedule
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.fire_due import Firing, fire_due
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.list_jobs import list_jobs
from holdbeat.store.schedules.occurrences import list_occurrences
from holdbeat.store.schedules.schedules import create_schedule, get_schedule
from tests.conformance.acts import TYPES, instant, rows


def announce_types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType(name) for name in TYPES])


def make(store: PersistenceAdapter, name: str = "s", **fields: Any) -> Schedule:
    """A schedule of the type `noop`, every minute unless told otherwise."""
    announce_types(store)
    body: dict[str, Any] = {"name": name, **fields}
    if "template" not in body:
        body.setdefault("type", "noop")
    if "cron" not in body:
        body.setdefault("interval_s", 60)
    return store.write_sync(create_schedule, body)


def make_adaptive(store: PersistenceAdapter, name: str = "s", **fields: Any) -> Schedule:
    """An adaptive one without retries, so that its chain ends with its run."""
    return make(store, name, adaptive=True, **{"retry_policy": {"max_attempts": 0}, **fields})


def make_endpoint(store: PersistenceAdapter, name: str = "e", **fields: Any) -> Schedule:
    announce_types(store)
    body = {"name": name, "url": "http://127.0.0.1:9/", "interval_s": 60, **fields}
    return store.write_sync(create_schedule, body, endpoint=True)


def fire(store: PersistenceAdapter, limit: int = 500) -> Firing:
    return store.write_sync(fire_due, limit)


def fire_all(store: PersistenceAdapter, limit: int = 500) -> int:
    """Fires until nothing is due any more; how many jobs that made."""
    fired = 0
    while (firing := fire(store, limit)).judged:
        fired += firing.fired
    return fired


def seen(store: PersistenceAdapter, reference: str) -> Schedule:
    return store.read_sync(get_schedule, reference)


def wake_at(store: PersistenceAdapter, schedule: Schedule) -> datetime | None:
    return instant(store, rows(store, "SELECT wake_at FROM schedules WHERE id = :id", id=schedule.id)[0][0])


def occurrences(store: PersistenceAdapter, schedule: Schedule) -> list[Occurrence]:
    """All of them, oldest first."""
    collected: list[Occurrence] = []
    cursor = None
    while True:
        page = store.read_sync(list_occurrences, schedule.id, limit=500, cursor=cursor)
        collected += page.items
        cursor = page.next_cursor
        if cursor is None:
            return collected[::-1]


def verdicts(store: PersistenceAdapter, schedule: Schedule) -> list[tuple[str, str]]:
    """(due time, status) of each, oldest first."""
    return [(iso(occurrence.due_at), occurrence.status.value) for occurrence in occurrences(store, schedule)]


def jobs_of(store: PersistenceAdapter, schedule: Schedule) -> list[Job]:
    """The jobs that it ever made, oldest first."""
    return store.read_sync(list_jobs, {"schedule_id": schedule.id}, limit=500).items[::-1]


def assert_each_due_time_once(store: PersistenceAdapter) -> None:
    """Every due time has one Occurrence, and every fired one exactly one Job of its own."""
    assert rows(store, "SELECT schedule_id FROM occurrences GROUP BY schedule_id, due_at HAVING count(*) > 1") == []
    fired = rows(
        store,
        "SELECT o.schedule_id, o.due_at, o.job_id FROM occurrences o WHERE o.status IN ('fired', 'manual')",
    )
    jobs = rows(
        store, "SELECT schedule_id, scheduled_for, id FROM jobs WHERE schedule_id IS NOT NULL AND retry_of IS NULL"
    )
    assert sorted(map(str, fired)) == sorted(map(str, jobs))
    assert rows(store, "SELECT 1 FROM occurrences WHERE job_id IS NOT NULL AND status NOT IN ('fired', 'manual')") == []
