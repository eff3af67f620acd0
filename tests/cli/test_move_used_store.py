"""MOV-01: a store that has lived moves whole, however often the move is interrupted, and its work goes on."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import StoreDown
from holdbeat.store.access.api_keys import list_api_keys, touch_api_keys
from holdbeat.store.maintenance.move_artifacts import Artifacts
from holdbeat.store.maintenance.move_store import move_store
from tests.cli.command import Command
from tests.conformance.acts import enqueue_one, open_at
from tests.conformance.lived_rows import OF_EACH_ENGINE, PAUSED, assert_same, rows_of_database, rows_of_file
from tests.conformance.lived_store import LIVED_APP, make_lived_store
from tests.conformance.schedule_acts import assert_each_due_time_once, fire
from tests.postgres import PostgresServer
from tests.waiting import eventually


@pytest.fixture
def sqlite(tmp_path: Path) -> Command:
    """The command on a SQLite store that has been in use."""
    command = Command(tmp_path)
    make_lived_store(command.store, Path(f"{path_of(command)}-artifacts"))
    (tmp_path / "lived.py").write_text(LIVED_APP)
    return command


def path_of(command: Command) -> str:
    return command.store.removeprefix("sqlite:///")


def number(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0] or 0)


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[str]:
    """The database for a role that owns its schema and may do nothing else."""
    role = f"mover_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}".encode())
        connection.execute(f"ALTER SCHEMA public OWNER TO {role}".encode())
    yield f"{postgres_url}?options=-c%20role%3D{role}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER".encode())
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.rule("MOV-01", "DEC-008")
def test_a_used_store_moves_whole_and_its_work_goes_on(sqlite: Command, postgres: str) -> None:
    assert number(postgres, "SELECT count(*) FROM pg_roles WHERE rolname = current_user AND rolsuper") == 0
    before = rows_of_file(path_of(sqlite))
    answer = sqlite("move-store", postgres)
    assert_same(before, rows_of_database(postgres))
    assert rows_of_file(path_of(sqlite)) == before, "the source is as it was"
    assert answer.err == ""
    printed = dict(line.replace(",", "").split() for line in answer.lines[1:] if len(line.split()) == 2)
    assert {name: int(rows) for name, rows in printed.items()} == {
        name: table.total() for name, table in before.items() if name not in OF_EACH_ENGINE
    }
    assert (
        f"Copied {sum(map(int, printed.values())):,} rows of {len(printed)} tables and compared them in" in answer.out
    )
    assert "The target is not empty" in sqlite("move-store", postgres, code=1).err

    event = number(postgres, LAST_EVENT)
    last_fence = max(int(dict(row)["value"]) for row in before["counters"] if dict(row)["name"] == "fence")
    runs = number(postgres, "SELECT count(*) FROM job_runs")
    positions = {priority: number(postgres, POSITION.format(priority)) for priority in (0, 3, 5, 8, 98, 100)}
    finish_the_rest(Command(sqlite.folder, postgres))
    later_runs = number(postgres, "SELECT count(*) FROM job_runs") - runs
    # A run that was skipped without a start has the fence 0.
    skipped = number(postgres, "SELECT count(*) FROM job_runs WHERE fence = 0")
    assert number(postgres, f"SELECT count(DISTINCT fence) FROM job_runs WHERE fence > {last_fence}") == later_runs > 15
    assert number(postgres, "SELECT count(DISTINCT fence) FROM job_runs WHERE fence > 0") == runs + later_runs - skipped
    assert number(postgres, LAST_EVENT) > event
    assert number(postgres, "SELECT count(*) - count(DISTINCT id) FROM events") == 0
    store = open_at(postgres, clock=SystemClock())
    try:
        for priority, last in positions.items():
            assert enqueue_one(store, priority=priority).position > last
        firing = fire(store)
        assert firing.judged >= 4 and firing.fired >= 1 and firing.refused == 0, firing
        assert_each_due_time_once(store)
    finally:
        store.close()


SHORT_LEASES = {"HOLDBEAT_LEASE_S": "3", "HOLDBEAT_HEARTBEAT_S": "1", "HOLDBEAT_GRACE_S": "1", "HOLDBEAT_SLOTS": "4"}
"""Recovery watches a late lease for as long as a heartbeat takes."""
LAST_EVENT = "SELECT max(id) FROM events"
POSITION = "SELECT max(position) FROM jobs WHERE priority = {}"
LEFT = (
    "SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING') AND type <> 'http' "
    f"AND resource <> '{PAUSED}' AND (not_before IS NULL OR not_before < now() + interval '1 hour')"
)


def finish_the_rest(there: Command) -> None:
    """Starts a worker on the moved store and waits until it has done all that may run."""
    assert number(there.store, LEFT) > 15
    worker = there.start("worker", "lived:app", "--log-level", "error", stdin=subprocess.DEVNULL, env=SHORT_LEASES)
    try:
        eventually(lambda: number(there.store, LEFT) == 0 or worker.poll() is not None, 120)
        assert worker.poll() is None, worker.communicate()
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert number(there.store, f"SELECT count(*) FROM jobs WHERE resource = '{PAUSED}' AND status = 'QUEUED'") == 1
    assert number(there.store, "SELECT count(*) FROM jobs WHERE status = 'QUEUED' AND hold = 1") == 1
    assert number(there.store, "SELECT count(*) FROM job_groups WHERE status IN ('QUEUED', 'RUNNING')") == 0


KILLED = """
import os, signal, sys
from holdbeat.store.maintenance import move_store as moving
from holdbeat.store.maintenance.move_artifacts import Artifacts

