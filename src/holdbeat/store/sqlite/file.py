"""The SQLite file itself: opened safely, checked, watched, copied.

Guards DEC-002 and OPS-03: WAL with synchronous=FULL always; a file that is not ours, is damaged, was deleted or
replaced is refused with a sentence, and never silently made anew.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apsw

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import StoreRefused
from holdbeat.store.migrate import TABLE, pending
from holdbeat.store.sqlite.errors import (
    BUSY_TIMEOUT_MS,
    log_lost,
    replaced,
    translated,
    unreachable,
)
from holdbeat.store.sqlite.inodes import Inode, inode
from holdbeat.store.sqlite.second_library import SecondLibraryWatch

APPLICATION_ID = 0x486F6C64
"""'Hold' in the file header tells our files from everybody else's."""

INDEX_EVERY = 16
"""One in so many looks at the file includes the log's index."""
QUICK_CHECK_UP_TO = 256 * 1024 * 1024
MEMORY = ":memory:"

_preparing = threading.RLock()
"""Of a kind that a signal handler may take again."""


def _forget_other_threads() -> None:
    """In a forked child: a thread of the parent that held the lock is not here to release it."""
    global _preparing
    _preparing = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)


class FileIdentity:
    """Notices that the file, its log or the log's index is not the one we opened.

    The index is looked at less often: without it nothing is lost before another process makes one of its own.
    """

    def __init__(self, path: str, opened: Inode | None = None) -> None:
        self.path = path
        self._wal = f"{path}-wal"
        self._shm = f"{path}-shm"
        self._known: Inode | None = None
        self._known_wal: Inode | None = None
        self._known_shm: Inode | None = None
        self._checks = 0
        if path != MEMORY:
            self._known = opened or inode(path)
            if inode(path) != self._known:
                raise replaced(path)
            self._known_wal = inode(self._wal)
            self._known_shm = inode(self._shm)

    def check(self) -> None:
        if self._known is None:
            return
        try:
            is_ours = inode(self.path) == self._known
        except FileNotFoundError:
            raise StoreRefused(
                f"The store {self.path} was deleted or renamed while it was in use. Nothing more is written. "
                "Put the file back or restore a backup (holdbeat restore), then start again.",
                code="store_deleted",
            ) from None
        except OSError as error:
            raise unreachable(self.path, error) from error
        if not is_ours:
            raise replaced(self.path)
        self._checks += 1
        try:
            is_log_ours = inode(self._wal) == self._known_wal
            if is_log_ours and self._checks % INDEX_EVERY == 0:
                is_log_ours = inode(self._shm) == self._known_shm
        except FileNotFoundError:
            raise log_lost(self.path, "deleted") from None
        except OSError as error:
            raise unreachable(self.path, error) from error
        if not is_log_ours:
            raise log_lost(self.path, "replaced")

    def is_log_only_ours(self) -> bool:
        """Whether a log that was deleted is still the only one: nobody else has begun another in its place."""
        if os.path.exists(self._wal):
            return False
        try:
            return inode(self._shm) == self._known_shm
        except FileNotFoundError:
            return True


def connect(path: str) -> apsw.Connection:
    """A connection with the settings of every store. The file must exist."""
    return _settled(_reach(path))


def connect_reader(path: str) -> apsw.Connection:
    try:
        connection = connect(path)
        connection.execute("PRAGMA query_only = 1")
    except apsw.Error as error:
        raise translated(error, path) from error
    return connection


