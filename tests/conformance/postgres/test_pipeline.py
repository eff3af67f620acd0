"""StatementPipeline: statements go out together, answers come back in order, and an error spoils only what follows."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors as pg

from holdbeat.store.postgres import database
from holdbeat.store.postgres import pipeline as pipelines
from holdbeat.store.postgres.database import StoreConnection, connect
from holdbeat.store.postgres.pipeline import StatementPipeline

pytestmark = pytest.mark.rule("DEC-008")


@pytest.fixture
def connection(postgres_url: str) -> Iterator[StoreConnection]:
    with contextlib.closing(connect(postgres_url)) as opened:
        yield opened


def prepared_on(connection: StoreConnection) -> set[str]:
    rows = connection.execute("SELECT name FROM pg_prepared_statements WHERE name LIKE 'holdbeat%'").fetchall()
    return {row[0] for row in rows}


def test_answers_belong_to_their_statements_and_values_survive_the_way(connection: StoreConnection) -> None:
    values = {"text": "50 % of 'it'\n\\", "number": 2**40, "small": -1, "real": 0.1, "yes": True, "nothing": None}
    columns = "%(text)s::text, %(number)s::bigint, %(small)s::int, %(real)s::float8, %(yes)s::bool, %(nothing)s::text"
    with StatementPipeline(connection) as pipeline:
        first = pipeline.send(f"SELECT {columns}, %(text)s || '%%'", values)
        second = pipeline.send("SELECT number FROM generate_series(1, %s) AS number WHERE number <> %s", [3, 2])
        third = pipeline.send("SELECT '%' || 1")
        pipeline.sync()
        assert first.fetchone() == (*values.values(), f"{values['text']}%")
        assert second.fetchall() == [(1,), (3,)]
        assert third.fetchone() == ("%1",)
        assert pipeline.send("SELECT 1 WHERE false").fetchone() is None


def test_after_an_error_the_rest_is_skipped_until_the_sync_and_the_connection_goes_on(
    connection: StoreConnection,
) -> None:
    with pytest.raises(pg.DivisionByZero), StatementPipeline(connection) as pipeline:
        pipeline.send("CREATE TEMPORARY TABLE kept (number int)")
        pipeline.sync()
        pipeline.send("SELECT 1 / 0")
        pipeline.send("INSERT INTO kept VALUES (1)")
        pipeline.send("SELECT 2 / 0")
        pipeline.sync()
    with StatementPipeline(connection) as pipeline:
        kept = pipeline.send("SELECT number FROM kept")
    assert kept.fetchall() == []


def test_an_error_of_the_caller_is_not_replaced_by_one_of_the_server(connection: StoreConnection) -> None:
    with pytest.raises(KeyError), StatementPipeline(connection) as pipeline:
        pipeline.send("SELECT 1 / 0")
        raise KeyError
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_is_prepared_when_it_was_used_often_and_its_preparation_was_confirmed(
    connection: StoreConnection,
) -> None:
    for _ in range(pipelines.PREPARE_AFTER - 1):
        with StatementPipeline(connection) as pipeline:
            pipeline.send("SELECT %s::int", [1])
    assert prepared_on(connection) == set()
    # The server skips the preparation, because the statement before it fails: it must be asked for once more.
    with pytest.raises(pg.DivisionByZero), StatementPipeline(connection) as pipeline:
        pipeline.send("SELECT 1 / 0")
        pipeline.send("SELECT %s::int", [1])
    assert prepared_on(connection) == set()
    for _ in range(2):
        with StatementPipeline(connection) as pipeline:
            answer = pipeline.send("SELECT %s::int", [7])
        assert answer.fetchone() == (7,)
    assert len(prepared_on(connection)) == 1


def test_the_server_forgets_statements_that_were_not_used_for_long(
    connection: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "STATEMENTS_MAX", 3)
    for number in range(10):
        for _ in range(pipelines.PREPARE_AFTER):
            with StatementPipeline(connection) as pipeline:
                answer = pipeline.send(f"SELECT %s::int + {number}", [1])
            assert answer.fetchone() == (number + 1,)
    assert len(prepared_on(connection)) == 3
    assert len(connection.statements.uses) == 3


def test_through_a_pooler_nothing_is_prepared(connection: StoreConnection) -> None:
    connection.is_pooled = True
    for _ in range(2 * pipelines.PREPARE_AFTER):
        with StatementPipeline(connection) as pipeline:
            pipeline.send("SELECT %s::int", [1])
    assert prepared_on(connection) == set()


def test_more_than_both_buffers_hold_goes_out_and_comes_back(connection: StoreConnection) -> None:
    """Whoever only sends while the server only sends waits for ever."""
    text = "x" * 100_000
    with StatementPipeline(connection) as pipeline:
        answers = [pipeline.send("SELECT %s::text", [text]) for _ in range(200)]
        pipeline.sync()
    assert all(answer.fetchone() == (text,) for answer in answers)


def test_a_lost_connection_is_an_operational_error(connection: StoreConnection) -> None:
    with pytest.raises(psycopg.OperationalError), StatementPipeline(connection) as pipeline:
        pipeline.send("SELECT pg_terminate_backend(pg_backend_pid())")
        pipeline.send("SELECT 1")
        pipeline.sync()
    assert connection.closed


def test_what_is_written_is_compressed_by_lz4_where_the_server_has_it(connection: StoreConnection) -> None:
    offered = connection.execute(
        "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    ).fetchone()
    used = connection.execute("SELECT current_setting('default_toast_compression', true)").fetchone()
    assert used is not None
    assert (used[0] == "lz4") is (offered is not None and bool(offered[0]))


def test_a_connection_that_does_not_take_its_settings_is_closed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setitem(database._TERMS, "no.such setting", "on")
    with pytest.raises(psycopg.Error):
        connect(postgres_url, reads_only=True)
    gc.collect()
    assert not [warning for warning in recwarn if warning.category is ResourceWarning]


@pytest.mark.parametrize("reads_only", [True, False])
def test_no_statement_waits_until_parallel_workers_have_started(postgres_url: str, reads_only: bool) -> None:
    costs = ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size", "seq_page_cost")
    with connect(postgres_url, reads_only=reads_only) as connection:
        for name in costs:
            connection.execute(f"SET {name} = 0".encode())
        plan = connection.execute("EXPLAIN SELECT count(*) FROM pg_attribute WHERE attname LIKE '%a'").fetchall()
    assert not [line for (line,) in plan if "Gather" in line]
