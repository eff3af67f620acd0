"""The SQLite file itself: opened safely, checked, watched, copied.

Guards DEC-002 and OPS-03: WAL with synchronous=FULL always; a file that is not ours, is damaged, was deleted or
replaced is refused with a sentence, and never silently made anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict, HoldbeatError, StoreBusy, StoreDown, StoreRefused
from holdbeat.store.migrate import TABLE, pending

APPLICATION_ID = 0x486F6C64
"""'Hold' in the file header tells our files from everybody else's."""

BUSY_TIMEOUT_MS = 10_000
QUICK_CHECK_UP_TO = 256 * 1024 * 1024
MEMORY = ":memory:"


class FileIdentity:
    """Notices that the file under our feet is not the one we opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: tuple[int, int] | None = None
        if path != MEMORY:
            status = os.stat(path)
            self._known = (status.st_dev, status.st_ino)

    def check(self) -> None:
        if self._known is None:
            return
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            raise StoreRefused(
                f"The store {self.path} was deleted or renamed while it was in use. Nothing more is written. "
                "Put the file back or restore a backup (holdbeat restore), then start again.",
                code="store_deleted",
            ) from None
        if (status.st_dev, status.st_ino) != self._known:
            raise StoreRefused(
                f"The store {self.path} was replaced by another file while it was in use. Nothing more is "
                "written. Stop every Holdbeat process that uses it before a file is put in its place.",
                code="store_replaced",
            )


def translated(error: apsw.Error, path: str) -> HoldbeatError | apsw.Error:
    """The same error in words that say what to do; errors of ours in the SQL stay what they are."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreRefused(
                f"The store {path} is damaged ({error}). Nothing is written to it. "
                "Restore the last backup with `holdbeat restore`, or salvage rows with sqlite3's .recover.",
                code="store_corrupt",
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreRefused(
                f"The store {path} cannot be written ({error}). Make the file and its folder writable for "
                "this user, or name another with --store.",
                code="store_read_only",
            )
        case apsw.CantOpenError():
            return StoreRefused(
                f"The store {path} cannot be opened ({error}). Check that its folder exists and that this "
                "user may write there.",
                code="store_cannot_open",
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"The store {path} has been locked by another program for longer than "
                f"{BUSY_TIMEOUT_MS // 1000} s. Try again when it has finished."
            )
        case apsw.FullError():
            return StoreDown(
                f"The disk of the store {path} is full; nothing was stored. Free some space: it goes on by itself.",
                code="disk_full",
            )
        case apsw.IOError():
            return StoreDown(
                f"The disk of the store {path} failed ({error}); nothing was stored. Check the disk.",
                code="disk_failed",
            )
        case apsw.ConstraintError() if "INV-00" in str(error) or "the wheel" in str(error):
            return Conflict(f"The store refused the change: {error}.", code="invariant")
    return error


def connect(path: str) -> apsw.Connection:
    """A connection with the house's settings. The file must exist."""
    return _settled(_reach(path))


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
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def open_file(path: str, *, create: bool) -> apsw.Connection:
    """Opens, checks and migrates the store's file; makes a new one only where there is none."""
    try:
        if path != MEMORY:
            _prepare(path, create)
        connection = _reach(path)
        try:
            _check_is_ours(connection, path)
            migrate(_settled(connection))
        except BaseException:
            connection.close()
            raise
        return connection
    except apsw.Error as error:
        raise translated(error, path) from error


def _prepare(path: str, create: bool) -> None:
    folder = Path(path).parent
    if os.path.isdir(path):
        raise StoreRefused(f"{path} is a folder. Name a file for the store.", code="store_cannot_open")
    if os.path.exists(path):
        if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
            raise translated(apsw.ReadOnlyError("no permission to write"), path)
        if os.path.getsize(path) == 0 and os.path.exists(f"{path}-run"):
            raise StoreRefused(
                f"The store {path} is empty although it was in use before. It is not made anew. Restore a "
                "backup with `holdbeat restore`; or delete the file and its -run folder to begin from nothing.",
                code="store_emptied",
            )
        return
    if not create:
        raise StoreRefused(
            f"There is no store at {path}. Start `holdbeat serve` to make one, or name another with --store.",
            code="store_missing",
        )
    if os.path.exists(f"{path}-wal"):
        raise StoreRefused(
            f"The store {path} is gone, but its write-ahead log is still there. It is not made anew. Put the "
            "file back, or restore a backup with `holdbeat restore`.",
            code="store_deleted",
        )
    if not folder.is_dir():
        raise StoreRefused(f"The folder {folder} does not exist. Make it first.", code="store_cannot_open")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreRefused(
            f"The store {path} cannot be made ({error.strerror}). Choose a folder that this user may write to.",
            code="store_read_only",
        ) from error


def _check_is_ours(connection: apsw.Connection, path: str) -> None:
    # In this order: another process may just be making the store, and writes both in one transaction.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    if tables and _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a SQLite database of another program. Name another file for the store.",
            code="foreign_file",
        )
    if path != MEMORY and tables and os.path.getsize(path) <= QUICK_CHECK_UP_TO:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
        if verdict != "ok":
            raise translated(apsw.CorruptError(" ".join(str(verdict).split())), path)


def _pragma(connection: apsw.Connection, name: str) -> int:
    return int(str(connection.execute(f"PRAGMA {name}").fetchall()[0][0]))


def migrate(connection: apsw.Connection) -> None:
    """Brings the schema up to date. Two processes at once: one does it, the other finds it done."""
    from holdbeat.domain.clock import SystemClock

    if _applied(connection) is not None and not pending("sqlite", _applied(connection) or []):
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
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _applied(connection: apsw.Connection) -> list[tuple[int, str]] | None:
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchall()
    if not there:
        return None
    return [(int(v), str(c)) for v, c in connection.execute("SELECT version, checksum FROM schema_migrations")]


def backup(path: str, target: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Copies a store while it is in use and verifies the copy; an existing target is refused."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        raise Conflict(f"{target} exists already. Name a new file for the backup.", code="target_exists") from None
    try:
        source = connect(path)
        copy = apsw.Connection(target)
        try:
            with copy.backup("main", source, "main") as step:
                while not step.done:
                    step.step(2000)
                    if progress:
                        progress(step.page_count - step.remaining, step.page_count)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            problems = integrity_problems(copy)
        finally:
            copy.close()
            source.close()
    except apsw.Error as error:
        os.unlink(target)
        raise translated(error, path) from error
    if problems:
        os.unlink(target)
        raise StoreRefused(f"The backup of {path} did not verify: {problems[0]}.", code="store_corrupt")


def integrity_problems(connection: apsw.Connection) -> list[str]:
    """What SQLite's full integrity check finds; empty if all is well."""
    return [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
