"""`holdbeat torture`: on a store of its own beside the user's, with a verdict in words and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdbeat import App
from holdbeat.store.transaction import Transaction
from holdbeat.torture.campaign import Verdict
from holdbeat.torture.checker import Violation
from holdbeat.torture.processes import CANNOT_START, WorkerPool
from tests.postgres import PostgresServer


def tortured(folder: Path, store: str, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDBEAT_")}
    command = [sys.executable, "-m", "holdbeat", "torture", "--store", store, "--minutes", "0.05", "--seed", "5"]
    return subprocess.run([*command, *flags], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def contents(store: str) -> list[Any]:
    app = App(store)

    def everything(tx: Transaction) -> list[Any]:
        tables = ("jobs", "workers", "events", "schedules", "webhooks")
        return [tx.rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables]

    try:
        return app.store.read_sync(everything)
    finally:
        app.close()


def with_one_job(store: str) -> None:
    app = App(store)

    @app.job
    async def mine() -> None:
        """Of the user."""

    app.enqueue_sync(mine)
    app.close()


@pytest.mark.rule("TOR-02")
@pytest.mark.timeout(300)
def test_torture_holds_on_sqlite_and_leaves_the_store_beside_it_alone(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mine.db'}"
    with_one_job(store)
    before = contents(store)
    ran = tortured(tmp_path, store)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "All 19 promises hold." in ran.stdout
    assert "killed" in ran.stdout or "stopped" in ran.stdout
    assert "no more faults" in ran.stderr
    assert contents(store) == before
    assert list(tmp_path.glob(".holdbeat-torture-*")) == []


@pytest.mark.rule("TOR-02")
@pytest.mark.timeout(300)
def test_torture_on_postgresql_uses_a_schema_of_its_own(tmp_path: Path, postgres_server: PostgresServer) -> None:
    postgres_server.start()
    store = postgres_server.create_database()
    with_one_job(store)
    before = contents(store)
    ran = tortured(tmp_path, store, "--json")
    verdict = json.loads(ran.stdout)
    assert verdict["violations"] == []
    assert verdict["holds"] and ran.returncode == 0
    assert contents(store) == before
    with psycopg.connect(store) as connection:
        schemas = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'holdbeat_torture%'").fetchall()
    assert schemas == []
    postgres_server.drop_database(store)


@pytest.mark.rule("TOR-02")
def test_a_database_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    ran = tortured(tmp_path, "postgresql://postgres@127.0.0.1:1/nowhere")
    assert ran.returncode == 5
    assert "Name a database with --store" in ran.stderr


@pytest.mark.rule("TOR-02")
def test_a_broken_promise_is_in_the_verdict() -> None:
    violation = Violation("lost", "j", "job j was acknowledged and is not in the store")
    verdict = Verdict(1.0, 3, {"acknowledged": 1}, {"killed": 2}, [violation], [], is_drained=True)
    assert not verdict.holds
    assert "BROKEN: lost: job j was acknowledged and is not in the store" in verdict.as_text()
    assert "promises hold" not in verdict.as_text()
    assert verdict.as_json()["violations"][0]["kind"] == "lost"
    assert not Verdict(1.0, 3, {}, {}, [], [], is_drained=False).holds
    assert not Verdict(1.0, 3, {}, {}, [], ["worker-1 ended by itself"], is_drained=True).holds


@pytest.mark.rule("TOR-01")
@pytest.mark.parametrize("works", [False, True], ids=["before it has worked", "at work"])
def test_a_worker_that_cannot_reach_the_store_is_replaced_but_not_one_that_gives_up_at_work(
    tmp_path: Path, works: bool
) -> None:
    (tmp_path / "witness").mkdir()
    pool = WorkerPool(
        {"works": works}, tmp_path, 1, "tests.chaos.quitting_worker", {"PYTHONPATH": str(Path(__file__).parents[2])}
    )
    pool.fill()
    assert pool.workers[0].popen.wait(60) == CANNOT_START
    pool.count = 0
    pool.fill()
    assert [death["process"] for death in pool.deaths] == (["worker-1"] if works else [])
    assert len(pool.unexpected) == works
    assert not works or "worker-1 ended by itself with 5" in pool.unexpected[0]
