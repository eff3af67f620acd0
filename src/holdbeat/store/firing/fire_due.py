"""Firing: due Schedules become Occurrences and Jobs.

Guards TIME-02: the due time's row, its Job and the schedule's next time are one transaction under the schedule's lock,
so each due time is judged once, whether triggers are many, die in between, or the clock goes back. Any number of
triggers share the work: what one has locked the others pass over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import StoreRefused, Unavailable
from holdbeat.domain.job import Hold, JobStatus, NewJob
from holdbeat.domain.occurrence import (
    DueWork,
    Occurrence,
    OccurrenceStatus,
    OverlapAction,
    Verdict,
    due_work,
    overlap,
)
from holdbeat.domain.schedule import Overlap, Schedule, job_for
from holdbeat.domain.schedule_steps import ChainEnd, after_run, beyond, fired, replanned
from holdbeat.domain.submission import Submission
from holdbeat.domain.timetable import UNREADABLE, next_due, trouble_of
from holdbeat.store.jobs.cancel import cancel_jobs
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.queue.submission import Preparation
from holdbeat.store.reads.jobs import locked_jobs
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.schedules.after_run import record_plan
from holdbeat.store.schedules.occurrences import DueTime, InFlight, in_flight, insert_occurrences, taken
from holdbeat.store.schedules.schedule_rows import TRIED_AGAIN, save_plans, wake_of
from holdbeat.store.transaction import Row, Transaction

MOST_VERDICTS = 2000
"""After a long downtime one schedule has many due times: a transaction stops taking more schedules here."""
_NOTHING = InFlight()
_REPLACED = "a later due time replaced it at once (overlap: cancel_previous)"


@dataclass(slots=True)
class Firing:
    """The effect of one call of `fire_due`."""

    at: datetime
    """The time of the transaction, which decided what was due."""
    judged: int = 0
    """Schedules that were judged, whatever the verdict."""
    fired: int = 0
    left_out: int = 0
    """Due times that were recorded as skipped, missed or coalesced."""
    refused: int = 0
    """Due times that already had a verdict: would-be double fires."""
    replanned: int = 0
    is_full: bool = False
    """More may be due."""
    is_contended: bool = False
    """More is due, but another transaction has locked it: another trigger, an edit, the end of a run."""
    latest_s: float = 0.0
    """How late the latest of the fired ones was."""
    wakes: list[datetime] = field(default_factory=list)
    """When the judged schedules must be judged again."""


def fire_due(tx: Transaction, limit: int = 500) -> Firing:
    """Judges everything that is due of up to `limit` schedules, the longest waiting first."""
    firing = Firing(tx.now)
    rows, due = _due(tx, limit)
    firing.is_contended = due > len(rows)
    if not rows:
        return firing
    firing.is_full = len(rows) == limit
    works: list[tuple[Schedule, DueWork]] = []
    due_times: list[DueTime] = []
    troubled: list[tuple[str, str | None, str]] = []
    for row in rows:
        # Each on its own: a timetable that cannot be read must stop nobody else's.
        try:
            schedule = SCHEDULES.read(tx, row)
            work = _work(schedule, tx.now)
        except UNREADABLE as error:
            troubled.append((row[0], row[-1], trouble_of(error)))
            continue
        works.append((schedule, work))
        due_times += [(schedule.id, verdict.due_at) for verdict in work.verdicts]
        if len(due_times) >= MOST_VERDICTS:
            firing.is_full = firing.is_full or len(works) + len(troubled) < len(rows)
            break
    firing.judged = len(works) + len(troubled)
    watched = [schedule.id for schedule, _ in works if schedule.adaptive or schedule.overlap is not Overlap.ALLOW]
    flights = in_flight(tx, watched)
    batch = _Batch(tx, firing, taken(tx, due_times))
    for schedule, work in works:
        flight = flights.get(schedule.id, _NOTHING)
        if schedule.adaptive:
            batch.fire_adaptive(schedule, work, flight)
        else:
            batch.fire_plain(schedule, work, flight)
    batch.write()
    if troubled:
        firing.wakes.append(_set_aside(tx, troubled))
    return firing


def _work(schedule: Schedule, now: datetime) -> DueWork:
    """The work that is due; of a schedule that was in trouble, only if its timetable can be read again."""
    if schedule.trouble is None or schedule.adaptive:
        return due_work(schedule, now)
    following = next_due(schedule, now)
    if schedule.next_run_at is None or schedule.next_run_at > now:
        return DueWork([], following)
    return due_work(schedule, now)


def _set_aside(tx: Transaction, troubled: Sequence[tuple[str, str | None, str]]) -> datetime:
    """Keeps the reason with schedules that cannot be judged now; their pending due times stay pending.

    `troubled` has their ids, their trouble until now, and the present one. Returns when they are looked at again.
    """
    again_at = tx.now + TRIED_AGAIN
    tx.execute(
        "UPDATE schedules SET trouble = t.trouble, wake_at = t.wake_at "
        "FROM rows(:troubled; id text, trouble text, wake_at time) AS t WHERE schedules.id = t.id",
        troubled=[(schedule_id, trouble, again_at) for schedule_id, _, trouble in troubled],
    )
    for schedule_id, before, trouble in troubled:
        if trouble != before:
            tx.record(events.SCHEDULE_CHANGED, schedule_id=schedule_id, change="in trouble", reason=trouble)
    return again_at


def _due(tx: Transaction, limit: int) -> tuple[list[Row], int]:
    """Due schedules that nobody else holds, and how many are due in all."""
    statement = (
        f"SELECT {SCHEDULES.columns} FROM schedules INDEXED BY schedules_wake WHERE wake_at IS NOT NULL "
        "AND wake_at <= :now ORDER BY wake_at, id LIMIT :limit FOR UPDATE SKIP LOCKED"
    )
    params = {"now": tx.now, "limit": limit}
    if tx.dialect == "sqlite":
        rows = tx.rows(statement, **params)
        return rows, len(rows)
    rows, due = tx.all_rows(
        (statement, params),
        ("SELECT count(*) FROM (SELECT 1 FROM schedules WHERE wake_at <= :now LIMIT :limit) AS d", params),
    )
    return rows, int(due[0][0])


class _Batch:
    """Collects what all schedules of one call need, and writes it in one go."""

    def __init__(self, tx: Transaction, firing: Firing, standing: set[DueTime]) -> None:
        self._tx = tx
        self._firing = firing
        self._standing = standing
        self._preparation = Preparation(tx)
        self._occurrences: list[Occurrence] = []
        self._requests: list[tuple[NewJob, Occurrence]] = []
        self._cancels: list[tuple[InFlight, str]] = []
        self._timetable: list[Schedule] = []
        self._planned: list[Schedule] = []

    def fire_plain(self, schedule: Schedule, work: DueWork, flight: InFlight) -> None:
        verdicts = self._fresh(schedule, work.verdicts)
        fires = [verdict for verdict in verdicts if verdict.fires]
        replaced = set(fires[:-1]) if schedule.overlap is Overlap.CANCEL_PREVIOUS else set()
        has_begun, has_queued = flight.has_begun, flight.has_queued
        left_out: list[Verdict] = []
        for verdict in verdicts:
            if not verdict.fires:
                left_out.append(verdict)
            elif verdict in replaced:
                left_out.append(_skipped(verdict, _REPLACED))
            else:
                decision = overlap(schedule.overlap, has_begun, has_queued)
                hold = None
                if decision.action is OverlapAction.SKIP:
                    left_out.append(_skipped(verdict, decision.reason))
                    continue
                if decision.action is OverlapAction.FIRE_GATED or (
                    decision.action is OverlapAction.CANCEL_PREVIOUS and flight.has_running
                ):
                    hold = Hold.OVERLAPPED
                refusal = self._fire(schedule, verdict, hold, decision.reason)
                if refusal is not None:
                    left_out.append(refusal)
                    continue
                has_queued = True
                if decision.action is OverlapAction.CANCEL_PREVIOUS:
                    self._cancels.append((flight, decision.reason or ""))
        self._leave_out(schedule, left_out)
        schedule.next_run_at = work.next_run_at
        if schedule.trouble is not None:
            schedule.trouble = None
            self._tx.record(events.SCHEDULE_CHANGED, schedule_id=schedule.id, change="out of trouble")
        self._timetable.append(schedule)

    def fire_adaptive(self, schedule: Schedule, work: DueWork, flight: InFlight) -> None:
        tx = self._tx
        if flight:
            # A job of it that was retried by hand is unfinished: it is planned when that ends.
            self._plan(replanned(schedule, tx.now, in_flight=True).schedule)
            return
        if not work.verdicts:
            self._plan(replanned(schedule, tx.now).schedule, schedule.trouble)
            return
        verdict = work.verdicts[-1]
        if not self._fresh(schedule, [verdict]):
            self._plan(beyond(schedule, verdict.due_at, tx.now).schedule)
            return
        refusal = verdict if not verdict.fires else self._fire(schedule, verdict, None, None)
        if refusal is None:
            self._planned.append(fired(schedule, verdict.due_at, tx.now))
            return
        self._leave_out(schedule, [refusal])
        # A schedule that cannot make its job backs off like one whose job fails.
        end = ChainEnd.FAILED if verdict.fires else ChainEnd.SKIPPED
        self._plan(after_run(schedule, end, None, verdict.due_at, tx.now).schedule)

    def write(self) -> None:
        tx = self._tx
        for flight, reason in self._cancels:
            replace_unfinished(tx, flight, reason)
        jobs = insert_jobs(tx, [request for request, _ in self._requests], kind=events.SCHEDULE_FIRED)
        for (_, occurrence), job in zip(self._requests, jobs, strict=True):
            occurrence.job_id = job.id
        for occurrence, occurrence_id in zip(self._occurrences, tx.new_ids(len(self._occurrences)), strict=True):
            occurrence.id = occurrence_id
        insert_occurrences(tx, self._occurrences)
        wakes = save_plans(tx, self._planned)
        if self._timetable:
            moved = [(schedule.id, schedule.next_run_at, wake_of(schedule, tx.now)) for schedule in self._timetable]
            tx.execute(
                "UPDATE schedules SET next_run_at = t.next_run_at, wake_at = t.wake_at, trouble = NULL "
                "FROM rows(:moved; id text, next_run_at time, wake_at time) AS t WHERE schedules.id = t.id",
                moved=moved,
            )
            wakes += [wake for _, _, wake in moved if wake is not None]
        self._firing.wakes = wakes

    # --- single due times ---------------------------------------------------------------------------------

    def _fresh(self, schedule: Schedule, verdicts: Sequence[Verdict]) -> list[Verdict]:
        fresh = [verdict for verdict in verdicts if (schedule.id, verdict.due_at) not in self._standing]
        refused = len(verdicts) - len(fresh)
        if refused:
            self._firing.refused += refused
            due_at = max(verdict.due_at for verdict in verdicts if verdict not in fresh)
            self._tx.record(events.DUPLICATE_REFUSED, schedule_id=schedule.id, count=refused, due_at=iso(due_at))
        return fresh

    def _fire(self, schedule: Schedule, verdict: Verdict, hold: Hold | None, reason: str | None) -> Verdict | None:
        """Asks for the job; where it cannot be made, the verdict that says why."""
        try:
            submission = Submission.for_schedule(job_for(schedule, verdict.due_at), hold=hold)
            (request,) = self._preparation.prepare_batch([submission])
        except (StoreRefused, Unavailable):
            raise
        except UNREADABLE as refusal:
            return _skipped(verdict, f"its job could not be made: {trouble_of(refusal)}")
        occurrence = self._note(schedule, verdict, reason)
        self._requests.append((request, occurrence))
        self._firing.fired += 1
        self._firing.latest_s = max(self._firing.latest_s, verdict.late_s)
        return None

    def _leave_out(self, schedule: Schedule, verdicts: Sequence[Verdict]) -> None:
        counts: dict[OccurrenceStatus, tuple[int, str | None]] = {}
        for verdict in verdicts:
            self._note(schedule, verdict, verdict.reason)
            before = counts.get(verdict.status, (0, None))[0]
            counts[verdict.status] = (before + verdict.count, verdict.reason)
        self._firing.left_out += len(verdicts)
        for status, (count, reason) in counts.items():
            name = events.SCHEDULE_SKIPPED if status is OccurrenceStatus.SKIPPED else events.SCHEDULE_MISSED
            self._tx.record(name, schedule_id=schedule.id, status=status.value, count=count, reason=reason)

    def _note(self, schedule: Schedule, verdict: Verdict, reason: str | None) -> Occurrence:
        occurrence = Occurrence(
            "",
            schedule.id,
            verdict.due_at,
            verdict.status,
            self._tx.now,
            None,
            reason,
            verdict.count,
            verdict.late_s,
        )
        self._occurrences.append(occurrence)
        return occurrence

    def _plan(self, schedule: Schedule, trouble: str | None = None) -> None:
        self._firing.replanned += 1
        self._planned.append(schedule)
        if schedule.trouble is None or schedule.trouble != trouble:
            record_plan(self._tx, schedule)


def _skipped(verdict: Verdict, reason: str | None) -> Verdict:
    return Verdict(verdict.due_at, OccurrenceStatus.SKIPPED, reason, verdict.count, verdict.late_s)


def replace_unfinished(tx: Transaction, flight: InFlight, reason: str) -> None:
    """Cancels what is unfinished of one schedule."""
    jobs = locked_jobs(tx, flight.unfinished)
    cancel_jobs(tx, [job for job in jobs if job.status in (JobStatus.QUEUED, JobStatus.RUNNING)], reason)
