"""Errors of SQLite and of the file system as refusals with a sentence that says what to do."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import apsw

from holdbeat.domain.errors import Conflict, HoldbeatError, StoreBusy, StoreDown, StoreRefused
from holdbeat.store.migrate import REFUSING_TRIGGERS
from holdbeat.store.sqlite.log_growth import writers_of

BUSY_TIMEOUT_MS = 10_000


def replaced(path: str) -> StoreRefused:
    return StoreRefused(
        f"The store {path} was replaced by another file while it was in use. Nothing more is written. Stop every "
        "Holdbeat process that uses it before a file is put in its place.",
        code="store_replaced",
    )


def unreachable(path: str, error: OSError) -> StoreDown:
    return StoreDown(
        f"The store {path} cannot be reached just now ({error.strerror}); nothing was stored. Let this user enter its "
        "folder again: it goes on by itself.",
        code="store_unreachable",
    )


def log_lost(path: str, how: str) -> StoreRefused:
    return StoreRefused(
        f"The store's log, {path}-wal or {path}-shm, was {how} while it was in use. Nothing more is written. Stop "
        f"every Holdbeat process that uses the store, then look with `holdbeat doctor` whether {path} is whole.",
        code="log_deleted" if how == "deleted" else "log_replaced",
    )


def is_read_only(path: str) -> bool:
    """Whether the file system has become read-only, as many do after an error of their disk.

    Linux may refuse every write (ext4: `emergency_ro`) and still show the file system as writable: so one is tried.
    """
    folder = Path(path).parent
    try:
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return True
        with tempfile.TemporaryFile(dir=folder):
            return False
    except OSError as error:
        return error.errno == errno.EROFS


def file_system_read_only(path: str) -> StoreRefused:
    return StoreRefused(
        f"The file system of the store {path} is read-only. Nothing more is written. Look in the kernel's log why (a "
        "failing disk is the usual reason), mount it for writing, look at the store with `holdbeat doctor`, then start "
        "again.",
        code="store_read_only",
    )


def translated_os(error: OSError, path: str) -> HoldbeatError:
    """An error of the operating system at the store's files, in words that say what to do."""
    if error.errno == errno.EROFS or is_read_only(path):
        return file_system_read_only(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(path)
    return StoreDown(
        f"The files of the store {path} cannot be used ({error.strerror}: {error.filename}); nothing was stored. Check "
        "the disk and who may write there.",
        code="store_unreachable",
    )


def disk_full(path: str) -> StoreDown:
    return StoreDown(
        f"The disk of the store {path} is full; nothing was stored. Free some space: it goes on by itself.",
        code="disk_full",
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
            who = ", ".join(writers_of(path)) or f"`fuser {path}-shm` names those that have it open"
            return StoreBusy(
                f"The store {path} has been locked by another program ({who}) for longer than "
                f"{BUSY_TIMEOUT_MS // 1000} s. See whether it was stopped or hangs, and try again."
            )
        case apsw.FullError():
            return disk_full(path)
        case apsw.IOError() if is_read_only(path):
            return file_system_read_only(path)
        case apsw.IOError():
            return StoreDown(
                f"The disk of the store {path} failed ({error}); nothing was stored. Check the disk.",
                code="disk_failed",
            )
        case apsw.ConstraintError():
            # An error of a trigger reads "ConstraintError: <trigger>: <why>".
            trigger, _, why = str(error).removeprefix("ConstraintError: ").partition(": ")
            if trigger in REFUSING_TRIGGERS:
                return Conflict(f"The store refused the change: {why}.", code="invariant")
    return error
