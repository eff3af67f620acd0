"""Verbs that look after a store: what they do, and what they refuse to do to a store that somebody uses."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import apsw
import psycopg
import pytest

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Conflict
from holdbeat.store.maintenance import backup as backing_up
from holdbeat.store.maintenance import backup as restoring
from tests.cli.command import Command
from tests.conformance.acts import change, open_at


def ids(holdbeat: Command) -> list[str]:
    return [job["id"] for job in holdbeat("jobs", "--json").json["items"]]


@pytest.mark.rule("OPS-02")
def test_a_backup_is_a_verified_copy_and_a_restore_brings_it_back(holdbeat: Command, tmp_path: Path) -> None:
    first = holdbeat.submit("story")
    copy = str(tmp_path / "copy.db")
    assert "verified" in holdbeat("backup", copy).out
    assert "exists already" in holdbeat("backup", copy, code=1).err
    holdbeat.submit("story")
    assert "--force" in holdbeat("restore", copy, code=1).err
    assert len(ids(holdbeat)) == 2
    kept = holdbeat("restore", copy, "--force", "--json").json["kept"]
    assert ids(holdbeat) == [first]
    assert len(ids(Command(tmp_path, f"sqlite:///{kept}"))) == 2
    elsewhere = f"sqlite:///{tmp_path / 'new.db'}"
    holdbeat("restore", copy, "--store", elsewhere)
    assert holdbeat("show", first, "--store", elsewhere, "--json").json["id"] == first


def kept_artifacts(path: str) -> dict[str, bytes]:
    """What the artifacts of a store have in their files, by the store's own word of where they are."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    records = connection.execute("SELECT name, path FROM artifacts").fetchall()
    connection.close()
    return {str(name): Path(str(place)).read_bytes() for name, place in records}


def keep_artifacts(path: str, folder: Path, contents: dict[str, bytes]) -> None:
    """Artifacts of one run, as a worker records them."""
    run_id = "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"
    (folder / run_id).mkdir(parents=True)
    connection = apsw.Connection(path)
    for name, content in contents.items():
        file = folder / run_id / f"{name}.0a1b2c3d4e5f"
        file.write_bytes(content)
        connection.execute(
            "INSERT INTO artifacts (run_id, name, size, sha256, path, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            (run_id, name, len(content), hashlib.sha256(content).hexdigest(), str(file), "2026-01-01T00:00:00.000Z"),
        )
    connection.close()


@pytest.mark.rule("OPS-02", "EXE-03")
def test_a_backup_has_its_artifacts_and_a_restore_puts_them_where_the_store_looks(
    holdbeat: Command, tmp_path: Path
) -> None:
    holdbeat.submit("story")
    path = holdbeat.store.removeprefix("sqlite:///")
    contents = {"a.png": os.urandom(3000), "b.txt": b"text"}
    keep_artifacts(path, Path(f"{path}-artifacts"), contents)
    copy = str(tmp_path / "copy.db")
    output = holdbeat("backup", copy).out
    assert "2 files, verified" in output
    shutil.rmtree(f"{path}-artifacts")
    new = tmp_path / "elsewhere" / "new.db"
    new.parent.mkdir()
    restored = holdbeat("restore", copy, "--store", f"sqlite:///{new}", "--json").json
    assert (restored["artifacts"], restored["missing_artifacts"]) == (2, [])
    assert kept_artifacts(str(new)) == contents
    assert {file.name for file in Path(f"{new}-artifacts").glob("*/*")} == set(contents)
    assert {file.stat().st_mode & 0o777 for file in Path(f"{new}-artifacts").glob("*/*")} == {0o600}
    holdbeat("restore", copy, "--force")
    assert kept_artifacts(path) == contents


