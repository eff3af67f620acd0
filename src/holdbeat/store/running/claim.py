"""Claim: the next work for a worker's free slots, in one transaction.

Guards INV-004, CAP-02 and DEC-004: order, limits over all workers, and direct requests ahead of the queue. A claim
writes RUNNING, the run and the lease together, so there is nothing in between to be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdbeat.domain import events
from holdbeat.domain.concurrency import Capacity, PolicyKind
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import HTTP_RESOURCE, Claim, Lease, LeaseTerms
from holdbeat.domain.reservation import Reservation
from holdbeat.store.queue.ageing import AT_ONCE, apply_ageing
from holdbeat.store.reads.rows import JOB, RESERVATION, job_of, reservation_of
from holdbeat.store.transaction import Row, Transaction

EVERYTHING = "*"
"""The pause that covers all resources."""


@dataclass(slots=True)
class Vacancy:
    """What a worker can take on now."""

    worker_id: str
    slots: Sequence[int]
    """Numbers of its free slots."""
    http_slots: Sequence[int] = ()
    """Numbers of its free slots in the lane for http calls, all below zero."""
    types: Sequence[str] = ()
    resources: Sequence[str] | None = None
    """Only these resources; None for all."""
    terms: LeaseTerms = field(default_factory=LeaseTerms)


def claim(tx: Transaction, vacancy: Vacancy) -> list[Claim]:
    """Fills the free slots of one worker.

    - Waiting direct requests first, in the order they came, each with the next free slot of its pool.
    - Then jobs by (priority DESC, position, created_at, id) among those that may run now: not delayed, gate open,
      resource neither full nor paused, type known to this worker; and only while free slots outnumber the
      direct requests of their pool that still wait, whoever may serve those.
    - Limits count the live leases, under a lock that no other claim of the same pool can hold.
    """
    lanes, waiting = _outlook(tx, vacancy)
    if not lanes and not waiting:
        return []
    capacity, waiting = _capacity(tx, lanes, waiting)
    slots, http_slots = list(reversed(vacancy.slots)), list(reversed(vacancy.http_slots))
    granted = _serve(tx, vacancy, waiting, capacity, slots, http_slots) if waiting else []
    chosen, places = _choose(tx, lanes, capacity, slots, http_slots)
    claims = _grant(tx, vacancy, granted, tx.next_fences(len(granted))) if granted else []
    return claims + _start(tx, vacancy, chosen, places) if chosen else claims


_DELAYED = "FROM jobs INDEXED BY jobs_delayed WHERE status = 'QUEUED' AND hold = 1"
_WAITING = "FROM direct_reservations WHERE status = 'ACTIVE' AND granted_at IS NULL AND expires_at > :now"
_SIGNS = (
    f"SELECT (SELECT min(not_before) {_DELAYED}) <= :now, "
    f"EXISTS (SELECT 1 FROM queue_pauses), EXISTS (SELECT 1 {_WAITING})"
)
"""Whether there is anything besides ready jobs. Mostly there is not, and a claim need not look closer.

The first delayed job is asked for by its order, not by a comparison: PostgreSQL takes a third of the jobs to be earlier
than an instant that it does not know, and would read the whole table to find one."""


_NO_PAUSE_MEANWHILE = "SELECT pg_advisory_xact_lock_shared(hashtextextended('pauses', 7450))"
_NO_CLAIM_MEANWHILE = "SELECT pg_advisory_xact_lock(hashtextextended('pauses', 7450))"
"""Claims do not wait for each other at this lock of PostgreSQL, only for somebody who is just pausing."""


def wait_for_claims(tx: Transaction) -> None:
    """Lets the claims under way end and others wait: none can start what it saw before this transaction's change."""
    if tx.dialect == "postgres":
        tx.execute(_NO_CLAIM_MEANWHILE)


