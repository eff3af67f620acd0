"""A store behind a connection pooler that gives each transaction another session of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from holdbeat import App
from holdbeat.domain.job import JobStatus
from tests.pgbouncer import pgbouncer

pytestmark = [pytest.mark.asyncio, pytest.mark.parametrize("store_url", ["postgres"], indirect=True)]


@pytest.fixture
def pooled_url(store_url: str) -> Iterator[str]:
    with pgbouncer(store_url) as url:
        yield url


@pytest.mark.rule("OPS-08")
async def test_jobs_and_direct_requests_are_done_through_pgbouncer_in_transaction_mode(pooled_url: str) -> None:
    """Each statement is sent often enough that the driver would prepare it."""
    app = App(pooled_url, slots=4, concurrency="unlimited")

    @app.job(retries=0)
    async def double(n: int) -> int:
        return 2 * n

    async with app.running(shutdown_grace_s=0):
        handles = await asyncio.gather(*(app.enqueue(double, n=n) for n in range(40)))
        ended = [await handle.wait(timeout=60) for handle in handles]
        assert {job.status for job in ended} == {JobStatus.COMPLETED}
        answers = [await app.direct(double, n=n, wait_s=60) for n in range(8)]
        assert answers == [2 * n for n in range(8)]
        for n in range(8):
            with app.connection() as connection:
                await app.with_options(connection=connection).enqueue(double, n=n)
    app.close()


@pytest.mark.rule("OPS-08")
async def test_our_settings_stay_out_of_the_sessions_that_others_get(pooled_url: str) -> None:
    app = App(pooled_url)
    app.store.write_sync(lambda tx: tx.execute("SELECT 1"))
    timeouts = set()
    for _ in range(6):
        with psycopg.connect(pooled_url, prepare_threshold=None) as connection:
            timeouts |= {row[0] for row in connection.execute("SHOW statement_timeout")}
    assert timeouts == {"0"}
    row = app.store.write_sync(lambda tx: tx.one("SELECT current_setting('statement_timeout')"))
    assert row == ("1min",)
    app.close()
