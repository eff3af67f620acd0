"""Writes to a SQLite file: durable connections, backups in use, callers that are interrupted."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.errors import Conflict, HoldbeatError, StoreDown
from holdbeat.store.maintenance.backup import backup
from holdbeat.store.sqlite.file import MEMORY
from holdbeat.store.sqlite.log_growth import FULL_LOG
from holdbeat.store.sqlite.open_file import PREALLOCATED_AFTER
from holdbeat.store.sqlite.processes import WriteLock
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import count, enqueue_one, open_at, rows
from tests.conformance.races import HeldOpen
from tests.conformance.sqlite_files import file_with_history, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_with_history(tmp_path / "holdbeat.db")


@pytest.mark.rule("OPS-02", "DEC-002")
def test_a_backup_taken_in_use_is_whole_and_never_overwrites(path: Path, tmp_path: Path) -> None:
    store = opened(path)
    enqueue_one(store)
    target = tmp_path / "backup.db"
    backup(store.path, str(target))
    assert store.integrity_problems() == []
    with pytest.raises(Conflict) as refusal:
        backup(store.path, str(target))
    assert refusal.value.code == "target_exists"
    store.close()
    copy = opened(target, create=False)
    assert count(copy, "jobs") == 401
    assert copy.integrity_problems() == []
    copy.close()


@pytest.mark.rule("DEC-002")
def test_every_connection_writes_ahead_and_waits_for_the_disk(path: Path) -> None:
    store = opened(path)
    asked = [store._file.writer.execute(f"PRAGMA {name}").fetchall()[0][0] for name in ("journal_mode", "synchronous")]
    assert asked == ["wal", 2]
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()


@pytest.mark.rule("DEC-008")
def test_a_caller_interrupted_in_the_middle_stores_nothing_and_holds_nobody_up(path: Path) -> None:
    store, second_store = opened(path), opened(path)
    job = enqueue_one(store)
    before = count(store, "jobs")

    def interrupted(tx: Transaction) -> None:
        tx.execute("UPDATE jobs SET priority = 77")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_sync(interrupted)
    enqueue_one(second_store)
    enqueue_one(store)
    assert rows(store, "SELECT priority FROM jobs WHERE id = :id", id=job.id) == [(0,)]
    assert count(store, "jobs") == before + 2
    store.close()
    second_store.close()


class GivenAway:
    """A lock that goes, when its first holder lets go of it, to whoever waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken = threading.Semaphore(0)
        self.acquire, self.release, self.locked = self._lock.acquire, self._lock.release, self._lock.locked
        self.waits = threading.Event()

    def __enter__(self) -> None:
        if self._lock.locked():
            self.waits.set()
        self._lock.acquire()
        self.taken.release()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self.waits.is_set():
            self.waits.clear()
            self.taken.acquire(timeout=20)


@pytest.mark.rule("DEC-008")
def test_who_writes_next_after_an_interrupted_caller_finds_nothing_of_its_transaction(path: Path) -> None:
    store = opened(path)
    job = enqueue_one(store)
    pen: Any = GivenAway()
    store._write_lock = pen

    def change(tx: Transaction, priority: int) -> None:
        tx.execute("UPDATE jobs SET priority = :to WHERE id = :id", to=priority, id=job.id)

    def interrupted(tx: Transaction) -> None:
        pen.taken.acquire()
        change(tx, 77)
        next_one.append(pool.submit(store.write_sync, change, 5))
        assert pen.waits.wait(20)
        raise KeyboardInterrupt

    next_one: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            store.write_sync(interrupted)
        next_one[0].result(20)
    assert rows(store, "SELECT priority FROM jobs WHERE id = :id", id=job.id) == [(5,)]
    store.close()


@pytest.mark.rule("DEC-008")
@pytest.mark.parametrize("place", ["a file", MEMORY])
def test_a_signal_handler_that_interrupts_a_write_of_its_thread_is_refused_and_does_not_hang(
    path: Path, place: str
) -> None:
    store = opened(path) if place == "a file" else open_at(f"sqlite:///{MEMORY}")
    before = count(store, "jobs")
    heard: list[Any] = []

    def number(tx: Transaction) -> int:
        return int(tx.rows("SELECT count(*) FROM jobs")[0][0])

    def handler(*_: object) -> None:
        for call in (store.read_sync, store.write_sync):
            try:
                heard.append(call(number))
            except HoldbeatError as error:
                heard.append(error.code)

    def interrupted(tx: Transaction) -> None:
        signal.raise_signal(signal.SIGUSR1)

    was = signal.signal(signal.SIGUSR1, handler)
    try:
        store.write_sync(interrupted)
        assert heard == [before if place == "a file" else "write_interrupted_itself", "write_interrupted_itself"]
        heard.clear()
        signal.raise_signal(signal.SIGUSR1)
        assert heard == [before, before], "who interrupts no write may write"
    finally:
        signal.signal(signal.SIGUSR1, was)
    store.close()


