"""A copy of a SQLite store in use, with its artifacts.

Guards OPS-02: whatever has the name of a backup is whole and verified, and its artifacts lie beside it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

from holdbeat.domain.errors import StoreRefused
from holdbeat.store.artifact_files import Changed, Copied, artifact_files, artifacts_of, copy_checked, place_of
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.file import connect, integrity_problems
from holdbeat.store.whole_files import cannot_write, make_file, sync, take_name, taken

Progress = Callable[[int, int], None]


def backup(path: str, target: str, progress: Progress | None = None) -> Copied:
    """Copies a store while it is in use and verifies the copy; an existing target is refused."""
    if os.path.lexists(target) or os.path.lexists(artifacts_of(target)):
        raise taken(target)
    made = f"{target}.partial-{os.getpid()}"
    folder = artifacts_of(made)
    try:
        make_file(made)
        try:
            copy_database(path, made, progress)
            copied = _copy_artifacts(made, folder, progress)
            if folder.exists():
                sync(str(folder))
                folder = folder.rename(artifacts_of(target))
            take_name(made, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
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


def _copy_artifacts(made: str, folder: Path, progress: Progress | None) -> Copied:
    connection = apsw.Connection(made, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        files = artifact_files(connection)
    finally:
        connection.close()
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