def _reach(path: str) -> apsw.Connection:
    """A connection that has not changed anything in the file yet, not even its journal mode."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI
    if path == MEMORY:
        flags |= apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(path, flags=flags, statementcachesize=400)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    # Otherwise every statement with a bound LIMIT is planned anew each time it is run, which is half of a claim.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def _use_wal(connection: apsw.Connection) -> None:
    """Switches to write-ahead logging. SQLite does not wait for others who do the same to a new file: so we do."""
    for attempt in range(BUSY_TIMEOUT_MS // 10):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except apsw.BusyError:
            if attempt == BUSY_TIMEOUT_MS // 10 - 1:
                raise
            time.sleep(0.01)


def _settled(connection: apsw.Connection) -> apsw.Connection:
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -4096")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def open_file(
    path: str, *, create: bool, indexes: Mapping[str, str] | None = None
) -> tuple[apsw.Connection, SecondLibraryWatch | None]:
    """Opens, checks and migrates the store's file; makes a new one only where there is none.

    The watch that comes with it knows which file had the name before: another may be put in its place at any moment.
    """
    try:
        was_used, watch = False, None
        if path != MEMORY:
            with _preparing:
                was_used = _prepare(path, create)
            watch = SecondLibraryWatch(path, inode(path))
        connection = None
        try:
            connection = _reach(path)
            _check_is_ours(connection, path, was_used)
            if watch is not None and inode(path) != watch.inode:
                raise replaced(path)
            migrate(_settled(connection), indexes or {})
        except BaseException:
            if connection is not None:
                connection.close()
            if watch is not None:
                watch.end()
            raise
        return connection, watch
    except apsw.Error as error:
        raise translated(error, path) from error


def _prepare(path: str, create: bool) -> bool:
    """Sees to it that there is a file. Returns whether that has been a store before.

    Called by one thread at a time. To close the descriptor that made the file drops the POSIX locks of this process on
    it, those of a connection of another thread included: no other thread may open the file before that.
    """
    folder = Path(path).parent
    if os.path.isdir(path):
        raise StoreRefused(f"{path} is a folder. Name a file for the store.", code="store_cannot_open")
    if os.path.exists(path):
        if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
            raise translated(apsw.ReadOnlyError("no permission to write"), path)
        # In this order: whoever makes a store makes this folder last.
        was_used = os.path.exists(f"{path}-run")
        if was_used and os.path.getsize(path) == 0:
            raise _emptied(path)
        return was_used
    for suffix, what in (("-wal", "its write-ahead log"), ("-run", "its folder")):
        if os.path.exists(f"{path}{suffix}"):
            if os.path.exists(path):
                return _prepare(path, create)  # somebody made it since we looked
            raise StoreRefused(
                f"The store {path} is gone, but {what}, {path}{suffix}, is still there. It is not made anew. Put the "
                f"file back, or restore a backup with `holdbeat restore`; or remove {path}-run, -wal and -shm to begin "
                "from nothing.",
                code="store_deleted",
            )
    if not create:
        raise StoreRefused(
            f"There is no store at {path}. Start `holdbeat serve` to make one, or name another with --store.",
            code="store_missing",
        )
    if not folder.is_dir():
        raise StoreRefused(f"The folder {folder} does not exist. Make it first.", code="store_cannot_open")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:  # another process made it since we looked
        return False
    except OSError as error:
        raise StoreRefused(
            f"The store {path} cannot be made ({error.strerror}). Choose a folder that this user may write to.",
            code="store_read_only",
        ) from error
    return False


def _emptied(path: str) -> StoreRefused:
    return StoreRefused(
        f"The store {path} is empty although it was in use before; perhaps its -wal file was deleted. It is not made "
        "anew. Restore a backup with `holdbeat restore`; or delete the file and its -run folder to begin from nothing.",
        code="store_emptied",
    )


def _check_is_ours(connection: apsw.Connection, path: str, was_used: bool) -> None:
    # In this order: another process may just be making the store, and writes both in one transaction.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    if was_used and not tables:
        raise _emptied(path)
    if tables and connection.execute("PRAGMA application_id").fetchall()[0][0] != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a SQLite database of another program. Name another file for the store.",
            code="foreign_file",
        )
    if path != MEMORY and tables and os.path.getsize(path) <= QUICK_CHECK_UP_TO:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
        if verdict != "ok":
            raise translated(apsw.CorruptError(" ".join(str(verdict).split())), path)


def migrate(connection: apsw.Connection, indexes: Mapping[str, str]) -> None:
    """Brings the schema up to date and adds these indexes. Of two processes one does it, the other finds it done."""
    from holdbeat.domain.clock import SystemClock

    applied = _applied(connection)
    if applied is not None and not pending("sqlite", applied) and not _missing(connection, indexes):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(TABLE)
        for migration in pending("sqlite", _applied(connection) or []):
            connection.execute(migration.sql).fetchall()
            connection.execute(
                "INSERT INTO schema_migrations VALUES (?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, iso(SystemClock().now())),
            )
        for index in _missing(connection, indexes):
            connection.execute(index)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _missing(connection: apsw.Connection, indexes: Mapping[str, str]) -> list[str]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    return [sql for name, sql in indexes.items() if name not in present]


def _applied(connection: apsw.Connection) -> list[tuple[int, str]] | None:
    has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchall()
    if not has_table:
        return None
    return [(int(v), str(c)) for v, c in connection.execute("SELECT version, checksum FROM schema_migrations")]


def integrity_problems(connection: apsw.Connection) -> list[str]:
    """The findings of SQLite's full integrity check; empty if all is well."""
    return [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]


@contextlib.contextmanager
def own_transaction(path: str) -> Iterator[apsw.Connection]:
    """A connection of its own with an open transaction, committed at the end of the block unless it raised."""
    try:
        connection = connect(path)
    except apsw.Error as error:
        raise translated(error, path) from error
    try:
        _execute(connection, "BEGIN IMMEDIATE", path)
        yield connection
        if connection.in_transaction:
            _execute(connection, "COMMIT", path)
    finally:
        connection.close(True)  # rolls back what was not committed


def _execute(connection: apsw.Connection, statement: str, path: str) -> None:
    try:
        connection.execute(statement)
    except apsw.Error as error:
        raise translated(error, path) from error


def keep_deleted_log(refusal: StoreRefused, identity: FileIdentity, connections: Sequence[apsw.Connection]) -> None:
    """Moves what is only in a deleted log, which we still hold open, into the file: it was reported as stored.

    A log that another process has begun in its place is not touched, not even when the connections are closed.
    """
    with contextlib.suppress(apsw.Error):
        if refusal.code == "log_deleted" and identity.is_log_only_ours():
            connections[0].execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        elif refusal.code in ("log_deleted", "log_replaced"):
            for connection in connections:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def file_problems(path: str) -> list[str]:
    """The faults that SQLite's own check of the whole file finds."""
    try:
        connection = connect(path)
        try:
            return integrity_problems(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translated(error, path) from error
