"""A reader that does not end is noticed: log, doctor, metrics, the overview (LOG-02)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.cli.checks import State, checks_of
from holdbeat.engine.log_watch import LogWatch
from holdbeat.observe.metrics import Metrics
from holdbeat.store.attention import read_attention
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
async def test_an_endless_reader_is_told_everywhere_and_by_name(app: App, caplog: Any) -> None:
    store = app.store
    path = store.url.removeprefix("sqlite:///")
    watch = LogWatch(store)
    limit = log_growth.LARGE_LOG
    grow(app, 20)
    assert await watch.step() is None, "without a reader the log is emptied again and again"
    assert log_growth.log_bytes(path) < limit / 4
    argv = [sys.executable, "-c", READ, path]
    reader = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert reader.stdout is not None and reader.stdout.readline() == "reads\n"
        assert reader.pid in [pid for pid, _ in log_growth.readers_of(path)]
        for _ in range(20):
            if log_growth.log_bytes(path) <= limit:
                grow(app, 8)
        with caplog.at_level(logging.WARNING):
            trouble = await watch.step()
            await watch.step()
        assert trouble is not None and f"process {reader.pid} (" in trouble
        assert caplog.text.count("fills the disk") == 1, "told once, not at every look"
        (check,) = [one for one in checks_of(app.settings, store, quick=True)[0] if one.name == "log"]
        assert check.state is State.WARNING
        assert str(reader.pid) in check.detail and "End transactions" in check.remedy
        text = Metrics(store).render().decode()
        (line,) = [one for one in text.splitlines() if one.startswith("holdbeat_store_log_bytes")]
        assert float(line.split()[1]) > limit
        (item,) = store.read_sync(read_attention)
        assert item.kind == "log" and item.detail is not None and str(reader.pid) in item.detail
    finally:
        reader.communicate()


@pytest.mark.rule("LOG-02")
def test_processes_that_do_not_read_are_not_blamed(app: App) -> None:
    path = app.store.url.removeprefix("sqlite:///")
    assert log_growth.readers_of(path) == []
