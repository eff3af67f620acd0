"""Settle: a worker gives back its leases with their outcomes.

Guards LEASE-03: only who still holds the lease can end the run; anyone else's result is kept as evidence and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from holdbeat.domain import events
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import Settlement
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import ReservationOutcome
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.store.delivery_rows import SUBSCRIPTIONS
from holdbeat.store.jobs.end_runs import Ending, end_runs, lock_groups_and_schedules
from holdbeat.store.limits.throttles import Throttled, throttle
from holdbeat.store.reads.jobs import locked_jobs
from holdbeat.store.running.reservations import end_active
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.webhooks.outbox import Outbox
from holdbeat.store.work import Coalesced

_EVIDENCE_MAX = 2000


_RELEASE = (
    "DELETE FROM leases WHERE (id, worker_id || '', fence) IN "
    "(SELECT held.id, held.worker_id, held.fence FROM rows(:held; id text, worker_id text, fence int) AS held) "
    "AND job_id IS NOT NULL RETURNING id, job_id"
)
"""Who deletes the lease may end the run. It is the lock, too: of two that try, the second finds nothing. By id alone:
the index that begins with the worker would lead PostgreSQL through all its leases since the last vacuum."""

_COMPLETE = "UPDATE jobs SET status = 'COMPLETED', finished_at = :now WHERE id IN :ids AND status || '' = 'RUNNING'"
"""By id alone: jobs_running would lead PostgreSQL through the entries of all jobs that ran since the last vacuum."""
_CONSEQUENCES = "id, webhook_url, group_id, schedule_id, is_awaited"
"""What nearly every run comes to, and what follows from it. A job that was cancelled in the meantime is left out, and
looked at like failures."""


class Settled(StrEnum):
    ACCEPTED = "accepted"
    STALE = "stale"


def _settle_many(tx: Transaction, batches: list[Sequence[Settlement]]) -> list[list[Settled] | Exception]:
    """Ends runs and direct requests whose leases are still held by the worker that reports them.

    Run, job, retry or verdict, group step, schedule plan, deliveries and events are one transaction (RET-03). A
    result without its lease is answered STALE, recorded as `lease.stale_result`, and changes nothing.
    """
    settlements = [settlement for batch in batches for settlement in batch]
    if tx.dialect == "postgres":
        ids = [(s.group_id, s.schedule_id) for s in settlements]
        lock_groups_and_schedules(tx, (group for group, _ in ids), (schedule for _, schedule in ids))
    leases = [(settlement.lease_id, settlement.worker_id, settlement.fence) for settlement in settlements]
    jobs, subscriptions = _release(tx, leases)
    direct = _held_reservations(tx, [s for s in settlements if s.lease_id not in jobs])
    ended: list[tuple[Settlement, str]] = []
    verdicts = {}
    for settlement in settlements:
        job_id = jobs.pop(settlement.lease_id, None)
        if job_id is not None:
            ended.append((settlement, job_id))
        elif settlement.lease_id in direct:
            _end_direct(tx, settlement)
        else:
            _keep_evidence(tx, settlement)
            verdicts[id(settlement)] = Settled.STALE
    if ended:
        end_runs(tx, _endings(tx, ended), Outbox(tx, subscriptions), leases_are_gone=True)
    if not verdicts:
        return [[Settled.ACCEPTED] * len(batch) for batch in batches]
    return [[verdicts.get(id(settlement), Settled.ACCEPTED) for settlement in batch] for batch in batches]


settle: Coalesced[Sequence[Settlement], list[Settled]] = Coalesced(_settle_many)


def _release(tx: Transaction, held: Sequence[tuple[str, str, int]]) -> tuple[dict[str, str], list[Row]]:
    """Deletes the leases (id, worker, fence) that are as they were said to be: their jobs by lease. And who subscribes
    to what."""
    if tx.dialect == "postgres":
        rows, subscriptions = tx.all_rows((_RELEASE, {"held": held}), (SUBSCRIPTIONS, {"yes": True}))
        return dict(rows), subscriptions
    # Nobody writes in between, and to delete by three columns costs SQLite twice as much as by one.
    rows = tx.rows(
        "SELECT id, worker_id, fence, job_id FROM leases WHERE id IN :ids AND job_id IS NOT NULL",
        ids=[lease_id for lease_id, _, _ in held],
    )
    held_leases = set(held)
    jobs: dict[str, str] = {row[0]: row[3] for row in rows if row[:3] in held_leases}
    tx.execute("DELETE FROM leases WHERE id IN :ids", ids=list(jobs))
    return jobs, tx.rows(SUBSCRIPTIONS, yes=True)


def _endings(tx: Transaction, ended: Sequence[tuple[Settlement, str]]) -> list[Ending]:
    """The input of `end_runs` for each job. Those that just completed are stored as such on the way."""
    completed = [job_id for settlement, job_id in ended if settlement.outcome.status is RunStatus.COMPLETED]
    stored = {row[0]: row for row in _complete(tx, completed)} if completed else {}
    # Whole jobs: those that did not complete, were cancelled meanwhile, or have a schedule that plans by them.
    needed = [job_id for _, job_id in ended if job_id not in stored or stored[job_id][_SCHEDULE_ID] is not None]
    jobs = {job.id: job for job in locked_jobs(tx, needed)} if needed else {}
    endings = []
    for settlement, job_id in ended:
        run_id, worker_id, outcome = settlement.lease_id, settlement.worker_id, settlement.outcome
        row = stored.get(job_id)
        if row is not None:
            _, url, group_id, schedule_id, is_awaited = row
            endings.append(
                Ending(
                    run_id, worker_id, outcome, job_id, JobStatus.RUNNING, None, url, group_id, schedule_id,
                    jobs.get(job_id), is_stored=True, is_awaited=bool(is_awaited),
                )
            )  # fmt: skip
        elif (job := jobs.get(job_id)) is not None:
            consequences = (job.webhook_url, job.group_id, job.schedule_id)
            endings.append(
                Ending(
                    run_id, worker_id, outcome, job_id, job.status, job.cancel_reason, *consequences, job,
                    is_awaited=job.is_awaited,
                )
            )  # fmt: skip
    return endings


_SCHEDULE_ID = 3


def _complete(tx: Transaction, job_ids: list[str]) -> list[Row]:
    """Marks the jobs that are still RUNNING as COMPLETED; the rows of _CONSEQUENCES of these."""
    if tx.dialect == "postgres":
        return tx.rows(f"{_COMPLETE} RETURNING {_CONSEQUENCES}", now=tx.now, ids=job_ids)
    # Nobody writes in between, and RETURNING costs SQLite half as much again as the update.
    rows = tx.rows(f"SELECT {_CONSEQUENCES} FROM jobs WHERE id IN :ids AND status = 'RUNNING'", ids=job_ids)
    tx.execute(_COMPLETE, now=tx.now, ids=job_ids)
    return rows


def _held_reservations(tx: Transaction, settlements: Sequence[Settlement]) -> set[str]:
    if not settlements:
        return set()
    rows = tx.rows(
        "SELECT id, worker_id, fence FROM leases WHERE id IN :ids AND reservation_id IS NOT NULL "
        "ORDER BY id FOR UPDATE",
        ids=[settlement.lease_id for settlement in settlements],
    )
    holders = {row[0]: (row[1], row[2]) for row in rows}
    return {s.lease_id for s in settlements if holders.get(s.lease_id) == (s.worker_id, s.fence)}


def _end_direct(tx: Transaction, settlement: Settlement) -> None:
    """Closes a direct request; one that was cancelled while it ran stays so (DIR-04: nobody tries again)."""
    outcome = settlement.outcome
    cancelled = outcome.error_kind is ErrorKind.CANCELLED
    ended_as = ReservationOutcome.CANCELLED if cancelled else ReservationOutcome(outcome.status)
    rows = tx.rows("DELETE FROM leases WHERE id = :id RETURNING resource, type, partition", id=settlement.lease_id)
    if outcome.retry_after_s is not None:
        lease_id, retry_after_s = settlement.lease_id, outcome.retry_after_s
        throttle(tx, [Throttled(row[0], row[1], row[2], retry_after_s, None, lease_id) for row in rows])
    tx.wake(Topic.DIRECT, Topic.SLOTS)
    result = None if outcome.result is None else dumps(outcome.result)
    kind, error = outcome.error_kind, outcome.error
    end_active(tx, settlement.lease_id, settlement.worker_id, ended_as, error, kind, result)


def _keep_evidence(tx: Transaction, settlement: Settlement) -> None:
    outcome = settlement.outcome
    row = tx.one("SELECT job_id FROM job_runs WHERE id = :id", id=settlement.lease_id)
    tx.record(
        events.STALE_RESULT,
        job_id=row[0] if row else None,
        run_id=settlement.lease_id,
        worker_id=settlement.worker_id,
        fence=settlement.fence,
        status=outcome.status,
        error=outcome.error[:_EVIDENCE_MAX] if outcome.error else None,
        error_kind=outcome.error_kind,
        result=dumps(outcome.result)[:_EVIDENCE_MAX] if outcome.result is not None else None,
    )