def _outlook(tx: Transaction, vacancy: Vacancy) -> tuple[list[Lane], list[Reservation]]:
    """The lanes that this worker may serve now, and the direct requests that go first."""
    apply_ageing(tx)
    if tx.dialect == "postgres":
        # A statement of its own, sent along: what follows sees what was committed before the lock was had.
        tx.execute(_NO_PAUSE_MEANWHILE)
    signs, found = tx.all_rows((_SIGNS, {"now": tx.now}), (_LANES[tx.dialect], {}))
    ripe, paused, waiting = signs[0]
    if ripe:
        promote(tx)
        apply_ageing(tx)
        found = tx.rows(_LANES[tx.dialect])
    if not vacancy.types or not (vacancy.slots or vacancy.http_slots):
        return [], []
    pauses = {row[0] for row in tx.rows("SELECT resource FROM queue_pauses")} if paused else set()
    return _lanes(found, pauses, vacancy), _waiting_reservations(tx) if waiting else []


def promote(tx: Transaction) -> None:
    """Makes every delayed job ready whose time has come. All of them: a cap would break the claim order.

    It has waited since that time, however late somebody looks.
    """
    while True:
        ripe = tx.rows(
            f"SELECT id {_DELAYED} AND not_before <= :now ORDER BY not_before LIMIT :few FOR UPDATE SKIP LOCKED",
            now=tx.now,
            few=AT_ONCE,
        )
        if ripe:
            tx.execute(
                "UPDATE jobs SET hold = 0, ages_at = not_before WHERE id IN :ids",
                ids=[row[0] for row in ripe],
            )
        if len(ripe) < AT_ONCE:
            return


def _permits(vacancy: Vacancy, resource: str) -> bool:
    return vacancy.resources is None or resource in vacancy.resources


_READY = "FROM jobs INDEXED BY jobs_ready WHERE status = 'QUEUED' AND hold = 0"
_FIRST = "ORDER BY resource, type LIMIT 1"
_LANES = {
    "sqlite": (
        "WITH RECURSIVE lane(resource, type) AS ("
        f" SELECT * FROM (SELECT resource, type {_READY} {_FIRST})"
        " UNION ALL SELECT j.resource, j.type FROM lane, jobs j WHERE j.rowid = coalesce("
        f"(SELECT rowid {_READY} AND resource = lane.resource AND type > lane.type {_FIRST}),"
        f" (SELECT rowid {_READY} AND resource > lane.resource {_FIRST})))"
        " SELECT resource, type FROM lane"
    ),
    "postgres": (
        "WITH RECURSIVE lane(resource, type) AS ("
        f" (SELECT resource, type {_READY} {_FIRST})"
        " UNION ALL SELECT next.* FROM lane, LATERAL (SELECT resource, type"
        f" {_READY} AND (resource, type) > (lane.resource, lane.type) {_FIRST}) AS next)"
        " SELECT resource, type FROM lane"
    ),
}
"""Every (resource, type) that has ready jobs, found by seeking from one to the next in the index, so that the
length of the queue does not matter. SQLite seeks by the first of two compared columns only."""

Lane = tuple[str, str]


def _lanes(found: Sequence[Row], paused: set[str], vacancy: Vacancy) -> list[Lane]:
    """The lanes with ready jobs that are not paused and that this worker may serve."""
    if EVERYTHING in paused:
        return []
    known = set(vacancy.types)
    return [
        (resource, type_)
        for resource, type_ in found
        if type_ in known
        and resource not in paused
        and _permits(vacancy, resource)
        and (vacancy.http_slots if resource == HTTP_RESOURCE else vacancy.slots)
    ]


def _waiting_reservations(tx: Transaction) -> list[Reservation]:
    found = tx.rows(
        f"SELECT {RESERVATION} {_WAITING} ORDER BY requested_at, id",
        now=tx.now,
    )
    return [reservation_of(tx, row) for row in found]