class Deadly(Artifacts):
    left = int(sys.argv[3])

    def moved(self, *row):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().moved(*row)

moving.move_store(sys.argv[1], sys.argv[2], artifacts=Deadly(None), batch=7)
"""


@pytest.mark.rule("MOV-01")
def test_a_move_that_is_killed_again_and_again_ends_well(sqlite: Command, postgres_url: str) -> None:
    before = rows_of_file(path_of(sqlite))
    total = sum(table.total() for name, table in before.items() if name not in OF_EACH_ENGINE)
    open_at(postgres_url, clock=SystemClock()).close()
    # In the first batch, within the copy, at its end, and while both stores are compared.
    copied = []
    for rows in (3, total // 3, total // 3, total // 3 + 30, total - 2):
        command = [sys.executable, "-c", KILLED, path_of(sqlite), postgres_url, str(rows)]
        assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
        copied.append(sum(table.total() for table in rows_of_database(postgres_url).values()))
    assert copied == sorted(copied) and copied[0] < copied[1] < copied[2] < copied[3] == copied[4]
    sqlite("move-store", postgres_url)
    assert_same(before, rows_of_database(postgres_url))


@pytest.mark.rule("MOV-01", "DRV-01")
def test_a_move_whose_database_goes_away_says_so_and_is_finished_later(
    sqlite: Command, postgres_url: str, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    open_at(postgres_url, clock=SystemClock()).close()

    def restart_at_jobs(table: str, done: int, total: int) -> None:
        if table == "jobs" and done > total / 2:
            postgres_server.restart()

    with pytest.raises(StoreDown, match=r"ended the copy .* move again: the copy goes on"):
        move_store(path_of(sqlite), postgres_url, artifacts=Artifacts(None), batch=7, progress=restart_at_jobs)
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []
    sqlite("move-store", postgres_url)
    assert_same(rows_of_file(path_of(sqlite)), rows_of_database(postgres_url))


@pytest.mark.rule("MOV-01")
def test_a_change_that_leaves_no_event_between_two_parts_of_a_move_is_moved_too(
    sqlite: Command, postgres_url: str
) -> None:
    open_at(postgres_url, clock=SystemClock()).close()
    total = sum(table.total() for table in rows_of_file(path_of(sqlite)).values())
    command = [sys.executable, "-c", KILLED, path_of(sqlite), postgres_url, str(total)]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
    store = open_at(sqlite.store, clock=SystemClock())
    store.write_sync(touch_api_keys, [key.id for key in store.read_sync(list_api_keys)])
    store.close()
    sqlite("move-store", postgres_url)
    assert_same(rows_of_file(path_of(sqlite)), rows_of_database(postgres_url))


@pytest.mark.rule("MOV-01", "OPS-02")
def test_a_backup_of_a_used_store_is_restored_whole(sqlite: Command) -> None:
    before = rows_of_file(path_of(sqlite))
    sqlite("backup", "copy.db")
    restored = sqlite.folder / "restored.db"
    Command(sqlite.folder, f"sqlite:///{restored}")("restore", "copy.db")
    after = rows_of_file(str(restored))
    assert_same(before, after)
    # Fences go on beyond those that were given out after the backup.
    assert all(before[table] == after[table] for table in OF_EACH_ENGINE if table != "counters")