@pytest.mark.rule("OPS-02", "EXE-03")
def test_an_artifact_that_was_lost_or_changed_is_named_and_keeps_nobody_from_the_rest(
    holdbeat: Command, tmp_path: Path
) -> None:
    holdbeat.submit("story")
    path = holdbeat.store.removeprefix("sqlite:///")
    folder = Path(f"{path}-artifacts")
    keep_artifacts(path, folder, {"whole": b"1", "gone": b"2", "changed": b"3"})
    next(folder.glob("*/gone.*")).unlink()
    next(folder.glob("*/changed.*")).write_bytes(b"4")
    copy = str(tmp_path / "copy.db")
    answer = holdbeat("backup", copy)
    assert "1 file, verified" in answer.out and "gone or were changed: 2" in answer.err
    next(Path(f"{copy}-artifacts").glob("*/whole")).write_bytes(b"rotten")
    restored = holdbeat("restore", copy, "--store", f"sqlite:///{tmp_path}/new.db", "--json").json
    assert restored["artifacts"] == 1, "the file that was copied is rotten, but that of the old store is not"
    assert {Path(path).stem for path in restored["missing_artifacts"]} == {"gone", "changed"}
    shutil.rmtree(folder)
    restored = holdbeat("restore", copy, "--store", f"sqlite:///{tmp_path}/newer.db", "--json").json
    assert restored["artifacts"] == 0 and len(restored["missing_artifacts"]) == 3


@pytest.mark.rule("OPS-02")
def test_a_damaged_or_foreign_backup_is_refused_and_the_store_stays(holdbeat: Command, tmp_path: Path) -> None:
    job_id = holdbeat.submit("story")
    copy = tmp_path / "copy.db"
    holdbeat("backup", str(copy))
    damaged = bytearray(copy.read_bytes())
    damaged[8192:40_000] = os.urandom(40_000 - 8192)
    copy.write_bytes(damaged)
    holdbeat("restore", str(copy), "--force", code=3)
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("CREATE TABLE other (id)")
    foreign.close()
    assert "no backup of a Holdbeat store" in holdbeat("restore", str(tmp_path / "foreign.db"), "--force", code=3).err
    (tmp_path / "text.db").write_text("not a database")
    holdbeat("restore", str(tmp_path / "text.db"), "--force", code=3)
    holdbeat("restore", str(tmp_path / "missing.db"), "--force", code=4)
    assert ids(holdbeat) == [job_id]


