"""What the page of the queue reads: what runs now, what waits in which order, and what waits for a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.estimate import Execution, estimated_start
from holdbeat.domain.views import job_json, reservation_json
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.estimates import mean_durations
from holdbeat.store.reads.needs_attention import SlotHolder, occupants
from holdbeat.store.reads.queue_view import QueueEntry, queue
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.running.reservations import waiting_line
from holdbeat.store.transaction import Transaction
from holdbeat.web.request import Ask

RUNNING_SHOWN = 12
SOON_S = 1.5
REASONS = {
    Blocker.DELAYED: "delayed",
    Blocker.GROUP_PREDECESSOR: "an earlier job of its group must end first",
    Blocker.OVERLAP: "the previous job of its schedule must end first",
    Blocker.UPSTREAM: "a job that it comes after must end first",
    Blocker.WAITING: "waits for what its handler asked for",
    Blocker.PAUSED: "paused",
    Blocker.RESOURCE_FULL: "all slots are in use",
    Blocker.RATE_LIMITED: "its rate permits no start yet",
    Blocker.THROTTLED: "who it calls asked to wait",
    Blocker.POLICY: "the program's policy does not permit it",
    Blocker.RESERVATION_WAITING: "a direct request, a borrowed slot or a gate goes first",
    Blocker.NO_WORKER: "no worker for this type",
    Blocker.WORKERS_BUSY: "all workers are busy",
}
_UNKNOWN = frozenset(
    {
        Blocker.GROUP_PREDECESSOR, Blocker.OVERLAP, Blocker.UPSTREAM, Blocker.WAITING, Blocker.PAUSED,
        Blocker.NO_WORKER,
    }
)  # fmt: skip
"""What keeps a job for a time that nobody can tell."""


def read_queue(tx: Transaction, ask: Ask) -> dict[str, Any]:
    resource = ask.text("resource")
    page = queue(tx, resource, limit=100, cursor=ask.text("cursor"))
    pauses = {pause.resource: pause for pause in list_pauses(tx)}
    figures = resource_stats(tx)
    for name in pauses:
        if name is not None and name not in figures:
            figures[name] = {"slots": None, "used": 0, "waiting": 0, "oldest_wait_s": None}
    running = occupants(tx)
    state = Blockers(tx)
    ready = [entry for entry in page.items if Blocker.DELAYED not in entry.blocked_by]
    delayed = [entry for entry in page.items if Blocker.DELAYED in entry.blocked_by]
    # Only the first page knows who is ahead of its first job.
    starts = {} if ask.text("cursor") else _starts(tx, ready, running)
    return {
        "resource": resource,
        "soon": tx.now + timedelta(seconds=SOON_S),
        "entries": [_row(entry, starts.get(entry.job.id), state) for entry in ready],
        "delayed": [
            _row(entry, entry.job.not_before, state)
            for entry in sorted(delayed, key=lambda entry: entry.job.not_before or tx.now)
        ],
        "running": [holder for holder in running if resource in (None, holder.resource)],
        "running_shown": RUNNING_SHOWN,
        "next_cursor": page.next_cursor,
        "pauses": pauses,
        "resources": figures,
        "direct": [reservation_json(holder) for holder in waiting_line(tx)[:20]],
    }


def _row(entry: QueueEntry, starts_at: datetime | None, state: Blockers) -> dict[str, Any]:
    names = {code: state.limit_of(entry.job, code) for code in entry.blocked_by}
    return {
        "job": job_json(entry.job),
        "blocked_by": [
            (str(code), REASONS[code] + (f" (limit {name})" if name else "")) for code, name in names.items()
        ],
        "starts_at": starts_at,
    }


def _starts(
    tx: Transaction, entries: Sequence[QueueEntry], running: Sequence[SlotHolder]
) -> dict[str, datetime | None]:
    """When each job of the list will probably start, if those before it take as long as their types usually do."""
    limits = limits_in_force(tx)
    means = mean_durations(tx, {entry.job.type for entry in entries} | {holder.type for holder in running})
    worker_slots = sum(worker.slots for worker in live_workers(tx) if worker.stopping_at is None)
    executing: dict[str, list[Execution]] = {}
    for holder in running:
        executing.setdefault(holder.resource, []).append(Execution(holder.type, holder.since))
    ahead: dict[str, list[str]] = {}
    starts: dict[str, datetime | None] = {}
    for entry in entries:
        job = entry.job
        line = ahead.setdefault(job.resource, [])
        if not _UNKNOWN & set(entry.blocked_by):
            limit = limits.slots_of(job.resource, job.type)
            start = estimated_start(
                tx.now,
                slots=worker_slots if limit is None else limit,
                running=executing.get(job.resource, ()),
                ahead=line,
                mean_s=means,
            )
            # A job that another limit keeps from a free slot does not start now; nobody can tell when.
            is_full = len(executing.get(job.resource, ())) >= (worker_slots if limit is None else limit)
            is_kept = (
                Blocker.RESOURCE_FULL in entry.blocked_by and not is_full and start is not None and start <= tx.now
            )
            starts[job.id] = None if is_kept else start
            line.append(job.type)
    return starts
