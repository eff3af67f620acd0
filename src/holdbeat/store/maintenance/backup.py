"""Backups: a copy of a SQLite store in use, with its artifacts, and putting one in the place of a store.

Guards OPS-02: whatever has the name of a backup is whole and verified. It is verified again before it is restored, a
store in use is never overwritten, and the previous store stays beside the new one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import apsw

from holdbeat.domain.errors import Conflict, NotFound, StoreRefused
from holdbeat.store.artifact_files import (
    Changed,
    Copied,
    artifact_files,
    artifacts_of,
    cannot_write,
    copy_checked,
    make_file,
    place_of,
    recorded_at,
    sync,
    take_name,
    taken,
)
from holdbeat.store.migrate import pending
from holdbeat.store.sqlite.damage_record import forget_damage
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.file import APPLICATION_ID, connect, integrity_problems
from holdbeat.store.sqlite.locks import hold, is_held

Progress = Callable[[int, int], None]
FENCES_SKIPPED = 1_000_000_000
"""More than a store gives out between a backup and its restore: a thousand a second for eleven days."""


def backup(path: str, target: str, progress: Progress | None = None) -> Copied:
    """Copies a store while it is in use and verifies the copy; an existing target is refused."""
    if os.path.lexists(target) or os.path.lexists(artifacts_of(target)):
        raise taken(target)
    unfinished = f"{target}.partial-{os.getpid()}"
    folder = artifacts_of(unfinished)
    try:
        make_file(unfinished)
        try:
            copy_database(path, unfinished, progress)
            copied = _copy_artifacts(unfinished, folder, progress)
            if folder.exists():
                sync(str(folder))
                folder = folder.rename(artifacts_of(target))
            take_name(unfinished, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise cannot_write(target, error) from error
    return copied


def copy_database(path: str, target: str, progress: Progress | None, *, read_only: bool = False) -> None:
    """Copies a database page by page into an empty file, and verifies the copy."""
    try:
        source = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY) if read_only else connect(path)
        copy = apsw.Connection(target)
        try:
            with copy.backup("main", source, "main") as step:
                while not step.done:
                    step.step(2000)
                    if progress is not None:
                        progress(step.page_count - step.remaining, step.page_count)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            problems = integrity_problems(copy)
        finally:
            copy.close()
            source.close()
    except apsw.Error as error:
        raise translated(error, path) from error
    if problems:
        raise StoreRefused(f"The copy of {path} did not verify: {problems[0]}.", code="store_corrupt")
    sync(target)


def _copy_artifacts(copy: str, folder: Path, progress: Progress | None) -> Copied:
    with _read_only(copy) as connection:
        files = artifact_files(connection)
    copied = Copied()
    for number, (run_id, name, sha256, path) in enumerate(files, 1):
        try:
            copy_checked(Path(path), place_of(folder, run_id, name), sha256)
            copied.artifacts += 1
        except (FileNotFoundError, Changed):
            copied.missing.append(path)
        if progress is not None:
            progress(number, len(files))
    return copied


def verify_backup(path: str) -> None:
    """Refuses what is not a whole store of a version that this program can read."""
    if not os.path.isfile(path):
        raise NotFound(f"There is no backup at {path}.")
    try:
        with _read_only(path) as connection:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise StoreRefused(f"{path} is no backup of a Holdbeat store.", code="foreign_file")
            problems = integrity_problems(connection)
            if problems:
                raise StoreRefused(f"The backup {path} is damaged: {problems[0]}.", code="store_corrupt")
            applied = connection.execute("SELECT version, checksum FROM schema_migrations").fetchall()
            pending("sqlite", [(int(str(version)), str(checksum)) for version, checksum in applied])
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
    if os.path.islink(target):
        target = os.path.realpath(target)  # what lies beside a store lies beside the file itself
    if os.path.exists(target) and os.path.samefile(backup, target):
        raise Conflict("The backup and the store are the same file. Name another backup.", code="target_exists")
    with _alone_with(target):
        _may_take_place(target, force)
    restored = f"{target}.restoring"
    try:
        make_file(restored)
        copy_database(backup, restored, progress, read_only=True)
        copied = _put_back_artifacts(
            restored, artifacts_of(backup), Path(artifact_dir or artifacts_of(target)), progress
        )
        _skip_fences(restored)
        sync(restored)
        # The copy took time. Another process may have started to use the path meanwhile.
        with _alone_with(target):
            is_there = _may_take_place(target, force)
            _mark_the_dead(restored, Path(f"{target}-run"))
            kept = f"{target}.before-{now:%Y%m%dT%H%M%S%f}" if is_there else None
            _take_place(restored, target, kept)
            forget_damage(target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(restored)
        if isinstance(error, OSError):
            raise cannot_write(target, error) from error
        raise
    sync(os.path.dirname(os.path.abspath(target)))
    return Restored(kept, copied)


def _may_take_place(target: str, force: bool) -> bool:
    """Whether a store is there, which is refused without `force`."""
    is_there = os.path.exists(target) and os.path.getsize(target) > 0
    if is_there and not force:
        raise _there_already(target)
    return is_there


def _there_already(target: str) -> Conflict:
    return Conflict(
        f"There is a store at {target} already. Name another place with --store, or say --force to put the backup "
        "in its place.",
        code="target_exists",
    )


def _take_place(restored: str, target: str, kept: str | None) -> None:
    """Gives the restored file its name. There is no moment without a store at that name if there was one before."""
    if kept is not None:
        try:
            os.link(target, kept)
        except OSError:  # a disk without hard links
            os.rename(target, kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{target}{suffix}", f"{kept or restored}{suffix}")
    if os.path.lexists(target) or kept is not None:
        os.replace(restored, target)
        return
    try:
        take_name(restored, target)
    except Conflict:
        raise _there_already(target) from None


def _mark_the_dead(restored: str, beside: Path) -> None:
    """Leaves signs of death of the copy's workers, so that recovery takes their leases at once (LEASE-05)."""
    with _read_only(restored) as connection:
        rows = connection.execute(
            "SELECT id FROM workers WHERE stopped_at IS NULL UNION SELECT worker_id FROM leases"
        ).fetchall()
    dead = [str(row[0]) for row in rows if row[0] and Path(str(row[0])).name == row[0]]
    if dead:
        (beside / "workers").mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(beside, 0o700)
    for worker_id in dead:
        os.close(os.open(beside / "workers" / worker_id, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _skip_fences(restored: str) -> None:
    """Lets the fences go on beyond those that were given out after the backup: handlers' targets have seen them."""
    with contextlib.closing(apsw.Connection(restored)) as connection:
        connection.execute("UPDATE counters SET value = value + ? WHERE name = 'fence'", (FENCES_SKIPPED,)).fetchall()


def _put_back_artifacts(restored: str, saved: Path, folder: Path, progress: Progress | None) -> Copied:
    """Brings artifacts to where the restored store looks for them; from the backup, or from where they still are."""
    copied = Copied()
    with contextlib.closing(apsw.Connection(restored)) as connection:
        files = artifact_files(connection)
        connection.execute("BEGIN")
        for number, (run_id, name, sha256, path) in enumerate(files, 1):
            goal = _put_back(run_id, name, sha256, path, saved, folder)
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
    return copied


def _put_back(run_id: str, name: str, sha256: str, path: str, saved: Path, folder: Path) -> Path | None:
    with contextlib.suppress(FileNotFoundError, Changed):
        goal = place_of(folder, run_id, name)
        try:
            copy_checked(place_of(saved, run_id, name), goal, sha256)
        except (FileNotFoundError, Changed):
            copy_checked(recorded_at(path, run_id, name), goal, sha256)
        return goal
    return None


@contextlib.contextmanager
def _alone_with(target: str) -> Iterator[None]:
    """Lets nobody else begin to use the store meanwhile; refuses if somebody does already.

    By SQLite's own locks, and by ours where SQLite cannot read the file.
    """
    beside = Path(f"{target}-run")
    with contextlib.ExitStack() as until_then:
        with contextlib.suppress(OSError):
            write_lock = os.open(beside / "write.lock", os.O_RDWR | os.O_CLOEXEC)
            until_then.callback(os.close, write_lock)
            try:
                hold(write_lock)
            except BlockingIOError:
                raise _in_use(target) from None
        if _has_live_workers(beside / "workers"):
            raise _in_use(target)
        connection = _locked(target)
        if connection is not None:
            until_then.callback(connection.close)
        yield


def _in_use(target: str) -> Conflict:
    return Conflict(
        f"The store {target} is in use. Stop every Holdbeat process that uses it, then restore.", code="store_in_use"
    )


def _locked(target: str) -> apsw.Connection | None:
    """A connection that keeps all others out; None if there is no store, or none that SQLite can read."""
    if not os.path.exists(target) or os.path.getsize(target) == 0:
        return None
    connection = None
    try:
        connection = apsw.Connection(target, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(500)
        # To leave WAL one must be alone with the file; it also brings the log home.
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
    except apsw.Error as error:
        if connection is not None:
            connection.close()
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            raise _in_use(target) from error
        return None  # damaged: that may be why it is restored
    return connection


def _has_live_workers(workers: Path) -> bool:
    for file in workers.iterdir() if workers.is_dir() else ():
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if is_held(descriptor):
                return True
        finally:
            os.close(descriptor)
    return False


def _read_only(path: str) -> contextlib.closing[apsw.Connection]:
    return contextlib.closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))
