"""OPS-02: a store of every schema that has landed is brought up to date whole, and its work goes on."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import StoreRefused
from holdbeat.engine.watches import SchemaWatch
from holdbeat.store import migrate
from holdbeat.store.migrate import Migration, migrations
from holdbeat.store.rare_events import event_counts
from tests.cli.command import Command
from tests.conformance.acts import OpenStore, change, count, open_at, rows
from tests.conformance.lived_rows import OF_EACH_ENGINE, PAUSED, Rows, rows_of_database, rows_of_file
from tests.conformance.lived_store import LIVED_APP
from tests.conformance.saved_stores import load_database, load_file, saved_versions
from tests.waiting import eventually

WORKER = {
    "HOLDBEAT_LEASE_S": "3",
    "HOLDBEAT_HEARTBEAT_S": "1",
    "HOLDBEAT_GRACE_S": "1",
    "HOLDBEAT_SLOTS": "4",
    "HOLDBEAT_RETENTION_DAYS": "0",
}
LEFT = (
    "SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING') AND type <> 'http' AND resource <> :paused "
    "AND (not_before IS NULL OR not_before < :soon)"
)


@pytest.fixture(params=saved_versions())
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def saved_url(version: int, engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store as the program of that version left it."""
    if engine == "sqlite":
        load_file(version, tmp_path / "holdbeat.db")
        return f"sqlite:///{tmp_path / 'holdbeat.db'}"
    url = str(request.getfixturevalue("postgres_url"))
    load_database(version, url)
    return url


def is_counter(row: dict[str, object]) -> bool:
    """Whether a row counts Events: version 2 counts those that are in the log there."""
    return str(row.get("key")).startswith("events.count.")


