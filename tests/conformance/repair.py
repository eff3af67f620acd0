"""What tests of recovery share: states written by hand, a recoverer, and a picture of the whole store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.verbs.recover import find_trouble, recovery_units
from holdbeat.store.verbs.reservations import reserve
from holdbeat.store.verbs.workers import register_worker

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
