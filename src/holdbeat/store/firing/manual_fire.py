"""A fire by hand: a request for the job of a Schedule now.

Guards TIME-11: it happens whether or not the schedule is paused or disabled, is on record as a `manual` Occurrence, and
obeys the overlap policy as every fire does.
"""

from __future__ import annotations

from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import Hold, Job
from holdbeat.domain.occurrence import Occurrence, OccurrenceStatus, OverlapAction, overlap
from holdbeat.domain.schedule import Schedule, job_for
from holdbeat.domain.schedule_steps import fired
from holdbeat.domain.submission import Submission
from holdbeat.domain.timetable import MILLISECOND, UNREADABLE, next_due
from holdbeat.store.firing.fire_due import replace_unfinished
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.queue.submission import Preparation
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.schedules.occurrences import in_flight, insert_occurrences
from holdbeat.store.schedules.schedule_rows import save_plans
from holdbeat.store.schedules.schedules import get_schedule
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def trigger_schedule(
    tx: Transaction, reference: str, *, endpoint: bool | None = None, trace: str | None = None
) -> tuple[Occurrence, Job]:
    """Fires now. Where the overlap policy forbids it, it is a Conflict that writes nothing.

    `trace` is the traceparent of the request.
    """
    schedule = get_schedule(tx, reference, endpoint=endpoint, locked=True)
    flight = in_flight(tx, [schedule.id])[schedule.id]
    decision = overlap(schedule.overlap, flight.has_begun, flight.has_queued)
    if not decision.fires:
        raise Conflict(
            f"Schedule {schedule.name} cannot be triggered now: {decision.reason}. Wait for it or cancel it first.",
            code="overlap",
            schedule_id=schedule.id,
            job_id=next(iter(flight.unfinished), None),
        )
    # A slot of its own: the due time of this very millisecond may be on record already, or be still to be judged.
    due_at = tx.now
    while _is_due_time(schedule, due_at) or tx.one(
        "SELECT 1 FROM occurrences WHERE schedule_id = :id AND due_at = :due_at", id=schedule.id, due_at=due_at
    ):
        due_at += MILLISECOND
    hold = None
    if decision.action is OverlapAction.CANCEL_PREVIOUS:
        hold = Hold.OVERLAPPED if flight.has_running else None
    elif decision.action is OverlapAction.FIRE_GATED:
        hold = Hold.OVERLAPPED
    submission = Submission.for_schedule(job_for(schedule, due_at), hold=hold, trace=trace)
    (request,) = Preparation(tx).prepare_batch([submission])
    if decision.action is OverlapAction.CANCEL_PREVIOUS:
        replace_unfinished(tx, flight, decision.reason or "")
    inserted = insert_jobs(tx, [request], kind=events.SCHEDULE_FIRED)[0]
    occurrence = Occurrence(
        tx.new_id(), schedule.id, due_at, OccurrenceStatus.MANUAL, tx.now, inserted.id, "triggered on request"
    )
    insert_occurrences(tx, [occurrence])
    if schedule.adaptive:
        save_plans(tx, [fired(schedule, due_at, tx.now)])
        tx.wake(Topic.SCHEDULES)
    return occurrence, load_job(tx, inserted.id)


def _is_due_time(schedule: Schedule, at: datetime) -> bool:
    if at == schedule.next_run_at:
        return True
    if schedule.adaptive:
        return False
    try:
        return next_due(schedule, at - MILLISECOND) == at
    except UNREADABLE:
        return False
