"""Bare SQL, the yardstick of `holdbeat bench` and `make bench-peers`, does the work that it is timed for."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

from holdbeat.bench import bare

JOBS, BATCH = 400, 100
ALL_DONE = """
SELECT (SELECT count(*) FROM jobs WHERE status = 2 AND finished_at IS NOT NULL),
       (SELECT count(DISTINCT job_id) FROM runs WHERE status = 2 AND finished_at IS NOT NULL),
       (SELECT count(*) FROM runs)
"""


def test_bare_sql_on_sqlite_finishes_every_job_with_one_run(tmp_path: Path) -> None:
    path = str(tmp_path / "bare.db")
    rates = bare.sqlite_life(path, JOBS, BATCH)
    assert apsw.Connection(path).execute(ALL_DONE).fetchall() == [(JOBS, JOBS, JOBS)]
    assert 0 < rates.life < rates.claim_and_settle


@pytest.mark.parametrize("callers", [1, 4])
def test_bare_sql_on_postgresql_finishes_every_job_with_one_run(postgres_url: str, callers: int) -> None:
    rates = bare.postgres_life(postgres_url, JOBS, BATCH, callers)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(ALL_DONE).fetchall() == [(JOBS, JOBS, JOBS)]
    assert 0 < rates.life < rates.claim_and_settle