@pytest.mark.rule("DEC-008")
def test_a_waiting_caller_writes_in_its_own_thread_unless_somebody_writes(path: Path) -> None:
    store = opened(path)

    def who(tx: Transaction) -> str:
        return threading.current_thread().name

    assert store.write_sync(who) == threading.current_thread().name
    with ThreadPoolExecutor(1) as pool, HeldOpen(store, who):
        waiting = pool.submit(store.write_sync, who)
        while not len(store._writing):
            assert not waiting.done()
    assert waiting.result(20) == "holdbeat-writer"
    store.close()
    with pytest.raises(StoreDown) as refusal:
        store.write_sync(who)
    assert refusal.value.code == "store_closed"


GREEDY = """
import sys, time
from pathlib import Path
from holdbeat.store.sqlite.processes import WriteLock
lock = WriteLock(Path(sys.argv[1]), 60)
while True:
    with lock:
        print("writing", flush=True)
        time.sleep(0.2)
"""
"""Holds the lock nearly all the time: the length of its writes is what is tried, nobody waits for it to be over."""


@pytest.mark.rule("OPS-06")
def test_a_process_gets_its_turn_to_write_beside_one_that_takes_the_lock_again_at_once(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "write.lock", 4.0)
    command = [sys.executable, "-c", GREEDY, str(tmp_path / "write.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as greedy:
        try:
            assert greedy.stdout is not None and greedy.stdout.readline() == b"writing\n"
            for _ in range(2):
                with lock:
                    pass
            assert greedy.stdout.readline() == b"writing\n", "the other goes on"
        finally:
            greedy.kill()
    lock.close()


@pytest.mark.rule("DEC-008", "DEC-002")
def test_a_process_that_goes_on_writing_preallocates_its_log_and_zeros_in_it_cost_no_job(tmp_path: Path) -> None:
    place, copy = tmp_path / "holdbeat.db", tmp_path / "after-a-crash.db"
    log = Path(f"{place}-wal")
    store = opened(place)
    for _ in range(PREALLOCATED_AFTER - 1):
        enqueue_one(store)
    assert log.stat().st_size < FULL_LOG
    enqueue_one(store)
    assert log.stat().st_size == FULL_LOG
    # What a crash leaves: the file and its log, without the checkpoint of an orderly end. Copied by another process,
    # because this one must not open the file.
    for suffix in ("", "-wal"):
        subprocess.run(["cp", f"{place}{suffix}", f"{copy}{suffix}"], check=True)
    with closing(sqlite3.connect(copy)) as outsider:
        assert outsider.execute("SELECT count(*) FROM jobs").fetchone() == (PREALLOCATED_AFTER,)
        assert outsider.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for _ in range(200):
        enqueue_one(store)
    assert log.stat().st_size == FULL_LOG, "commits write over the log"
    store.close()
    reopened = opened(place, create=False)
    assert count(reopened, "jobs") == PREALLOCATED_AFTER + 200
    assert reopened.integrity_problems() == []
    reopened.close()


@pytest.mark.rule("DEC-008")
def test_commits_go_on_where_there_is_no_room_to_preallocate_the_log(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tests.conformance.acts import enqueue_one\n"
        "from tests.conformance.sqlite_files import opened\n"
        "store = opened(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "for _ in range(40):\n"
        "    enqueue_one(store)\n"
        "store.close()\n"
    )
    place = tmp_path / "holdbeat.db"
    subprocess.run([sys.executable, "-c", program, str(place)], check=True, timeout=60)
    store = opened(place, create=False)
    assert count(store, "jobs") == 40
    assert store.integrity_problems() == []
    store.close()


@pytest.mark.rule("DEC-008")
def test_a_single_job_writes_the_pages_of_its_row_and_its_event_alone(tmp_path: Path) -> None:
    """A page of a commit takes as long as a statement: a counter of its own would be one more for each job."""
    place = tmp_path / "holdbeat.db"
    store = opened(place)
    enqueue_one(store)
    for _ in range(PREALLOCATED_AFTER - 2):
        before = Path(f"{place}-wal").stat().st_size
        enqueue_one(store)
        # Of jobs: the row, its id, and its two places in the queue. Of events: the row and its job.
        assert Path(f"{place}-wal").stat().st_size - before == 6 * (24 + 4096)
    store.close()
