"""Start: what a claim writes for the jobs and the direct requests that it hands out (LEASE-01)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdbeat.domain import events
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import Claim, Lease
from holdbeat.domain.reservation import Reservation
from holdbeat.store.limits.usage import SlotNumbers
from holdbeat.store.reads.rows import JOB_FIELDS, job_of
from holdbeat.store.running.candidates import Chosen
from holdbeat.store.running.vacancy import Vacancy
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

_LEASE_COLUMNS = (
    "id", "job_id", "reservation_id", "worker_id", "slot", "resource", "type", "fence", "acquired_at", "heartbeat_at",
    "expires_at", "partition", "number",
)  # fmt: skip


def grant(
    tx: Transaction, vacancy: Vacancy, granted: list[tuple[Reservation, int]], fence: int, numbers: SlotNumbers
) -> list[Claim]:
    # Read again under the lock: another claim may have granted one since, or its client may have gone.
    waiting = {
        row[0]
        for row in tx.rows(
            "SELECT id FROM direct_reservations WHERE id IN :ids AND status = 'ACTIVE' AND granted_at IS NULL "
            "ORDER BY id FOR UPDATE",
            ids=[reservation.id for reservation, _ in granted],
        )
    }
    granted = [entry for entry in granted if entry[0].id in waiting]
    claims = []
    for number, (reservation, slot) in enumerate(granted, fence):
        expires_at = vacancy.terms.expiry(tx.now, reservation.timeout_s, reservation.cancel_grace_s)
        reservation.granted_at = tx.now
        reservation.worker_id = vacancy.worker_id
        reservation.fence = number
        lease = Lease(
            reservation.id, vacancy.worker_id, slot, reservation.resource, reservation.type, number, tx.now, tx.now,
            expires_at, reservation_id=reservation.id, number=numbers.take(reservation.resource),
        )  # fmt: skip
        claims.append(Claim(lease, reservation))
        tx.record(
            events.RESERVATION_GRANTED,
            worker_id=vacancy.worker_id,
            reservation_id=reservation.id,
            type=reservation.type,
            fence=number,
        )
    if claims:
        tx.execute(
            "UPDATE direct_reservations SET granted_at = :now, worker_id = :worker, fence = g.fence "
            "FROM rows(:granted; id text, fence int) AS g WHERE direct_reservations.id = g.id",
            now=tx.now,
            worker=vacancy.worker_id,
            granted=[(claim.lease.id, claim.lease.fence) for claim in claims],
        )
        tx.insert(
            "leases",
            _LEASE_COLUMNS,
            [
                (
                    lease.id, None, lease.reservation_id, lease.worker_id, lease.slot, lease.resource, lease.type,
                    lease.fence, lease.acquired_at, lease.heartbeat_at, lease.expires_at, reservation.partition,
                    lease.number,
                )
                for lease, reservation in ((claim.lease, claim.work) for claim in claims)
            ],
        )  # fmt: skip
        tx.wake(Topic.DIRECT)
    return claims


_RUN_COLUMNS = (
    "id", "job_id", "type", "resource", "template_id", "params_snapshot", "worker_id", "slot", "fence", "started_at",
)  # fmt: skip
_PARAMS, _NOT_BEFORE = map(JOB_FIELDS.index, ("params", "not_before"))
LOCKS_WAITED_FOR = timedelta(seconds=2)
"""So long may a claim wait for locks; what differs by more is taken for a jump of the clock."""


def _started_at(tx: Transaction, chosen: Chosen) -> datetime:
    """The instant at which these jobs start: on PostgreSQL a little after the transaction's, if one became due since.

    A transaction's time is read when it begins. While it waits for locks another one may find a delayed job due. A
    `not_before` that lies further ahead is a clock that went back, and the clock's word is kept.
    """
    begun = tx.now
    if tx.dialect == "sqlite":
        return begun
    delays = [at for candidate in chosen.candidates if (at := tx.time(candidate.row[_NOT_BEFORE])) is not None]
    latest = max(delays, default=begun)
    return latest if begun < latest <= begun + LOCKS_WAITED_FOR else begun


def start(tx: Transaction, vacancy: Vacancy, chosen: Chosen, numbers: SlotNumbers) -> list[Claim]:
    """Writes RUNNING, the run and the lease of each job, so that there is nothing in between to be lost."""
    now = _started_at(tx, chosen)
    count = len(chosen.candidates)
    if not chosen.is_running or now != tx.now:
        tx.execute(
            "UPDATE jobs SET status = 'RUNNING', started_at = :now WHERE id IN :ids",
            now=now,
            ids=[candidate.row[0] for candidate in chosen.candidates],
        )
    fences: Sequence[int | None] = [candidate.fence for candidate in chosen.candidates]
    if fences[0] is None:
        first = tx.next_fences(count)
        fences = range(first, first + count)
    longest = vacancy.terms.expiry(now)
    worker_id = vacancy.worker_id
    claims = []
    runs = []
    leases = []
    note = tx.events.append
    groups = set()
    for (row, slot, _), fence, run_id in zip(chosen.candidates, fences, tx.new_ids(count), strict=True):
        assert fence is not None
        job = job_of(tx, row)
        job_id, type_, resource, group_id, template_id = job.id, job.type, job.resource, job.group_id, job.template_id
        expires_at = longest
        if job.timeout_s is not None:
            expires_at = vacancy.terms.expiry(now, job.timeout_s, job.cancel_grace_s)
        number = numbers.take(resource)
        lease = Lease(run_id, worker_id, slot, resource, type_, fence, now, now, expires_at, job_id, None, number)
        job.status, job.started_at = JobStatus.RUNNING, now
        job.worker_id, job.heartbeat_at, job.lease_expires_at = worker_id, now, expires_at
        claims.append(Claim(lease, job))
        runs.append((run_id, job_id, type_, resource, template_id, row[_PARAMS], worker_id, slot, fence, now))
        leases.append(
            (run_id, job_id, None, worker_id, slot, resource, type_, fence, now, now, expires_at, job.partition, number)
        )
        if group_id:
            groups.add(group_id)
        note((events.JOB_CLAIMED, now, job_id, run_id, worker_id, group_id, job.schedule_id, f'{{"fence":{fence}}}'))
    tx.insert("job_runs", _RUN_COLUMNS, runs)
    tx.insert("leases", _LEASE_COLUMNS, leases)
    if groups:
        tx.execute(
            "UPDATE job_groups SET status = 'RUNNING', started_at = :now WHERE id IN :ids AND status = 'QUEUED'",
            now=now,
            ids=sorted(groups),
        )
    return claims
