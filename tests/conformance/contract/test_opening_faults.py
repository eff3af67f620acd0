"""A store that cannot be opened or has become read-only says so in a sentence, and stops the process (OPS-03)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import HoldbeatError, StoreBusy, StoreDown, StoreRefused
from holdbeat.domain.ids import IdSource
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.maintenance import inspection
from holdbeat.store.opening import open_store
from holdbeat.store.transaction import StoreTerms, Transaction
from tests.conformance.acts import open_at
from tests.conformance.fault_proxy import FaultProxy

pytestmark = pytest.mark.rule("OPS-03")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_connection_that_is_lost_while_the_store_is_opened_is_told_in_a_sentence(store_url: str) -> None:
    proxy = FaultProxy(store_url)
    proxy.arm("before the commit arrives")
    with pytest.raises(StoreDown, match="The database cannot be reached"):
        open_at(proxy.url)
    assert proxy.cuts == 1
    proxy.close()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_database_that_only_reads_is_refused_when_it_is_opened(store_url: str) -> None:
    with psycopg.connect(store_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        try:
            with pytest.raises(StoreRefused, match="The database only reads") as refused:
                open_at(store_url)
            assert refused.value.code == "store_read_only"
        finally:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_statement_that_takes_too_long_is_not_called_a_database_out_of_reach(store: PersistenceAdapter) -> None:
    def slow(tx: Transaction) -> None:
        tx.execute("SET LOCAL statement_timeout = '50ms'")
        tx.rows("SELECT pg_sleep(10)")

    with pytest.raises(StoreBusy, match="statement timeout") as busy:
        store.write_sync(slow)
    assert busy.value.code == "statement_timeout"


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_look_at_the_schema_waits_for_no_lock_for_ever_and_says_what_it_waited_for(
    store: PersistenceAdapter, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "ANSWER_WITHIN_S", 0.2)
    with psycopg.connect(store_url) as other:
        other.execute("LOCK TABLE schema_migrations IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreBusy, match="holds locks") as busy:
            inspection.schema_state(store_url)
        assert busy.value.code == "statement_timeout"
        other.rollback()
    assert not inspection.schema_state(store_url).pending


@pytest.mark.rule("DRV-01")
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_read_that_took_too_long_spoils_no_read_after_it(store: PersistenceAdapter) -> None:
    def slow(tx: Transaction) -> None:
        tx.execute("SET LOCAL statement_timeout = '50ms'")
        tx.rows("SELECT pg_sleep(10)")

    for _ in range(3):
        with pytest.raises(StoreBusy, match="statement timeout"):
            store.read_sync(slow)
        assert store.read_sync(lambda tx: tx.rows("SELECT 1")) == [(1,)]


READ_ONLY = """
import errno, os, resource, sys
from holdbeat.domain.errors import StoreRefused
from holdbeat.store.queue.enqueue import enqueue
from tests.conformance.acts import enqueue_one, open_at

store = open_at(sys.argv[1])
enqueue_one(store)
# The kernel's answers of a file system that an error has made read-only: writes fail, and it says why.
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
if sys.argv[2] == "read-only":
    stat = os.statvfs(".")
    os.statvfs = lambda path: os.statvfs_result((*stat[:8], stat.f_flag | os.ST_RDONLY, *stat[9:]))
if sys.argv[2] == "emergency_ro":
    really_open = os.open

    def refuse(path, flags, *args, **kwargs):
        if flags & (os.O_CREAT | os.O_TMPFILE):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return really_open(path, flags, *args, **kwargs)

    os.open = refuse
for _ in range(2):
    try:
        enqueue_one(store)
    except Exception as error:
        print(type(error).__name__, error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.close()
"""


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("why", "answers"),
    [
        ("read-only", ["StoreRefused store_read_only"] * 2),
        ("emergency_ro", ["StoreRefused store_read_only"] * 2),
        ("other", ["StoreDown disk_failed"] * 2),
    ],
)
def test_a_file_system_that_becomes_read_only_stops_the_store_and_other_faults_do_not(
    store_url: str, why: str, answers: list[str]
) -> None:
    argv = [sys.executable, "-c", READ_ONLY, store_url, why]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == answers


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.EROFS, StoreRefused, "store_read_only"),
        (errno.ENOSPC, StoreDown, "disk_full"),
        (errno.EIO, StoreDown, "store_unreachable"),
    ],
)
def test_errors_of_the_files_beside_the_store_are_told_in_a_sentence(
    store_url: str, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[HoldbeatError], code: str
) -> None:
    really_open = os.open

    def refuse(path: Any, *args: Any) -> int:
        if str(path).endswith("write.lock"):
            raise OSError(number, "refused", path)
        return really_open(path, *args)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind) as refused:
        open_store(store_url, StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits(), 0))
    assert refused.value.code == code
    # Nothing of the store is open in this process any more, so the file is one like any other.
    with open(store_url.removeprefix("sqlite:///"), "rb") as file:
        assert file.read(15) == b"SQLite format 3"