def _serve(
    tx: Transaction,
    vacancy: Vacancy,
    waiting: list[Reservation],
    capacity: Capacity,
    slots: list[int],
    http_slots: list[int],
) -> list[tuple[Reservation, int]]:
    """The direct requests that are this worker's to serve now, each with its slot.

    The next free slots of a pool belong to those who came first, whoever may serve them (DIR-01).
    """
    granted = []
    ahead: Counter[str | None] = Counter()
    for reservation in waiting:
        resource, type_ = reservation.resource, reservation.type
        places = http_slots if resource == HTTP_RESOURCE else slots
        pool = tx.terms.concurrency.pool(resource, type_)
        free = capacity.free(resource, type_)
        can_serve = type_ in vacancy.types and _permits(vacancy, resource)
        if can_serve and places and (free is None or free > ahead[pool]):
            capacity.grant(resource, type_)
            granted.append((reservation, places.pop()))
        else:
            ahead[pool] += 1
    return granted


def _capacity(tx: Transaction, lanes: list[Lane], waiting: list[Reservation]) -> tuple[Capacity, list[Reservation]]:
    policy = tx.terms.concurrency
    if policy.kind is PolicyKind.UNLIMITED:
        return Capacity(policy, ()), waiting
    wanted = lanes + [(reservation.resource, reservation.type) for reservation in waiting]
    tx.lock_pools({f"pool:{policy.pool(resource, type_)}" for resource, type_ in wanted})
    if waiting and tx.dialect == "postgres":
        # Another claim may have granted one before we had the lock: it would seem to stand ahead of the others. One
        # that came since may be of a pool that is not locked, and is the next claim's.
        known = {reservation.id for reservation in waiting}
        waiting = [reservation for reservation in _waiting_reservations(tx) if reservation.id in known]
    used = tx.rows("SELECT resource, type, count(*) FROM leases GROUP BY resource, type")
    return Capacity(policy, used, [(r.resource, r.type, 1) for r in waiting]), waiting


_READY_IN_LANE = (
    "SELECT {columns} FROM jobs INDEXED BY jobs_ready "
    "WHERE status = 'QUEUED' AND hold = 0 AND resource = {lane}resource AND type = {lane}type "
    "ORDER BY effective_priority DESC, position, created_at, id LIMIT {lane}places"
)
_ORDER = "effective_priority, position, created_at, id, resource, type"
_ID, _RESOURCE, _TYPE = 3, 4, 5
_FENCE = -1
"""The last column of a candidate. SQLite reserves fences for the chosen; on PostgreSQL they come with the candidates,
and that of one who is not chosen after all is never used."""


def _candidates_of(dialect: str, columns: str) -> str:
    if dialect == "sqlite":
        return _READY_IN_LANE.format(columns=f"{columns}, NULL", lane=":")
    return (
        "SELECT c.*, nextval('fences') FROM rows(:lanes; resource text, type text, places int) AS lane, "
        f"LATERAL ({_READY_IN_LANE.format(columns=columns, lane='lane.')} FOR UPDATE SKIP LOCKED) AS c"
    )


_CANDIDATES = {dialect: _candidates_of(dialect, _ORDER) for dialect in ("sqlite", "postgres")}
_WHOLE_CANDIDATES = {dialect: _candidates_of(dialect, JOB) for dialect in ("sqlite", "postgres")}


def _candidates(tx: Transaction, texts: dict[str, str], lanes: list[tuple[str, str, int]]) -> list[Row]:
    """The first jobs of each lane, as many as could be started there."""
    text = texts[tx.dialect]
    if tx.dialect == "postgres":
        return tx.rows(text, lanes=lanes)
    found = []
    for resource, type_, places in lanes:
        found += tx.rows(text, resource=resource, type=type_, places=places)
    return found


