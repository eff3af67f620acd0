"""Start: what a claim writes for the jobs and the direct requests that it hands out (LEASE-01)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdbeat.domain import events
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import Claim, Lease
from holdbeat.domain.reservation import Reservation, ReservationKind
from holdbeat.store.limits.usage import SlotNumbers
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.running.candidates import Chosen
from holdbeat.store.running.vacancy import Vacancy
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

_LEASE_COLUMNS = (
    "id", "job_id", "reservation_id", "worker_id", "slot", "resource", "type", "fence", "acquired_at", "heartbeat_at",
    "expires_at", "partition", "number", "use", "weight", "numbers",
)  # fmt: skip


def grant(
    tx: Transaction, vacancy: Vacancy, served: list[tuple[Reservation, int | None]], fence: int, numbers: SlotNumbers
) -> list[Claim]:
    """Writes the lease of each reservation that got a slot; the claims are those that this worker must execute."""
    # Read again under the lock: another claim may have granted one since, or its client may have gone.
    waiting = {
        row[0]
        for row in tx.rows(
            "SELECT id FROM direct_reservations WHERE id IN :ids AND status = 'ACTIVE' AND granted_at IS NULL "
            "ORDER BY id FOR UPDATE",
            ids=[reservation.id for reservation, _ in served],
        )
    }
    claims, leases, granted = [], [], []
    for reservation, slot in served:
        if reservation.id not in waiting:
            continue
        slots = numbers.take(reservation.resource, reservation.weight)
        expires_at = _grant_one(tx, reservation, vacancy, fence, slots[0] if slots else None)
        worker_id, resource, type_, number = (
            reservation.worker_id, reservation.resource, reservation.type, reservation.number,
        )  # fmt: skip
        leases.append(
            (
                reservation.id, None, reservation.id, worker_id, slot, resource, type_, fence, tx.now, tx.now,
                expires_at, reservation.partition, number, 0 if slot is None else vacancy.uses.get(slot, 0),
                reservation.weight, _stored(slots),
            )
        )  # fmt: skip
        granted.append((reservation.id, worker_id, fence, number, reservation.expires_at))
        if slot is not None:
            lease = Lease(
                reservation.id, vacancy.worker_id, slot, resource, type_, fence, tx.now, tx.now, expires_at,
                reservation_id=reservation.id, number=number, numbers=slots,
            )  # fmt: skip
            claims.append(Claim(lease, reservation))
        fence += 1
    if granted:
        tx.execute(
            "UPDATE direct_reservations SET granted_at = :now, worker_id = g.worker_id, fence = g.fence, "
            "number = g.number, expires_at = g.expires_at "
            "FROM rows(:granted; id text, worker_id text, fence int, number int, expires_at time) AS g "
            "WHERE direct_reservations.id = g.id",
            now=tx.now,
            granted=granted,
        )
        tx.insert("leases", _LEASE_COLUMNS, leases)
        tx.wake(Topic.DIRECT)
    return claims


def _stored(numbers: tuple[int, ...]) -> str | None:
    """The numbers of several slots as they are stored; that of a single one has a column of its own."""
    return ",".join(map(str, numbers)) if len(numbers) > 1 else None


def _grant_one(tx: Transaction, reservation: Reservation, vacancy: Vacancy, fence: int, number: int | None) -> datetime:
    """Gives the slot to whoever holds it from now on; returns when the lease ends if nobody renews it."""
    reservation.granted_at, reservation.fence, reservation.number = tx.now, fence, number
    expires_at = vacancy.terms.expiry(tx.now, reservation.timeout_s, reservation.cancel_grace_s)
    match reservation.kind:
        case ReservationKind.DIRECT:
            reservation.worker_id = vacancy.worker_id
        case ReservationKind.GATE:
            # The heartbeat of the server renews it, and its death ends it; so its terms count, whoever grants it.
            reservation.worker_id = reservation.owner
            expires_at = tx.now + timedelta(seconds=reservation.ttl_s or 0)
        case ReservationKind.SLOT:
            # No process of ours stands for the holder: it extends the slot itself, or loses it.
            reservation.expires_at = expires_at = tx.now + timedelta(seconds=reservation.ttl_s or 0)
    tx.record(
        events.RESERVATION_GRANTED,
        worker_id=reservation.worker_id,
        reservation_id=reservation.id,
        type=reservation.type,
        fence=fence,
    )
    return expires_at


_RUN_COLUMNS = (
    "id", "job_id", "type", "resource", "template_id", "params_snapshot", "worker_id", "slot", "fence", "started_at",
)  # fmt: skip
_PARAMS, _NOT_BEFORE = map(JOBS.fields.index, ("params", "not_before"))
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
        ids = [candidate.row[0] for candidate in chosen.candidates]
        tx.execute("UPDATE jobs SET status = 'RUNNING', started_at = :now WHERE id IN :ids", now=now, ids=ids)
    fences: Sequence[int | None] = [candidate.fence for candidate in chosen.candidates]
    if fences[0] is None:
        first = tx.next_fences(count)
        fences = range(first, first + count)
    longest = vacancy.terms.expiry(now)
    worker_id, uses = vacancy.worker_id, vacancy.uses
    claims = []
    runs = []
    leases = []
    note = tx.events.append
    groups = set()
    for (row, slot, _), fence, run_id in zip(chosen.candidates, fences, tx.new_ids(count), strict=True):
        assert fence is not None
        job = JOBS.read(tx, row)
        job_id, type_, resource, group_id, template_id = job.id, job.type, job.resource, job.group_id, job.template_id
        timed = job.timeout_s is not None
        expires_at = vacancy.terms.expiry(now, job.timeout_s, job.cancel_grace_s) if timed else longest
        slots = numbers.take(resource, job.weight)
        number = slots[0] if slots else None
        lease = Lease(
            run_id, worker_id, slot, resource, type_, fence, now, now, expires_at, job_id, None, number, slots
        )  # fmt: skip
        job.status, job.started_at = JobStatus.RUNNING, now
        job.worker_id, job.heartbeat_at, job.lease_expires_at = worker_id, now, expires_at
        claims.append(Claim(lease, job))
        runs.append((run_id, job_id, type_, resource, template_id, row[_PARAMS], worker_id, slot, fence, now))
        leases.append(
            (
                run_id, job_id, None, worker_id, slot, resource, type_, fence, now, now, expires_at, job.partition,
                number, uses.get(slot, 0), job.weight, _stored(slots),
            )
        )  # fmt: skip
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
