"""Putting a backup in the place of a store.

Guards OPS-02: the backup is verified before anything is touched, a store that somebody uses is never overwritten, and
the new file takes its place in one step; what was there before stays beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import apsw

from holdbeat.domain.errors import Conflict, NotFound, StoreRefused
from holdbeat.store.artifact_files import Changed, Copied, artifact_files, artifacts_of, copy_checked, place_of
from holdbeat.store.backing_up import Progress, copy_database
from holdbeat.store.migrate import pending
from holdbeat.store.sqlite_file import APPLICATION_ID, integrity_problems
from holdbeat.store.whole_files import cannot_write, make_file, sync


def verify_backup(path: str) -> None:
    """Refuses what is not a whole store of a version that this program can read."""
    if not os.path.isfile(path):
        raise NotFound(f"There is no backup at {path}.")
    try:
        connection = _read_only(path)
        try:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise StoreRefused(f"{path} is no backup of a Holdbeat store.", code="foreign_file")
            problems = integrity_problems(connection)
            if problems:
                raise StoreRefused(f"The backup {path} is damaged: {problems[0]}.", code="store_corrupt")
            applied = connection.execute("SELECT version, checksum FROM schema_migrations").fetchall()
            pending("sqlite", [(int(str(version)), str(checksum)) for version, checksum in applied])
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreRefused(
            f"The backup {path} cannot be read ({error}). Use another one.", code="store_corrupt"
        ) from error


@dataclass(slots=True)
class Restored:
    kept: str | None
    """Where the store that was there before is now."""
    copied: Copied


def restore(
    backup: str,
    target: str,
    *,
    now: datetime,
    artifact_dir: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Restores a verified backup to `target`, and its artifacts to `artifact_dir` or beside it."""
    verify_backup(backup)
    if os.path.exists(target) and os.path.samefile(backup, target):
        raise Conflict("The backup and the store are the same file. Name another backup.", code="target_exists")
    refuse_if_used(target)
    is_there = os.path.exists(target) and os.path.getsize(target) > 0
    if is_there and not force:
        raise Conflict(
            f"There is a store at {target} already. Name another place with --store, or say --force to put the backup "
            "in its place.",
            code="target_exists",
        )
    made = f"{target}.restoring"
    try:
        make_file(made)
        copy_database(backup, made, progress, read_only=True)
        copied = _put_back_artifacts(made, artifacts_of(backup), Path(artifact_dir or artifacts_of(target)), progress)
        sync(made)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(made)
        if isinstance(error, OSError):
            raise cannot_write(target, error) from error
        raise
    kept = None
    if is_there:
        kept = f"{target}.before-{now:%Y%m%dT%H%M%S%f}"
        os.rename(target, kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{target}{suffix}", f"{kept or made}{suffix}")
    os.replace(made, target)
    sync(os.path.dirname(os.path.abspath(target)))
    return Restored(kept, copied)


def _put_back_artifacts(made: str, saved: Path, folder: Path, progress: Progress | None) -> Copied:
    """Brings artifacts to where the restored store looks for them; from the backup, or from where they still are."""
    copied = Copied()
    connection = apsw.Connection(made)
    try:
        files = artifact_files(connection)
        connection.execute("BEGIN")
        for number, (run_id, name, sha256, path) in enumerate(files, 1):
            goal = _put_back(run_id, name, sha256, (saved, Path(path).parent.parent), folder)
            if goal is None:
                copied.missing.append(path)
            else:
                copied.artifacts += 1
                connection.execute(
                    "UPDATE artifacts SET path = ? WHERE run_id = ? AND name = ?", (str(goal), run_id, name)
                )
            if progress is not None:
                progress(number, len(files))
        connection.execute("COMMIT")
    finally:
        connection.close()
    return copied


def _put_back(run_id: str, name: str, sha256: str, sources: Iterable[Path], folder: Path) -> Path | None:
    for source in sources:
        with contextlib.suppress(FileNotFoundError, Changed):
            goal = place_of(folder, run_id, name)
            copy_checked(place_of(source, run_id, name), goal, sha256)
            return goal
    return None


def refuse_if_used(target: str) -> None:
    """Refuses while a process has the store open: by SQLite's own locks, and by ours where SQLite cannot read it."""
    if _is_locked(Path(f"{target}-run")) or _is_open(target):
        raise Conflict(
            f"The store {target} is in use. Stop every Holdbeat process that uses it, then restore.",
            code="store_in_use",
        )


def _is_open(target: str) -> bool:
    if not os.path.exists(target) or os.path.getsize(target) == 0:
        return False
    try:
        connection = apsw.Connection(target, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(500)
            # To leave WAL one must be alone with the file; it also brings the log home.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            connection.close()
    except (apsw.BusyError, apsw.LockedError):
        return True
    except apsw.Error:
        return False  # damaged: that may be why it is restored
    return False


def _is_locked(beside: Path) -> bool:
    """Whether a worker of this store lives, or somebody writes to it just now."""
    if not beside.is_dir():
        return False
    workers = beside / "workers"
    files = [beside / "write.lock", *(workers.iterdir() if workers.is_dir() else ())]
    for file in files:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return False


def _read_only(path: str) -> apsw.Connection:
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