def _choose(
    tx: Transaction, lanes: list[Lane], capacity: Capacity, slots: list[int], http_slots: list[int]
) -> tuple[list[Row], list[int]]:
    """The jobs to start (rows of JOB, each with its fence), and their slots, in the order of INV-004 over all lanes."""
    wanted = []
    for resource, type_ in lanes:
        places = len(http_slots if resource == HTTP_RESOURCE else slots)
        free = capacity.free_for_jobs(resource, type_)
        count = places if free is None else min(places, free)
        if count:
            wanted.append((resource, type_, count))
    if not wanted:
        return [], []
    if len(wanted) == 1:
        # No other lane competes: whatever is found has its place.
        free_slots = http_slots if wanted[0][0] == HTTP_RESOURCE else slots
        return _candidates(tx, _WHOLE_CANDIDATES, wanted), free_slots[::-1]
    found = _candidates(tx, _CANDIDATES, wanted)
    found.sort(key=lambda row: (-row[0], row[1], row[2], row[3]))
    chosen = {}
    for row in found:
        resource, type_ = row[_RESOURCE], row[_TYPE]
        free_slots = http_slots if resource == HTTP_RESOURCE else slots
        if free_slots and capacity.free_for_jobs(resource, type_) != 0:
            capacity.take(resource, type_)
            chosen[row[_ID]] = (free_slots.pop(), row[_FENCE])
    if not chosen:
        return [], []
    jobs = {row[0]: row for row in tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids", ids=list(chosen))}
    return [(*jobs[job_id], fence) for job_id, (_, fence) in chosen.items()], [slot for slot, _ in chosen.values()]


_LEASE_COLUMNS = (
    "id", "job_id", "reservation_id", "worker_id", "slot", "resource", "type", "fence", "acquired_at", "heartbeat_at",
    "expires_at",
)  # fmt: skip


def _grant(tx: Transaction, vacancy: Vacancy, granted: list[tuple[Reservation, int]], fence: int) -> list[Claim]:
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
            expires_at, reservation_id=reservation.id,
        )  # fmt: skip
        claims.append(Claim(lease, reservation=reservation))
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
                    lease.fence, lease.acquired_at, lease.heartbeat_at, lease.expires_at,
                )
                for lease in (claim.lease for claim in claims)
            ],
        )  # fmt: skip
        tx.wake("direct")
    return claims


def _start(tx: Transaction, vacancy: Vacancy, chosen: list[Row], slots: list[int]) -> list[Claim]:
    now = tx.now
    count = len(chosen)
    tx.execute(
        "UPDATE jobs SET status = 'RUNNING', started_at = :now WHERE id IN :ids",
        now=now,
        ids=[row[0] for row in chosen],
    )
    if chosen[0][_FENCE] is None:
        first = tx.next_fences(count)
        fences: Sequence[int] = range(first, first + count)
    else:
        fences = [row[_FENCE] for row in chosen]
    worker_id = vacancy.worker_id
    claims = []
    runs = []
    leases = []
    note = tx.events.append
    groups = set()
    for row, slot, fence, run_id in zip(chosen, slots, fences, tx.new_ids(count), strict=False):
        job = job_of(tx, row)
        job_id, type_, resource, group_id, template_id = job.id, job.type, job.resource, job.group_id, job.template_id
        expires_at = vacancy.terms.expiry(now, job.timeout_s, job.cancel_grace_s)
        lease = Lease(run_id, worker_id, slot, resource, type_, fence, now, now, expires_at, job_id)
        job.status, job.started_at = JobStatus.RUNNING, now
        job.worker_id, job.heartbeat_at, job.lease_expires_at = worker_id, now, expires_at
        claims.append(Claim(lease, job))
        runs.append((run_id, job_id, type_, resource, template_id, row[2], worker_id, slot, fence, now))
        leases.append((run_id, job_id, None, worker_id, slot, resource, type_, fence, now, now, expires_at))
        if group_id:
            groups.add(group_id)
        note((events.JOB_CLAIMED, now, job_id, run_id, worker_id, group_id, job.schedule_id, f'{{"fence":{fence}}}'))
    tx.insert(
        "job_runs",
        (
            "id",
            "job_id",
            "type",
            "resource",
            "template_id",
            "params_snapshot",
            "worker_id",
            "slot",
            "fence",
            "started_at",
        ),
        runs,
    )
    tx.insert("leases", _LEASE_COLUMNS, leases)
    if groups:
        tx.execute(
            "UPDATE job_groups SET status = 'RUNNING', started_at = :now WHERE id IN :ids AND status = 'QUEUED'",
            now=now,
            ids=sorted(groups),
        )
    return claims
