"""Plans the Schedule that made a chain when the chain ends, in the same transaction.

Guards GOV-09: an adaptive schedule is planned when nothing of it is in flight any more, however that came about;
and one that lost both its plan and its job is found again. Fires that waited for an unfinished job go on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.endpoint import retry_after
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.domain.schedule_steps import ChainEnd, after_run, replanned
from holdbeat.store.queue.groups import open_gates
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.schedules.occurrences import InFlight, in_flight
from holdbeat.store.schedules.schedule_rows import locked_schedules, save_plans, wake_trigger
from holdbeat.store.transaction import Transaction

_ENDS = {
    JobStatus.COMPLETED: ChainEnd.COMPLETED,
    JobStatus.FAILED: ChainEnd.FAILED,
    JobStatus.SKIPPED: ChainEnd.SKIPPED,
    JobStatus.CANCELLED: ChainEnd.CANCELLED,
}


def after_chains(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Opens the gate of the next fire, keeps the last start, and plans what is adaptive.

    `jobs` have just ended, and their leases are gone; one that is retried does not end its chain.
    """
    ids = sorted({job.schedule_id for job in jobs if job.schedule_id})
    if tx.dialect == "postgres":
        # A transaction that fires the schedule holds this lock: its job is visible here, or it sees what ended here.
        tx.execute("SELECT id FROM schedules WHERE id IN :ids ORDER BY id FOR UPDATE", ids=ids)
    flights = in_flight(tx, ids)
    _open_gates(tx, flights)
    ended = [job for job in jobs if job.schedule_id and job.status.is_terminal and job.retried_by is None]
    if not ended:
        return
    tx.execute(
        "UPDATE schedules SET last_run_at = e.at FROM rows(:starts; id text, at time) AS e "
        "WHERE schedules.id = e.id AND adaptive = :no "
        # Jobs that overlap may end in any order. One that lies ahead is of a clock that went back.
        "AND (last_run_at IS NULL OR last_run_at < e.at OR last_run_at > :now)",
        starts=sorted(_latest_starts(ended).items()),
        no=False,
        now=tx.now,
    )
    _plan(tx, ids, ended, flights)


def _latest_starts(ended: Sequence[Job]) -> dict[str, datetime]:
    starts: dict[str, datetime] = {}
    for job in ended:
        if job.schedule_id is not None and job.started_at is not None:
            starts[job.schedule_id] = max(job.started_at, starts.get(job.schedule_id, job.started_at))
    return starts


def _open_gates(tx: Transaction, flights: dict[str, InFlight]) -> None:
    opened = [
        flight.gated[0] for flight in flights.values() if flight.gated and not (flight.has_begun or flight.queued)
    ]
    if opened:
        open_gates(tx, opened)


def _plan(tx: Transaction, ids: Sequence[str], ended: Sequence[Job], flights: dict[str, InFlight]) -> None:
    schedules = {schedule.id: schedule for schedule in locked_schedules(tx, ids, "adaptive = :adaptive", adaptive=True)}
    if not schedules:
        return
    of_schedules = [job for job in ended if job.schedule_id in schedules]
    failures = _failures(tx, [job for job in of_schedules if job.status is JobStatus.FAILED], schedules)
    for job in of_schedules:
        assert job.schedule_id is not None
        schedule = schedules[job.schedule_id]
        kind, retry_at = failures.get(job.id, (None, None))
        end = ChainEnd.INTERRUPTED if kind == ErrorKind.INTERRUPTED else _ENDS[job.status]
        planned = after_run(schedule, end, job.started_at, job.scheduled_for, tx.now, retry_at)
        if flights[schedule.id]:
            # An older job of it was retried by hand: the plan waits for that one too.
            planned = replanned(planned.schedule, tx.now, in_flight=True)
        schedules[schedule.id] = planned.schedule
    for schedule in schedules.values():
        record_plan(tx, schedule)
    wake_trigger(tx, save_plans(tx, list(schedules.values())))


def _failures(
    tx: Transaction, jobs: Sequence[Job], schedules: dict[str, Schedule]
) -> dict[str, tuple[str | None, datetime | None]]:
    """The failures of jobs: the error_kind and, for an endpoint, until when its server wants no other call."""
    if not jobs:
        return {}
    rows = tx.rows(
        "SELECT job_id, error_kind, artifacts FROM job_runs WHERE job_id IN :ids", ids=[job.id for job in jobs]
    )
    endpoints = {job.id for job in jobs if job.schedule_id and schedules[job.schedule_id].endpoint is not None}
    return {
        job_id: (
            kind,
            retry_after(json.loads(artifacts or "{}").get("result"), tx.now) if job_id in endpoints else None,
        )
        for job_id, kind, artifacts in rows
    }


def record_plan(tx: Transaction, schedule: Schedule) -> None:
    """Notes what the Governor decided, in its own sentence."""
    decision = schedule.last_decision
    if schedule.adaptive and decision is not None:
        tx.record(
            events.PLAN_DECIDED,
            schedule_id=schedule.id,
            next_run_at=decision["next_run_at"],
            winner=decision["winner"],
            sentence=decision["sentence"],
        )


# --- what recovery looks for ------------------------------------------------------------------------------


def orphaned_schedules(tx: Transaction) -> list[str]:
    """Adaptive schedules that are enabled, have nothing in flight, and wait for nothing, although they could run."""
    return [schedule.id for schedule in _unplanned(tx) if _repaired(schedule, tx.now) is not None]


def replan_orphan(tx: Transaction, schedule_id: str) -> bool:
    """Plans such a schedule again; one that is well by now is left alone."""
    schedules = locked_schedules(tx, [schedule_id])
    if not schedules or schedule_id not in {schedule.id for schedule in _unplanned(tx, schedule_id)}:
        return False
    schedule = _repaired(schedules[0], tx.now)
    if schedule is None:
        return False
    wake_trigger(tx, save_plans(tx, [schedule]))
    record_plan(tx, schedule)
    tx.record(events.RECOVERY_ACTED, schedule_id=schedule_id, action="the schedule had no plan and was planned again")
    return True


def _unplanned(tx: Transaction, schedule_id: str | None = None) -> list[Schedule]:
    # In the words of the index `schedules_unplanned`, which differ by engine.
    planned = "s.enabled = 1 AND s.adaptive = 1" if tx.dialect == "sqlite" else "s.enabled AND s.adaptive"
    columns = ", ".join(f"s.{name}" for name in SCHEDULES.fields)
    rows = tx.rows(
        f"SELECT {columns} FROM schedules s WHERE {planned} AND s.wake_at IS NULL "
        "AND (s.paused_until IS NULL OR s.paused_until < :indefinite) AND (s.end_at IS NULL OR s.end_at >= :now) "
        "AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.schedule_id = s.id AND j.status IN ('QUEUED', 'RUNNING'))"
        f"{' AND s.id = :id' if schedule_id else ''} ORDER BY s.id",
        now=tx.now,
        indefinite=INDEFINITE,
        **({"id": schedule_id} if schedule_id else {}),
    )
    # Cancelled work that still runs is read only if some schedule needs it.
    flights = in_flight(tx, [row[0] for row in rows])
    return [SCHEDULES.read(tx, row) for row in rows if not flights[row[0]]]


def _repaired(schedule: Schedule, now: datetime) -> Schedule | None:
    """The schedule with a plan, or with the reason why it cannot have one now; None if there is rightly none."""
    repaired = replanned(schedule, now).schedule
    return repaired if repaired.next_run_at is not None or repaired.trouble is not None else None
