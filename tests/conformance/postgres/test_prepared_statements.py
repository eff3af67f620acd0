"""Statements that the driver prepares inside a pipeline which fails."""

from __future__ import annotations

import psycopg
import pytest

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import open_at


def _run(tx: Transaction, sql: str) -> None:
    tx.execute(sql, key="a")


def _fail_and_run(tx: Transaction, sql: str) -> None:
    """The second statement is skipped by the server, and with it what the driver prepares for it."""
    tx.execute("INSERT INTO meta (key, value) VALUES (:key, NULL)", key="a")
    tx.execute(sql, key="a")


def _refused(store: PersistenceAdapter, sql: str) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        store.write_sync(_fail_and_run, sql)


@pytest.mark.rule("DRV-01")
@pytest.mark.parametrize("runs_before", range(8))
def test_a_statement_that_was_prepared_in_a_failed_pipeline_runs_all_the_same(
    postgres_url: str, runs_before: int
) -> None:
    sql = "UPDATE meta SET value = value WHERE key = :key"
    store = open_at(postgres_url)
    try:
        # After its first ROLLBACK the driver forgets what it has prepared, after later ones it does not.
        for number in range(3):
            _refused(store, f"DELETE FROM meta WHERE key = :key AND value = 'number {number}'")
        for _ in range(runs_before):
            store.write_sync(_run, sql)
        _refused(store, sql)
        store.write_sync(_run, sql)
    finally:
        store.close()
