"""OPS-03: a SQLite file that is damaged, foreign, gone or replaced is refused with a sentence, never made anew."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdbeat.domain.errors import StoreBusy, StoreDown, StoreRefused
from holdbeat.store.sqlite.damage_record import recorded_damage
from holdbeat.store.sqlite.file import INDEX_EVERY
from holdbeat.store.sqlite.processes import WriteLock
from holdbeat.store.sqlite.store import READERS, SqliteStore
from tests.conformance.acts import count, enqueue_one, rows
from tests.conformance.sqlite_files import file_with_history, opened

PAGE = 4096
SOMEBODY_ELSE = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_with_history(tmp_path / "holdbeat.db")


def copied(source: Path, target: Path) -> None:
    """Copies by another process: in the one that has a store open its file cannot be opened (STO-01)."""
    subprocess.run(["cp", str(source), str(target)], check=True)


def scribbled_page(path: Path) -> None:
    noise = random.Random(1)
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        # The root pages of the tables come first; one among them is certainly in use.
        file.seek(PAGE * noise.randrange(1, min(20, pages)))
        file.write(noise.randbytes(PAGE))


def zeroed_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // PAGE * PAGE)


def cut_within_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - PAGE // 2)


def garbage(path: Path) -> None:
    noise = path.with_name("noise")
    noise.write_bytes(random.Random(2).randbytes(path.stat().st_size))
    copied(noise, path)


def a_text(path: Path) -> None:
    path.write_text("To whom it may concern\n" * 500)


def a_file_for_a_folder(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("")


def a_folder_for_a_file(place: Path) -> None:
    place.unlink()
    place.mkdir()


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("holdbeat.db", a_folder_for_a_file),
        ("holdbeat.db", zeroed_header),
        ("holdbeat.db-run", a_file_for_a_folder),
        ("holdbeat.db-run/write.lock", a_folder_for_a_file),
        ("holdbeat.db-run/workers", a_file_for_a_folder),
    ],
)
def test_a_store_that_cannot_be_opened_leaves_no_descriptor_open(
    path: Path, place: str, fault: Callable[[Path], None]
) -> None:
    """A program may try again for as long as the fault lasts."""
    fault(path.parent / place)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises((StoreRefused, OSError)):
            opened(path)
    assert sorted(os.listdir("/proc/self/fd")) == before


LEAVE_WAL = """
import sqlite3, sys
print(sqlite3.connect(sys.argv[1], timeout=0).execute("PRAGMA journal_mode = DELETE").fetchone()[0])
"""


@pytest.mark.rule("STO-01")
def test_a_thread_that_makes_a_store_does_not_drop_the_locks_of_another_that_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other begins when the file is there and the descriptor that made it is not closed yet."""
    path = tmp_path / "holdbeat.db"
    others: list[SqliteStore] = []
    other = threading.Thread(target=lambda: others.append(opened(path)))
    close = os.close

    def close_late(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        monkeypatch.undo()
        other.start()
        other.join(1)
        close(descriptor)

    monkeypatch.setattr(os, "close", close_late)
    store = opened(path)
    other.join()
    # To leave write-ahead logging a process must be alone with the file.
    outside = subprocess.run([sys.executable, "-c", LEAVE_WAL, str(path)], capture_output=True, text=True, check=False)
    assert "database is locked" in outside.stderr
    job = enqueue_one(store)
    assert rows(others[0], "SELECT id FROM jobs") == [(job.id,)]
    for each in (store, *others):
        each.close()


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("damage", [scribbled_page, zeroed_header, cut_in_half, cut_within_a_page, garbage, a_text])
def test_a_damaged_store_is_refused_and_not_touched(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match=r"damaged.*Restore the last backup") as refusal:
        opened(path)
    assert refusal.value.code == "store_corrupt"
    assert str(path) in refusal.value.detail
    assert path.read_bytes() == before


@pytest.mark.rule("OPS-03")
def test_an_emptied_store_is_refused_and_stays_empty(path: Path) -> None:
    os.truncate(path, 0)
    with pytest.raises(StoreRefused, match="empty") as refusal:
        opened(path)
    assert refusal.value.code == "store_emptied"
    assert path.stat().st_size == 0


@pytest.mark.rule("OPS-03")
def test_a_store_that_vanished_but_for_its_log_is_not_made_anew(path: Path) -> None:
    path.unlink()
    Path(f"{path}-wal").write_bytes(b"something")
    with pytest.raises(StoreRefused, match="write-ahead log"):
        opened(path)
    assert not path.exists()


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_program_is_refused_and_not_changed_by_a_single_byte(
    tmp_path: Path, journal: str
) -> None:
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    theirs.execute("CREATE TABLE jobs (id integer); INSERT INTO jobs VALUES (1)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="another program") as refusal:
        opened(path)
    assert refusal.value.code == "foreign_file"
    assert path.read_bytes() == before


@pytest.mark.rule("OPS-03")
def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="is a folder"):
        opened(tmp_path)
    with pytest.raises(StoreRefused, match="does not exist"):
        opened(tmp_path / "nowhere" / "holdbeat.db")
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture
def as_somebody_else() -> Iterator[Path]:
    """A folder of ours, seen by an account that may read but not write there."""
    folder = Path(tempfile.mkdtemp(prefix="holdbeat-"))
    store = opened(folder / "holdbeat.db")
    enqueue_one(store)
    store.close()
    (folder / "holdbeat.db").chmod(0o444)
    folder.chmod(0o555)
    is_root = os.getuid() == 0
    if is_root:
        os.setresuid(SOMEBODY_ELSE, SOMEBODY_ELSE, 0)
    try:
        yield folder
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.rule("OPS-03")
def test_a_store_that_may_not_be_written_is_refused(as_somebody_else: Path) -> None:
    with pytest.raises(StoreRefused, match="writable") as refusal:
        opened(as_somebody_else / "holdbeat.db")
    assert refusal.value.code == "store_read_only"


@pytest.mark.rule("OPS-03")
def test_a_store_cannot_be_made_where_nothing_may_be_written(as_somebody_else: Path) -> None:
    with pytest.raises(StoreRefused) as refusal:
        opened(as_somebody_else / "new.db")
    assert refusal.value.code == "store_read_only"


# --- under a running process -----------------------------------------------------------------------------


def deleted(path: Path) -> None:
    path.unlink()


def replaced_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    copied(path, copy)
    copy.replace(path)


def moved_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize(
    ("deed", "code"),
    [(deleted, "store_deleted"), (moved_away, "store_deleted"), (replaced_by_a_copy, "store_replaced")],
)
@pytest.mark.parametrize("first", ["write", "read"])
def test_a_store_deleted_or_replaced_under_a_running_process_stops_it_loudly(
    path: Path, deed: Callable[[Path], None], code: str, first: str
) -> None:
    store = opened(path)
    topic_sets: list[frozenset[str]] = []
    store.listen(topic_sets.append)
    enqueue_one(store)
    deed(path)
    there = path.exists()
    for _ in range(2):
        with pytest.raises(StoreRefused) as refusal:
            enqueue_one(store) if first == "write" else count(store, "jobs")
        assert refusal.value.code == code
    assert store.refused is not None
    with pytest.raises(StoreRefused):
        enqueue_one(store)
    assert path.exists() is there
    store.close()
    assert frozenset({"refused"}) in topic_sets


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("damage", [garbage, cut_in_half, lambda path: os.truncate(path, 0)])
def test_a_store_damaged_under_a_running_process_stops_it_once_the_damage_is_met(
    path: Path, damage: Callable[[Path], None]
) -> None:
    store = opened(path)
    enqueue_one(store)
    damage(path)
    with pytest.raises(StoreRefused) as refusal:
        for _ in range(50):
            enqueue_one(store)
            rows(store, "SELECT count(*), max(params) FROM jobs WHERE params LIKE '%x%'")
            rows(store, "SELECT * FROM events")
    assert refusal.value.code in ("store_corrupt", "store_emptied")
    with pytest.raises(StoreRefused):
        enqueue_one(store)
    store.close()
    if refusal.value.code == "store_corrupt":
        assert "is damaged" in recorded_damage(str(path))[0]


# --- what lies beside the file ---------------------------------------------------------------------------


@pytest.mark.rule("OPS-03", "DEC-008")
def test_a_store_is_handed_out_only_when_all_its_connections_hold_the_same_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came later would begin a new log where one was deleted, and what only that one held would be lost."""
    gate = threading.Event()
    read_loop = SqliteStore._read_loop

    def late(*args: Any) -> None:
        gate.wait()
        read_loop(*args)

    monkeypatch.setattr(SqliteStore, "_read_loop", late)
    store = opened(path)
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert held.count(f"{path}-wal") == 1 + 2 * READERS
    gate.set()
    store.close()


@pytest.mark.rule("OPS-03", "DEC-008")
@pytest.mark.parametrize("first", ["write", "read"])
@pytest.mark.parametrize("victims", [["-wal"], ["-wal", "-shm"]])
def test_a_log_deleted_under_a_running_process_stops_it_and_takes_nothing_with_it(
    path: Path, victims: list[str], first: str
) -> None:
    store = opened(path)
    job = enqueue_one(store)
    for victim in victims:
        Path(f"{path}{victim}").unlink()
    with pytest.raises(StoreRefused, match="was deleted while it was in use") as refusal:
        enqueue_one(store) if first == "write" else count(store, "jobs")
    assert refusal.value.code == "log_deleted"
    with pytest.raises(StoreRefused):
        enqueue_one(store)
    # As if the process had been killed now: only what lies there by name is left.
    copy = path.with_name("copy.db")
    copied(path, copy)
    left = apsw.Connection(str(copy))
    assert left.execute("SELECT count(*) FROM jobs WHERE id = ?", (job.id,)).fetchall() == [(1,)]
    left.close()
    store.close()


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("victim", ["-wal", "-shm"])
def test_a_log_replaced_under_a_running_process_stops_it_and_is_left_as_it_is(path: Path, victim: str) -> None:
    store = opened(path)
    beside = Path(f"{path}{victim}")
    beside.rename(f"{path}.aside")
    beside.write_bytes(b"somebody else's")
    with pytest.raises(StoreRefused, match="was replaced while it was in use") as refusal:
        for _ in range(INDEX_EVERY):
            enqueue_one(store)
    assert refusal.value.code == "log_replaced"
    store.close()
    assert beside.read_bytes() == b"somebody else's"


@pytest.mark.rule("OPS-03")
def test_a_file_that_lost_all_its_tables_is_not_made_anew(tmp_path: Path) -> None:
    """A process dies after its log was deleted: what it had stored was only there."""
    place = tmp_path / "holdbeat.db"
    program = (
        "import os, sys\n"
        "from holdbeat import App\n"
        "App(sys.argv[1]).store\n"
        "os.unlink(sys.argv[1] + '-wal')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(place)], check=False)
    assert place.exists()
    before = place.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreRefused, match="although it was in use before") as refusal:
            opened(place)
        assert refusal.value.code == "store_emptied"
    assert place.read_bytes() == before
    place.unlink()
    for suffix in ("-wal", "-shm"):
        Path(f"{place}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(f"{place}-run")
    opened(place).close()


@pytest.mark.rule("REC-01", "OPS-03")
def test_without_its_folder_nobody_is_known_dead_and_that_is_said_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(path)
    store.announce_alive("before")
    shutil.rmtree(f"{path}-run")
    assert [store.known_dead(), store.known_dead()] == [frozenset(), frozenset()]
    assert caplog.text.count("was deleted while it was in use") == 1
    store.announce_alive("after")
    enqueue_one(store)
    assert store.known_dead() == frozenset()
    store.withdraw_alive("before")
    store.withdraw_alive("after")
    store.close()


@pytest.mark.rule("CON-003", "OPS-03")
def test_a_process_stopped_as_it_writes_makes_others_wait_for_a_while_only(path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from holdbeat import App\n"
        "App(sys.argv[1]).store.write_sync(lambda tx: os.kill(os.getpid(), signal.SIGSTOP))\n"
    )
    store = opened(path)
    assert isinstance(store._process_lock, WriteLock)
    store._process_lock._timeout_s = 0.3
    stopped = subprocess.Popen([sys.executable, "-c", program, str(path)])
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        for _ in range(2):
            with pytest.raises(StoreBusy, match="Another process has been writing"):
                enqueue_one(store)
        assert count(store, "jobs") == 400
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.wait(30) == 0
    enqueue_one(store)
    store.close()


@pytest.mark.rule("OPS-03")
def test_a_program_that_keeps_the_file_locked_is_named(path: Path) -> None:
    program = (
        "import signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "signal.raise_signal(signal.SIGSTOP)\n"
    )
    store = opened(path)
    store._file.writer.set_busy_timeout(50)
    stopped = subprocess.Popen([sys.executable, "-c", program, str(path)])
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        with pytest.raises(StoreBusy, match=rf"locked by another program \(process {stopped.pid} \(python"):
            enqueue_one(store)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.wait(30) == 0
    enqueue_one(store)
    store.close()


# --- backup ----------------------------------------------------------------------------------------------


@pytest.mark.rule("OPS-03", "LEASE-04")
def test_a_store_that_cannot_be_reached_for_a_while_is_down_and_goes_on_afterwards(tmp_path: Path) -> None:
    folder, away = tmp_path / "mount", tmp_path / "away"
    folder.mkdir()
    store = opened(folder / "holdbeat.db")
    enqueue_one(store)
    folder.rename(away)
    folder.write_text("not a folder")
    for attempt in (lambda: enqueue_one(store), lambda: count(store, "jobs")):
        with pytest.raises(StoreDown) as down:
            attempt()
        assert down.value.code == "store_unreachable"
    assert store.known_dead() == frozenset()
    folder.unlink()
    away.rename(folder)
    enqueue_one(store)
    assert count(store, "jobs") == 2
    store.close()


@pytest.mark.rule("OPS-03")
def test_a_lock_that_the_system_cannot_give_is_a_store_that_is_down(tmp_path: Path) -> None:
    turn = WriteLock(tmp_path / "write.lock", 1.0)
    with (tmp_path / "write.lock").open("rb") as for_reading:
        os.dup2(for_reading.fileno(), turn._descriptor)
    with pytest.raises(StoreDown) as down, turn:
        pass
    assert down.value.code == "store_unreachable"
    turn.close()
