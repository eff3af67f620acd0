"""A store moved from SQLite to PostgreSQL is the same store: every row, every counter, every artifact."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

import apsw
import psycopg
import pytest

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import StoreRefused, TooLarge
from holdbeat.store.maintenance import move_store as moving
from holdbeat.store.maintenance.move_artifacts import Artifacts
from tests.cli.command import Command
from tests.conformance.acts import open_at

RUN = "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"


def fill(holdbeat: Command, folder: Path) -> Path:
    """A store with jobs, a chain by hand, a schedule, a group, a template, a run with an artifact in a file."""
    first = holdbeat.submit("story", 'prompt=über\t"quoted" \\ back', "--priority", "7", "--label", "a=b")
    holdbeat.submit("story", "--delay", "1h")
    holdbeat("cancel", first)
    holdbeat("retry", first)
    holdbeat("templates", "create", "t", "story")
    holdbeat("schedules", "create", "s", "story", "--cron", "0 3 * * *")
    holdbeat("groups", "create", '{"mode": "sequential", "jobs": [{"type": "story"}, {"type": "story"}]}')
    content = bytes(range(256)) * 10
    file = folder / "artifacts" / RUN / "picture"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    at = "2026-01-01T00:00:00.000Z"
    digest = hashlib.sha256(content).hexdigest()
    connection.execute(
        "INSERT INTO artifacts (run_id, name, size, sha256, path, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (RUN, "picture", len(content), digest, str(file), at),
    )
    connection.execute("INSERT INTO run_logs VALUES (?, 1, ?, 'log', 'hello')", (RUN, at))
    connection.execute("UPDATE counters SET value = 41 WHERE name = 'fence'")
    connection.close()
    return file


def moved_rows(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.rule("OPS-02", "DEC-008")
def test_a_moved_store_answers_as_the_old_one_did_and_goes_on_counting(
    holdbeat: Command, postgres_url: str, tmp_path: Path
) -> None:
    file = fill(holdbeat, tmp_path)
    before = {
        words: holdbeat(*words.split(), "--json").json
        for words in ("jobs", "queue list", "schedules list", "groups list", "templates list", "types")
    }
    moved = holdbeat("move-store", postgres_url, "--json").json["tables"]
    counts = {item["name"]: item["rows"] for item in moved}
    assert counts["jobs"] == 5 and counts["artifacts"] == 1 and counts["events"] > 0
    there = Command(tmp_path, postgres_url)
    for words, answer in before.items():
        assert there(*words.split(), "--json").json == answer
    store = open_at(postgres_url, clock=SystemClock())
    try:
        assert store.write_sync(lambda tx: tx.next_fences(1)) == 42
        places = [job["position"] for job in before["jobs"]["items"] if job["priority"] == 7]
        assert store.write_sync(lambda tx: tx.next_positions({7: 1}))[7][0] > max(places)
    finally:
        store.close()
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT data, path FROM artifacts").fetchone()
        assert row is not None and bytes(row[0]) == file.read_bytes() and row[1] is None
        assert connection.execute("SELECT count(*) FROM meta WHERE key LIKE 'move.%'").fetchone() == (0,)
    last_event = max(event["id"] for event in holdbeat_events(holdbeat))
    there.submit("story")
    with psycopg.connect(postgres_url) as connection:
        newest = connection.execute("SELECT max(id) FROM events").fetchone()
    assert newest is not None and newest[0] > last_event
    assert "not empty" in holdbeat("move-store", postgres_url, code=1).err


def holdbeat_events(holdbeat: Command) -> list[dict[str, int]]:
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    try:
        return [{"id": int(str(row[0]))} for row in connection.execute("SELECT id FROM events")]
    finally:
        connection.close()


@pytest.mark.rule("OPS-02")
def test_an_interrupted_move_goes_on_where_it_stopped(holdbeat: Command, postgres_url: str, tmp_path: Path) -> None:
    fill(holdbeat, tmp_path)
    path = holdbeat.store.removeprefix("sqlite:///")
    open_at(postgres_url, clock=SystemClock()).close()
    seen: list[tuple[str, int]] = []

    def stop_at_jobs(table: str, done: int, total: int) -> None:
        seen.append((table, done))
        if table == "jobs" and done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moving.move_store(path, postgres_url, artifacts=Artifacts(None), batch=2, progress=stop_at_jobs)
    assert moved_rows(postgres_url, "jobs") == 2
    seen.clear()
    moved = moving.move_store(
        path, postgres_url, artifacts=Artifacts(None), batch=2, progress=lambda *step: seen.append(step[:2])
    )
    assert next(done for table, done in seen if table == "jobs") == 2
    assert {item.name: item.rows for item in moved}["jobs"] == 5 == moved_rows(postgres_url, "jobs")


@pytest.mark.rule("OPS-02")
def test_a_move_begun_before_the_source_changed_begins_anew(
    holdbeat: Command, postgres_url: str, tmp_path: Path
) -> None:
    fill(holdbeat, tmp_path)
    path = holdbeat.store.removeprefix("sqlite:///")
    open_at(postgres_url, clock=SystemClock()).close()

    def stop(table: str, done: int, total: int) -> None:
        if table == "jobs" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moving.move_store(path, postgres_url, artifacts=Artifacts(None), progress=stop)
    holdbeat.submit("story")
    holdbeat("move-store", postgres_url)
    assert moved_rows(postgres_url, "jobs") == 6


@pytest.mark.rule("OPS-02")
def test_a_copy_that_differs_a_lost_artifact_and_a_live_worker_end_the_move(
    holdbeat: Command, postgres_url: str, tmp_path: Path
) -> None:
    file = fill(holdbeat, tmp_path)
    content = file.read_bytes()
    file.write_bytes(b"changed")
    assert "not what was recorded" in holdbeat("move-store", postgres_url, code=3).err
    file.write_bytes(content)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN NEW.text = NEW.text || ''!''; RETURN NEW; END'"
        )
        connection.execute("CREATE TRIGGER spoil BEFORE INSERT ON run_logs FOR EACH ROW EXECUTE FUNCTION spoil()")
    for _ in range(2):
        refusal = holdbeat("move-store", postgres_url, code=3).err
        where = f"in the table run_logs: in the column text of the row run_id = {RUN}, sequence = 1."
        assert where in refusal and len(refusal.splitlines()) == 1
    source = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    soon = "2999-01-01T00:00:00.000Z"
    source.execute(
        "INSERT INTO workers (id, kind, host, pid, slots, started_at, heartbeat_at, expires_at) "
        "VALUES ('w', 'worker', 'here', 1, 1, ?, ?, ?)",
        (soon, soon, soon),
    )
    source.close()
    assert "Stop them" in holdbeat("move-store", postgres_url, code=1).err
    holdbeat("move-store", "sqlite:///other.db", code=2)


@pytest.mark.rule("OPS-02")
def test_artifacts_go_to_a_shared_folder_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "old" / RUN / "picture"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"content")
    columns = ("run_id", "name", "size", "sha256", "path", "data", "created_at")
    row = (RUN, "picture", 7, hashlib.sha256(b"content").hexdigest(), str(file), None, "2026-01-01T00:00:00.000Z")
    artifacts = Artifacts(str(tmp_path / "shared"))
    moved = dict(zip(columns, artifacts.moved("artifacts", columns, row), strict=True))
    assert Path(moved["path"]).read_bytes() == b"content" and Path(moved["path"]).is_relative_to(tmp_path / "shared")
    assert artifacts.moved("artifacts", columns, row) == [moved[name] for name in columns]
    Path(moved["path"]).unlink()
    file.write_bytes(b"changed")
    with pytest.raises(StoreRefused, match="not what was recorded"):
        artifacts.moved("artifacts", columns, row)
    assert not Path(moved["path"]).exists()
    too_large = (RUN, "film", 10**9, "x", str(file), None, "2026-01-01T00:00:00.000Z")
    with pytest.raises(TooLarge, match="artifact_dir"):
        Artifacts(None).moved("artifacts", columns, too_large)


@pytest.mark.rule("OPS-02", "OPS-06")
def test_a_worker_that_was_killed_does_not_hold_the_move_up(holdbeat: Command, postgres_url: str) -> None:
    worker = holdbeat.start("worker", "work:app", stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not holdbeat("workers", "--json").json["items"]:
        assert time.monotonic() < until and worker.poll() is None
    assert "Stop them" in holdbeat("move-store", postgres_url, code=1).err
    worker.kill()
    worker.communicate()
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    assert connection.execute("SELECT count(*) FROM workers WHERE stopped_at IS NULL").fetchall() == [(1,)]
    connection.close()
    assert "the same, row by row" in holdbeat("move-store", postgres_url).out


@pytest.mark.rule("OPS-02", "QUE-03")
def test_tables_of_the_users_own_stay_where_they_are_and_are_named(holdbeat: Command, postgres_url: str) -> None:
    holdbeat.submit("story")
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    connection.execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT); CREATE TABLE "odd; name" (x)')
    connection.execute("INSERT INTO orders VALUES (1, 'tea')")
    connection.close()
    with psycopg.connect(postgres_url) as target:
        target.execute("CREATE TABLE orders (id int, item text)")
        target.execute("INSERT INTO orders VALUES (2, 'coffee')")
    moved = holdbeat("move-store", postgres_url, "--json").json
    assert moved["left"] == ["odd; name", "orders"]
    assert {"jobs", "events"} <= {table["name"] for table in moved["tables"]}
    assert not {"orders", "odd; name"} & {table["name"] for table in moved["tables"]}
    assert moved_rows(postgres_url, "jobs") == 1
    with psycopg.connect(postgres_url) as target:
        assert target.execute("SELECT id, item FROM orders").fetchall() == [(2, "coffee")]