def rows_at(url: str) -> Rows:
    return rows_of_file(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else rows_of_database(url)


def applied(url: str) -> int:
    """How many migrations a store has. Reads no other table of PostgreSQL, where readers and upgrades may deadlock."""
    if url.startswith("sqlite"):
        return rows_at(url)["schema_migrations"].total()
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM schema_migrations").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.rule("OPS-02")
def test_the_newest_schema_has_a_saved_store() -> None:
    newest = migrations("sqlite")[-1].version
    assert saved_versions()[-1] == newest, "Keep a store of the new schema for later upgrade tests: make save-store"


@pytest.mark.rule("OPS-02", "DEC-008")
def test_an_upgrade_keeps_every_row(saved_url: str, engine: str) -> None:
    before = rows_at(saved_url)
    try:
        store = open_at(saved_url, clock=SystemClock())
        counts = store.read_sync(event_counts)
        store.close()
    except StoreRefused as refusal:
        pytest.fail(f"A migration that has landed was changed; put the change into a new one. ({refusal})")
    after = rows_at(saved_url)
    for table in before.keys() - OF_EACH_ENGINE:
        columns = {name for row in before[table] for name, _ in row}
        kept = [tuple(pair for pair in row if pair[0] in columns) for row in after[table].elements()]
        missing = [row for row in before[table] if row not in kept and not is_counter(dict(row))]
        assert not missing, f"{table} lost {missing}"
    assert counts["schedule.missed"] > 1 and counts["zombie.found"] == 1, "the counters say what they said before"
    assert [dict(row)["version"] for row in after["schema_migrations"]] == [m.version for m in migrations(engine)]


@pytest.mark.rule("OPS-02", "FND-01")
def test_labels_of_schedules_are_found_after_an_upgrade(saved_url: str) -> None:
    store = open_at(saved_url, clock=SystemClock())
    labelled = rows(store, "SELECT id, labels FROM schedules WHERE labels IS NOT NULL")
    stored = [(row[0], row[1] if isinstance(row[1], dict) else json.loads(row[1])) for row in labelled]
    expected = {(name, value, schedule_id) for schedule_id, labels in stored for name, value in labels.items()}
    assert expected
    assert set(rows(store, "SELECT label_name, label_value, schedule_id FROM schedule_labels")) == expected
    store.close()


@pytest.mark.rule("OPS-02", "DEC-008", "REC-01")
def test_work_in_flight_goes_on_after_an_upgrade(saved_url: str, tmp_path: Path) -> None:
    (tmp_path / "lived.py").write_text(LIVED_APP)
    command = Command(tmp_path, saved_url)
    worker = command.start("worker", "lived:app", "--log-level", "error", stdin=subprocess.DEVNULL, env=WORKER)
    store = None
    try:
        until = time.monotonic() + 120
        while True:
            assert worker.poll() is None, worker.communicate()
            if store is None and applied(saved_url) == len(migrations("sqlite")):
                store = open_at(saved_url, clock=SystemClock())
            soon = datetime.now(UTC) + timedelta(hours=1)
            if store is not None and rows(store, LEFT, paused=PAUSED, soon=soon)[0][0] == 0:
                break
            assert time.monotonic() < until, "the work that was in flight does not end"
            time.sleep(0.2)
        assert count(store, "leases", "job_id IS NOT NULL") == 0
        assert count(store, "job_groups", "status IN ('QUEUED', 'RUNNING')") == 0
        assert count(store, "jobs", f"resource = '{PAUSED}' AND status = 'QUEUED'") == 1
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        if store is not None:
            store.close()


@pytest.mark.rule("OPS-02")
def test_an_upgrade_that_waits_in_a_circle_with_a_reader_is_made_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_database(saved_versions()[-1], postgres_url)
    columns = "ALTER TABLE jobs ADD COLUMN added integer; ALTER TABLE leases ADD COLUMN added integer;"
    shipped = (*migrations("postgres"), Migration(9000, "one_more", columns))
    monkeypatch.setattr(migrate, "migrations", lambda engine: shipped)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    # A session looks for a circle once, after so long a wait, and ends itself if there is one: here only the upgrade.
    looking = sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '5s'")
    with (
        psycopg.connect(postgres_url, options="-c deadlock_timeout=1h") as reader,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
    ):
        watcher.execute(looking.format(sql.Identifier(watcher.info.dbname)))
        reader.execute("SELECT count(*) FROM leases")
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(open_at, postgres_url, clock=SystemClock())
            eventually(lambda: opened.done() or watcher.execute(waiting).fetchone() != (0,), 60)
            assert not opened.done(), "the upgrade does not wait for the reader"
            reader.execute("SELECT count(*) FROM jobs")  # waits for the upgrade, until PostgreSQL ends that
            reader.commit()
            store = opened.result(60)
    assert rows(store, "SELECT max(version) FROM schema_migrations") == [(9000,)]
    store.close()


@pytest.mark.rule("OPS-02")
def test_a_refusal_names_the_newest_version_of_the_store(open_store: OpenStore) -> None:
    store = open_store()
    for newer in (9998, 9999):
        change(store, f"INSERT INTO schema_migrations VALUES ({newer}, 'tomorrow', 'x', '2030-01-01')")
    with pytest.raises(StoreRefused, match=r"schema version 9999, and this Holdbeat knows only up to"):
        open_store()


@pytest.mark.rule("OPS-02")
def test_a_running_process_notices_that_a_newer_version_has_upgraded_its_store(open_store: OpenStore) -> None:
    watch = SchemaWatch(open_store())
    asyncio.run(watch.step())
    change(open_store(), "INSERT INTO schema_migrations VALUES (9999, 'tomorrow', 'x', '2030-01-01')")
    with pytest.raises(StoreRefused, match=r"version 9999.*Upgrade Holdbeat") as refusal:
        asyncio.run(watch.step())
    assert refusal.value.code == "newer_schema"


@pytest.mark.rule("OPS-02", "CON-003")
def test_a_worker_whose_store_was_upgraded_lets_its_job_finish_and_exits_with_3(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (tmp_path / "waiting.py").write_text(
        "from pathlib import Path\nimport time\nfrom holdbeat import App\nfrom holdbeat.engine import watches\n"
        "watches.POLL_S = 0.2\napp = App()\n@app.job\ndef wait() -> str:\n    Path('begun').touch()\n"
        "    while not Path('go').exists():\n        time.sleep(0.02)\n    return 'finished'\n"
    )
    store = open_at(command.store, clock=SystemClock())
    worker = command.start("worker", "waiting:app", stdin=subprocess.DEVNULL)
    try:
        eventually(lambda: count(store, "job_types", "name = 'wait'") or worker.poll() is not None, 60)
        job_id = command("submit", "wait", "--json").json["id"]
        eventually(lambda: (tmp_path / "begun").exists() or worker.poll() is not None, 60)
        assert worker.poll() is None, worker.communicate()
        change(store, "INSERT INTO schema_migrations VALUES (9999, 'tomorrow', 'x', '2030-01-01')")
        eventually(lambda: count(store, "workers", "stopping_at IS NOT NULL") or worker.poll() is not None, 60)
        assert worker.poll() is None, worker.communicate()
        (tmp_path / "go").touch()
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 3
        assert "version 9999" in err
        assert rows(store, "SELECT status FROM jobs WHERE id = :id", id=job_id) == [("COMPLETED",)]
    finally:
        worker.kill()
        worker.communicate()
        store.close()