@pytest.mark.rule("OPS-02")
def test_a_restore_never_overwrites_a_store_that_somebody_uses(holdbeat: Command, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    holdbeat("backup", copy)
    holdbeat.submit("story")
    reader = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    reader.execute("SELECT count(*) FROM jobs").fetchall()
    try:
        assert "in use" in holdbeat("restore", copy, "--force", code=1).err
    finally:
        reader.close()
    assert len(ids(holdbeat)) == 1
    holdbeat("restore", copy, "--force")
    assert ids(holdbeat) == []


@pytest.mark.rule("OPS-02")
def test_migrate_prints_what_a_store_had_and_a_newer_one_is_refused(holdbeat: Command, tmp_path: Path) -> None:
    new = ("--store", f"sqlite:///{tmp_path / 'new.db'}")
    assert holdbeat("migrate", "--check", *new, "--json", code=1).json["version"] == 0
    assert not (tmp_path / "new.db").exists()
    assert "(now)" in holdbeat("migrate", *new).out
    done = holdbeat("migrate", "--check", *new, "--json").json
    assert done["pending"] == [] and done["version"] == max(item["version"] for item in done["applied"])
    newer = apsw.Connection(str(tmp_path / "new.db"))
    newer.execute("INSERT INTO schema_migrations VALUES (9999, 'future', 'x', '2999-01-01T00:00:00.000Z')")
    newer.close()
    assert "9999" in holdbeat("migrate", *new, code=3).err
    assert "9999" in holdbeat("jobs", *new, code=3).err


@pytest.mark.rule("OPS-03")
def test_a_store_that_vanished_is_not_made_anew_by_any_verb(holdbeat: Command) -> None:
    path = Path(holdbeat.store.removeprefix("sqlite:///"))
    holdbeat.submit("story")
    path.write_bytes(b"")
    for words in (["jobs"], ["submit", "story"], ["keys", "create", "--name", "x"], ["recover"], ["migrate"]):
        assert "restore" in holdbeat(*words, code=3).err.lower()
    path.unlink()
    for words in (["jobs"], ["migrate"], ["worker", "work:app"]):
        assert "restore" in holdbeat(*words, code=3).err.lower()
    assert not path.exists()
    checks = holdbeat("doctor", "--json", code=1).json["checks"]
    assert [check["state"] for check in checks] == ["wrong"]


@pytest.mark.rule("OPS-01")
def test_doctor_says_what_is_in_force_where_it_came_from_and_what_is_wrong(holdbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "holdbeat.toml").write_text('slots = 3\nport = 7777\nhost = "0.0.0.0"\n')
    holdbeat.submit("story")
    answer = holdbeat("doctor", "--json", env={"HOLDBEAT_PORT": "8888"}, code=1).json
    settings = answer["settings"]
    assert settings["slots"] == {"value": 3, "origin": "holdbeat.toml"}
    assert settings["port"] == {"value": 8888, "origin": "environment HOLDBEAT_PORT"}
    assert settings["lease_s"]["origin"] == "default"
    assert {"python", "sqlite", "apsw", "psycopg", "holdbeat"} <= answer["versions"].keys()
    states = {check["name"]: check["state"] for check in answer["checks"]}
    assert states["access"] == "wrong" and states["workers"] == "warning"
    assert {states[name] for name in ("schema", "write", "clock", "disk", "locks", "integrity")} == {"ok"}
    assert all(check["remedy"] for check in answer["checks"] if check["state"] != "ok")
    output = holdbeat("doctor", "--store", holdbeat.store, env={"HOLDBEAT_HOST": "127.0.0.1"}).out
    assert "What to do:" in output and "holdbeat worker" in output


@pytest.mark.rule("STO-01", "OPS-01")
def test_doctor_finds_damage_that_opening_a_store_does_not_notice(holdbeat: Command) -> None:
    holdbeat.submit("story")
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE orders (id INTEGER); CREATE INDEX by_id ON orders (id)").fetchall()
    connection.execute("INSERT INTO orders VALUES (1)").fetchall()
    index = connection.execute("SELECT * FROM sqlite_master WHERE name = 'by_id'").fetchall()[0]
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute("DELETE FROM sqlite_master WHERE name = 'by_id'").fetchall()
    connection.close()
    connection = apsw.Connection(holdbeat.store.removeprefix("sqlite:///"))
    connection.execute("UPDATE orders SET id = 2").fetchall()  # past its index
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", index).fetchall()
    connection.close()
    checks = {check["name"]: check for check in holdbeat("doctor", "--json", code=1).json["checks"]}
    assert checks["integrity"]["state"] == "wrong" and "damaged" in checks["integrity"]["detail"]
    assert "restore" in checks["integrity"]["remedy"]
    assert "write" not in checks


@pytest.mark.rule("STO-01", "OPS-03")
@pytest.mark.parametrize("place", [0, 4096], ids=["no header", "no schema"])
def test_doctor_says_that_a_file_is_damaged_or_no_database(holdbeat: Command, place: int) -> None:
    holdbeat.submit("story")
    with open(holdbeat.store.removeprefix("sqlite:///"), "r+b") as file:
        file.seek(place)
        file.write(b"\x55" * 8192)
    (check,) = holdbeat("doctor", "--json", code=1).json["checks"]
    assert check["state"] == "wrong" and "is damaged" in check["detail"] and "restore" in check["remedy"]


@pytest.mark.rule("OPS-01")
def test_doctor_names_schedules_that_cannot_be_planned(holdbeat: Command) -> None:
    holdbeat("schedules", "create", "nightly", "story", "--cron", "0 3 * * *", "--timezone", "Europe/Vienna")

    def look() -> dict[str, str]:
        checks = holdbeat("doctor", "--quick", "--json").json["checks"]
        return next(item for item in checks if item["name"] == "schedules")

    assert look()["state"] == "ok"
    store = open_at(holdbeat.store, clock=SystemClock())
    try:
        change(store, "UPDATE schedules SET timezone = 'Mars/Phobos'")
        assert look()["state"] == "warning" and "Mars/Phobos" in look()["detail"] and "tzdata" in look()["remedy"]
        change(store, "UPDATE schedules SET trouble = 'its zone is gone'")
    finally:
        store.close()
    assert look()["detail"] == "Schedule nightly cannot be planned: its zone is gone"
    assert "cannot be planned: its zone is gone" in holdbeat("schedules", "explain", "nightly").out
    assert "its zone is gone" in holdbeat("schedules", "show", "nightly").out


@pytest.mark.rule("OPS-01", "SEC-07")
def test_doctor_looks_at_postgresql_and_hides_its_password(postgres: Command) -> None:
    head, _, tail = postgres.store.partition("://")
    user, _, rest = tail.partition("@")
    with_password = f"{head}://{user.partition(':')[0]}:hunter2@{rest}"
    answer = postgres("doctor", "--store", with_password, "--json")
    assert "hunter2" not in answer.out and "[redacted]" in answer.json["settings"]["store"]["value"]
    assert answer.json["versions"]["postgresql"]
    assert {check["state"] for check in answer.json["checks"]} == {"ok"}
    assert "pg_dump" in postgres("backup", "x.db", code=1).err
    assert "pg_restore" in postgres("restore", "x.db", code=1).err


@pytest.mark.rule("OPS-01")
def test_doctor_does_not_vouch_for_transactions_that_it_cannot_see(postgres: Command) -> None:
    role = f"plain_{os.getpid()}"
    with psycopg.connect(postgres.store, autocommit=True) as analyst:
        for statement in (
            f"CREATE ROLE {role}",
            f"GRANT ALL ON SCHEMA public TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        ):
            analyst.execute(statement.encode())
        try:
            store = f"{postgres.store}?options=-crole%3D{role}"
            checks = {check["name"]: check for check in postgres("doctor", "--store", store, "--json").json["checks"]}
            detail = checks["readers"]["detail"]
            assert detail.startswith("No transaction of this user stays open; what "), detail
            assert "of other users" in detail and "pg_monitor" in detail
        finally:
            analyst.execute(f"DROP OWNED BY {role}".encode())
            analyst.execute(f"DROP ROLE {role}".encode())


@pytest.mark.rule("WAIT-08", "EXE-03")
def test_a_followed_log_that_ends_with_its_run_says_where_the_work_goes_on(on_either_store: Command) -> None:
    holdbeat = on_either_store
    job_id = holdbeat.submit("broken", "--max-attempts", "1")
    last = holdbeat.submit("broken", "--max-attempts", "0")
    worker = holdbeat.start("worker", "work:app", "--log-level", "error", stdin=subprocess.DEVNULL)
    followed, ended = holdbeat("logs", job_id, "-f"), holdbeat("logs", last, "-f")
    worker.kill()
    worker.communicate()
    retry_id = holdbeat("show", job_id, "--json").json["retried_by"]
    assert f"goes on as job {retry_id}. Follow it with holdbeat logs {retry_id} -f" in followed.err
    assert retry_id not in followed.out and ended.err == ""


@pytest.mark.rule("LEASE-05", "REC-01")
def test_recover_repairs_what_a_killed_worker_left_and_prints_it(on_either_store: Command) -> None:
    holdbeat = on_either_store
    job_id = holdbeat.submit("slow")
    worker = holdbeat.start("worker", "work:app", "--log-level", "warning", stdin=subprocess.DEVNULL)
    follower = holdbeat.start("logs", job_id, "-f")
    assert follower.stdout is not None and follower.stdout.readline().startswith("line")
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert follower.returncode == 130 and "Traceback" not in err
    worker.kill()
    worker.communicate()
    assert holdbeat("show", job_id, "--json").json["status"] == "RUNNING"
    repaired = holdbeat("recover", "--json").json["repaired"]
    assert "run of a worker that is gone" in [item["what"] for item in repaired]
    job = holdbeat("show", job_id, "--json").json
    assert job["status"] == "FAILED" and job["run"]["error_kind"] == "crash"
    assert holdbeat("recover").out.strip() == "Nothing had to be repaired."


@pytest.mark.rule("LEASE-05", "DIR-06", "API-06")
def test_a_killed_worker_is_no_worker_to_any_verb_though_nobody_has_buried_it(on_either_store: Command) -> None:
    holdbeat = on_either_store
    first = holdbeat.submit("slow")
    worker = holdbeat.start("worker", "work:app", "--log-level", "warning", stdin=subprocess.DEVNULL)
    follower = holdbeat.start("logs", first, "-f")
    assert follower.stdout is not None and follower.stdout.readline().startswith("line")
    follower.kill()
    follower.communicate()
    assert len(holdbeat("workers", "--json").json["items"]) == 1
    worker.kill()
    worker.communicate()
    waiting = holdbeat.submit("slow")
    assert holdbeat("workers", "--json").json["items"] == []
    assert holdbeat("stats", "--json").json["workers"] == 0
    assert "no_worker" in [reason["code"] for reason in holdbeat("explain", waiting, "--json").json["reasons"]]
    assert "No worker" in holdbeat("direct", "story", code=5).err
    checks = {check["name"]: check for check in holdbeat("doctor", "--json").json["checks"]}
    assert "No worker is alive" in checks["workers"]["detail"]


def test_prune_takes_away_only_what_is_old_and_only_with_a_yes(holdbeat: Command) -> None:
    waiting, ended = holdbeat.submit("story"), holdbeat.submit("story")
    holdbeat("cancel", ended)
    assert "Say --yes" in holdbeat("prune", "--older-than-days", "0", code=2).err
    assert "Nothing is that old." in holdbeat("prune", "--yes").out
    assert "--older-than-days" in holdbeat("prune", env={"HOLDBEAT_RETENTION_DAYS": "0"}, code=2).err
    holdbeat("prune", "--older-than-days", "0", "--yes")
    assert ids(holdbeat) == [waiting]


@pytest.mark.rule("SEC-02")
def test_a_key_is_printed_once_and_only_its_hash_is_kept(holdbeat: Command, tmp_path: Path) -> None:
    made = holdbeat("keys", "create", "--name", "deploy", "--scope", "read", "--json").json
    plain = holdbeat("keys", "create", "--name", "other")
    assert plain.out.startswith("hb_") and "not shown again" in plain.err
    listed = holdbeat("keys", "list", "--json")
    assert made["key"] not in listed.out and made["prefix"] in listed.out
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("holdbeat.db*") if path.is_file())
    assert made["key"].encode() not in kept and made["prefix"].encode() in kept
    assert holdbeat("keys", "revoke", made["id"], "--json").json["revoked_at"]
    holdbeat("keys", "revoke", "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11", code=4)
    holdbeat("keys", "create", "--name", "x", "--scope", "root", code=2)
    fresh = Command(tmp_path, f"sqlite:///{tmp_path / 'fresh.db'}")
    assert fresh("keys", "create", "--name", "first").out.startswith("hb_")


@pytest.mark.rule("OPS-02")
def test_a_backup_or_restore_that_cannot_be_written_is_refused_in_words(holdbeat: Command, tmp_path: Path) -> None:
    assert "/nope does not exist" in holdbeat("backup", "/nope/x.db", code=1).err
    copy = str(tmp_path / "copy.db")
    holdbeat("backup", copy)
    assert "/nope does not exist" in holdbeat("restore", copy, "--store", "sqlite:////nope/x.db", code=1).err
    (tmp_path / "file").write_text("no folder")
    assert "Make it first" in holdbeat("backup", str(tmp_path / "file" / "x.db"), code=1).err
    assert "Make it first" in holdbeat("restore", copy, "--store", f"sqlite:///{tmp_path}/file/x.db", code=1).err


@pytest.mark.rule("OPS-02")
def test_a_backup_has_its_name_only_when_it_is_whole(holdbeat: Command, tmp_path: Path) -> None:
    path = holdbeat.store.removeprefix("sqlite:///")
    target = str(tmp_path / "copies" / "half.db")
    (tmp_path / "copies").mkdir()

    def interrupted(done: int, total: int) -> None:
        assert not os.path.exists(target)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backing_up.backup(path, target, interrupted)
    assert os.listdir(tmp_path / "copies") == []

    def taken(done: int, total: int) -> None:
        Path(target).write_text("somebody was faster")

    with pytest.raises(Conflict, match="exists already"):
        backing_up.backup(path, target, taken)
    assert Path(target).read_text() == "somebody was faster" and os.listdir(tmp_path / "copies") == ["half.db"]
    with pytest.raises(KeyboardInterrupt):
        restoring.restore(_copied(path, tmp_path), f"{tmp_path}/copies/new.db", now=NOW, progress=_interrupt)
    assert os.listdir(tmp_path / "copies") == ["half.db"]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _interrupt(done: int, total: int) -> None:
    raise KeyboardInterrupt


def _copied(path: str, folder: Path) -> str:
    made = str(folder / "whole.db")
    backing_up.backup(path, made)
    return made
