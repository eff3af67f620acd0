"""Reads for the page of the queue: running jobs, waiting jobs in their order, and jobs that wait for a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.estimate import Ahead, Execution, estimated_start
from holdbeat.domain.job import Job
from holdbeat.domain.views import job_json, reservation_json
from holdbeat.domain.waits import WaitKind
from holdbeat.observe.wording import REASONS, listed
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.rates import instant_of
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.estimates import mean_durations
from holdbeat.store.reads.lease_holders import SlotHolder, leases_held, slot_holders
from holdbeat.store.reads.queue_view import QueueEntry, queue
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.running.reservations import waiting_line
from holdbeat.store.transaction import Transaction
from holdbeat.web.request import PageRequest

RUNNING_SHOWN = 12
SOON_S = 1.5
WAITS = {
    WaitKind.SLEEP: "its handler sleeps",
    WaitKind.SIGNAL: "waits for the signal {}",
    WaitKind.CHILD: "waits for the end of its child",
    WaitKind.QUESTION: "waits for somebody's answer",
}
_SEVERAL = {
    WaitKind.CHILD: "waits for the end of {} children",
    WaitKind.QUESTION: "waits for {} answers",
}
_UNKNOWN = frozenset(
    {
        Blocker.GROUP_PREDECESSOR, Blocker.OVERLAP, Blocker.UPSTREAM, Blocker.WAITING, Blocker.PAUSED,
        Blocker.NO_WORKER,
    }
)  # fmt: skip
"""What keeps a job for a time that nobody can tell."""


def read_queue(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    resource = request.text("resource")
    page = queue(tx, resource, limit=100, cursor=request.text("cursor"))
    pauses = {pause.resource: pause for pause in list_pauses(tx)}
    figures = resource_stats(tx)
    for name in pauses:
        if name is not None and name not in figures:
            figures[name] = {"slots": None, "used": 0, "waiting": 0, "oldest_wait_s": None}
    running = slot_holders(tx)
    state = Blockers(tx)
    ready = [entry for entry in page.items if Blocker.DELAYED not in entry.blocked_by]
    delayed = [entry for entry in page.items if Blocker.DELAYED in entry.blocked_by]
    # Only the first page knows who is ahead of its first job.
    starts = {} if request.text("cursor") else _starts(tx, ready, running, state)
    return {
        "resource": resource,
        "soon": tx.now + timedelta(seconds=SOON_S),
        "entries": [_row(entry, starts.get(entry.job.id), state) for entry in ready],
        "delayed": [
            _row(entry, entry.job.not_before, state)
            for entry in sorted(delayed, key=lambda entry: entry.job.not_before or tx.now)
        ],
        "running": [holder for holder in running if resource in (None, holder.resource)],
        "running_count": sum(n for (_, name), n in leases_held(tx).items() if resource in (None, name)),
        "running_shown": RUNNING_SHOWN,
        "next_cursor": page.next_cursor,
        "pauses": pauses,
        "resources": figures,
        "direct": [reservation_json(holder) for holder in waiting_line(tx)[:20]],
    }


def _row(entry: QueueEntry, starts_at: datetime | None, state: Blockers) -> dict[str, Any]:
    waits = entry.job.current_waits
    if waits and not waits_for_others(waits):
        starts_at = entry.job.not_before
    return {
        "job": job_json(entry.job),
        "blocked_by": [(str(code), _words(entry.job, code, state)) for code in entry.blocked_by],
        "starts_at": starts_at,
    }


def waits_for_others(waits: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the handler of a chain does not only sleep."""
    return any(wait["kind"] != WaitKind.SLEEP for wait in waits)


def wait_text(waits: Sequence[Mapping[str, Any]]) -> str:
    """What the handler of a chain waits for, in parallel."""
    counts = Counter((wait["kind"], wait.get("name", "")) for wait in waits)
    return listed(
        _SEVERAL[kind].format(count) if count > 1 and kind in _SEVERAL else WAITS[kind].format(name)
        for (kind, name), count in counts.items()
    )


def _words(job: Job, code: Blocker, state: Blockers) -> str:
    """The blocker of a job in words, with the limit or the wait of its handler."""
    if code is Blocker.WAITING and job.current_waits:
        return wait_text(job.current_waits)
    name = state.limit_of(job, code)
    return f"{REASONS[code]} (limit {name})" if name else REASONS[code]


def _starts(
    tx: Transaction, entries: Sequence[QueueEntry], running: Sequence[SlotHolder], state: Blockers
) -> dict[str, datetime | None]:
    """When each job of the list will probably start, if those before it take as long as their types usually do."""
    limits = limits_in_force(tx)
    means = mean_durations(tx, {entry.job.type for entry in entries} | {holder.type for holder in running})
    worker_slots = sum(worker.slots for worker in live_workers(tx) if worker.stopping_at is None)
    executing: dict[str, list[Execution]] = {}
    for holder in running:
        executing.setdefault(holder.resource, []).append(Execution(holder.type, holder.since, holder.weight))
    ahead: dict[str, list[Ahead]] = {}
    starts: dict[str, datetime | None] = {}
    for entry in entries:
        job = entry.job
        line = ahead.setdefault(job.resource, [])
        if not _UNKNOWN & set(entry.blocked_by):
            limit = limits.slots_of(job.resource, job.type)
            at = state.capacity.next_start(job.resource, job.type, job.partition, [one.partition for one in line])
            start = estimated_start(
                tx.now,
                slots=worker_slots if limit is None else limit,
                running=executing.get(job.resource, ()),
                ahead=line,
                mean_s=means,
                not_before=None if at is None else instant_of(tx, at),
                weight=job.weight,
            )
            # A job that another limit keeps from a free slot does not start now; nobody can tell when.
            is_full = len(executing.get(job.resource, ())) >= (worker_slots if limit is None else limit)
            is_kept = (
                Blocker.RESOURCE_FULL in entry.blocked_by and not is_full and start is not None and start <= tx.now
            )
            starts[job.id] = None if is_kept else start
            line.append(Ahead(job.type, job.weight, job.partition))
    return starts
