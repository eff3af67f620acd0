"""What tests of recovery share: states written by hand, a recoverer, and a picture of the whole store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.workers import register_worker
from holdbeat.store.transaction import Row, Transaction
from tests.conformance.acts import change, enqueue_one, rows

HOOK = "https://hooks.example/in"
TERMS = LeaseTerms(lease_s=300, heartbeat_s=30, grace_s=60)
LONG_SILENCE_S = 361.0
TABLES = {
    "jobs": "id",
    "job_runs": "id",
    "leases": "id",
    "job_groups": "id",
    "direct_reservations": "id",
    "deliveries": "id",
    "workers": "id",
    "events": "id",
}


def recover(
    store: PersistenceAdapter, dead: Collection[str] = (), terms: LeaseTerms = TERMS, *, thorough: bool = True
) -> int:
    """One round of recovery, each repair in a transaction of its own; how many changed something."""
    trouble = store.read_sync(find_trouble, terms, dead, thorough=thorough)
    return sum(bool(store.write_sync(verb, *args)) for verb, args in recovery_units(trouble))


def picture(store: PersistenceAdapter, *tables: str) -> dict[str, list[Row]]:
    """Every row of the tables (of all that recovery may touch, if none is named)."""

    def ask(tx: Transaction) -> dict[str, list[Row]]:
        return {
            table: [
                tuple(str(value) for value in row) for row in tx.rows(f"SELECT * FROM {table} ORDER BY {TABLES[table]}")
            ]
            for table in tables or TABLES
        }

    return store.read_sync(ask)


def introduce(
    store: PersistenceAdapter, worker_id: str, *, types: tuple[str, ...] = ("noop",), **fields: Any
) -> Worker:
    """Registers a worker."""
    worker = Worker(worker_id, WorkerKind.WORKER, "host", 1, types=types, **fields)
    return store.write_sync(register_worker, worker, TERMS)


def ask_directly(
    store: PersistenceAdapter, *, owner: str = "owner", reservation_s: float = 600, **work: Any
) -> Reservation:
    """A direct request in line."""
    return store.write_sync(reserve, NewJob(work.pop("type", "noop"), **work), owner, reservation_s)


def write_rows(store: PersistenceAdapter, table: str, **values: Any) -> None:
    """Writes one row by hand."""

    def act(tx: Transaction) -> None:
        tx.insert(table, list(values), [list(values.values())])

    store.write_sync(act)


def retries_of(store: PersistenceAdapter, job_id: str) -> list[str]:
    return [row[0] for row in rows(store, "SELECT id FROM jobs WHERE retry_of = :id ORDER BY id", id=job_id)]


def told(store: PersistenceAdapter, job_id: str) -> list[str]:
    records = rows(store, "SELECT event FROM deliveries WHERE job_id = :id ORDER BY event", id=job_id)
    return [row[0] for row in records]


def running_without_lease(store: PersistenceAdapter, **fields: Any) -> str:
    """A job that a hand set RUNNING, without run or lease."""
    job = enqueue_one(store, webhook_url=HOOK, **fields)
    change(
        store,
        "UPDATE jobs SET status = 'RUNNING', started_at = created_at WHERE id = :id",
        id=job.id,
    )
    return job.id


def run_by_hand(store: PersistenceAdapter, job_id: str, clock: ManualClock, **end: Any) -> str:
    run_id = f"run-of-{job_id}"
    write_rows(
        store,
        "job_runs",
        id=run_id,
        job_id=job_id,
        type="noop",
        params_snapshot="{}",
        fence=1,
        worker_id="gone",
        started_at=clock.now(),
        **end,
    )
    return run_id


def failed_by_hand(store: PersistenceAdapter, clock: ManualClock, **fields: Any) -> str:
    job_id = running_without_lease(store, **fields)
    run_by_hand(store, job_id, clock, status="FAILED", error_kind="error", error="it broke", finished_at=clock.now())
    change(store, "UPDATE jobs SET status = 'FAILED', finished_at = created_at WHERE id = :id", id=job_id)
    return job_id
