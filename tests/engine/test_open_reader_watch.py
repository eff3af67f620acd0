"""A reader that does not end is named in the log, by doctor, in the metrics and in what needs attention (LOG-02)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdbeat import App
from holdbeat.cli.checks import State, checks_of
from holdbeat.engine.watches import OpenReaderWatch
from holdbeat.observe.metrics import Metrics
from holdbeat.store.attention import read_attention
from holdbeat.store.postgres import open_reader as postgres_open_reader
from holdbeat.store.sqlite import log_growth

READ = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM jobs").fetchall()
print("reads", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{tmp_path / 'store.db'}")
    yield made
    made.close()


def grow(app: App, megabytes: int) -> None:
    text = os.urandom(512 * 1024).hex()
    for number in range(megabytes):
        app.store.write_sync(
            lambda tx, key=f"filler-{number % 4}": tx.execute(  # type: ignore[misc]
                "INSERT INTO meta (key, value) VALUES (:key, :value) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                key=key, value=text,
            )
        )  # fmt: skip


@pytest.mark.rule("LOG-02")
@pytest.mark.asyncio
async def test_an_endless_reader_of_a_file_is_named_everywhere(app: App, caplog: Any) -> None:
    store = app.store
    path = store.url.removeprefix("sqlite:///")
    watch = OpenReaderWatch(store)
    limit = log_growth.LARGE_LOG
    grow(app, 20)
    assert await watch.step() is None, "without a reader the log is emptied again and again"
    assert log_growth.log_bytes(path) < limit / 4
    argv = [sys.executable, "-c", READ, path]
    reader = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert reader.stdout is not None and reader.stdout.readline() == "reads\n"
        assert any(f"process {reader.pid} (" in name for name in log_growth.readers_of(path))
        for _ in range(20):
            if log_growth.log_bytes(path) <= limit:
                grow(app, 8)
        with caplog.at_level(logging.WARNING):
            open_reader = await watch.step()
            await watch.step()
        assert open_reader is not None and f"process {reader.pid} (" in open_reader.detail
        assert caplog.text.count("fills the disk") == 1, "logged once, not at every poll"
        (check,) = [one for one in checks_of(app.settings, store, quick=True)[0] if one.name == "readers"]
        assert check.state is State.WARNING
        assert str(reader.pid) in check.detail and "End transactions" in check.remedy
        assert [item.detail for item in store.read_sync(read_attention)] == [open_reader.detail]
        text = Metrics(store).render().decode()
        (line,) = [one for one in text.splitlines() if one.startswith("holdbeat_store_log_bytes")]
        assert float(line.split()[1]) > limit
    finally:
        reader.communicate()


@pytest.mark.rule("LOG-02")
def test_processes_that_do_not_read_are_not_blamed(app: App) -> None:
    path = app.store.url.removeprefix("sqlite:///")
    assert log_growth.readers_of(path) == []


@pytest.mark.rule("LOG-02")
@pytest.mark.asyncio
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
async def test_a_transaction_that_stays_open_on_postgresql_is_named_everywhere(
    store_url: str, isolation: str, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(store_url)
    store = app.store
    watch = OpenReaderWatch(store)
    with psycopg.connect(store_url, application_name="analyst") as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        # Between its statements a transaction holds a snapshot if it is repeatable, or else by what it has written.
        connection.execute("SELECT count(*) FROM jobs")
        connection.execute("SELECT pg_current_xact_id()" if isolation == "READ COMMITTED" else "SELECT 1")
        assert await watch.step() is None, "a young transaction is nobody's business"
        monkeypatch.setattr(postgres_open_reader, "OLD_S", 0.0)
        with caplog.at_level(logging.WARNING):
            open_reader = await watch.step()
            await watch.step()
        pid = connection.info.backend_pid
        assert open_reader is not None
        assert f"process {pid} (analyst of " in open_reader.detail and "idle in transaction" in open_reader.detail
        assert caplog.text.count("its tables grow") == 1, "logged once, not at every poll"
        (check,) = [one for one in checks_of(app.settings, store, quick=True)[0] if one.name == "readers"]
        assert (check.state, str(pid) in check.detail) == (State.WARNING, True)
        (item,) = store.read_sync(read_attention)
        assert (item.kind, str(pid) in (item.detail or "")) == ("open_reader", True)
    assert await watch.step() is None
    app.close()
