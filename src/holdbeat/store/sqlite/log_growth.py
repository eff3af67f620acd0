"""The write-ahead log of a SQLite store: preallocated; and who keeps it from being emptied.

A checkpoint moves the log into the file only up to the oldest snapshot that somebody still reads. One reader that does
not end, such as a forgotten BEGIN in a database browser, lets the log grow without end.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdbeat.domain.attention import OpenReader

FULL_LOG = 32 + 1024 * (24 + 4096)
"""SQLite begins the log anew after the commit that brings it to 1,000 pages, and that commit adds a few itself."""
LARGE_LOG = 64 * 1024 * 1024
"""SQLite begins to empty the log at 4 MB; far beyond that, something keeps it from doing so."""
_WRITE_MARKS = (120, 120)
_READ_MARKS = (123, 127)
"""The bytes of the log's index that writers and readers lock, by SQLite's file format."""


def log_bytes(path: str) -> int:
    try:
        return os.path.getsize(f"{path}-wal")
    except OSError:
        return 0


def preallocate_log(path: str) -> None:
    """Brings the log to its full size with zeros; the caller holds SQLite's write lock.

    A commit that makes the file longer waits for the journal of the file system as well; one that writes over what is
    there does not. Readers and recovery stop before zeros, because they are no valid frame. Where the disk has no room
    the log grows with the commits, as without this.

    To open and close the log beside SQLite's connections drops none of their POSIX locks: they lock the main file and
    the log's index (-shm), never the log.
    """
    with contextlib.suppress(OSError), open(f"{path}-wal", "r+b", buffering=0) as log:
        missing = FULL_LOG - log.seek(0, os.SEEK_END)
        if missing > 0:
            log.write(bytes(missing))


def open_reader(path: str) -> OpenReader | None:
    """The reader that keeps the log from being emptied; None if the log is not large."""
    size = log_bytes(path)
    if size <= LARGE_LOG:
        return None
    readers = readers_of(path)
    readers_words = f" Readers now: {', '.join(readers)}." if readers else ""
    return OpenReader(
        f"The write-ahead log {path}-wal has {size // 1024**2} MB: a reader that does not end keeps it from being "
        f"emptied, and it fills the disk.{readers_words}",
        "End transactions that only read, such as in a database browser or a long backup.",
    )


def readers_of(path: str) -> list[str]:
    """Other processes that read a snapshot of the store right now, where the kernel tells (Linux)."""
    return _others_that_lock(path, "READ", _READ_MARKS)


def writers_of(path: str) -> list[str]:
    """The other process that holds the write lock of the store right now, where the kernel tells (Linux)."""
    return _others_that_lock(path, "WRITE", _WRITE_MARKS)


def _others_that_lock(path: str, kind: str, marks: tuple[int, int]) -> list[str]:
    try:
        status = os.stat(f"{path}-shm")
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    pids = set()
    for line in locks:
        # number: POSIX ADVISORY READ pid device:inode first last; a waiting lock has "->" after its number
        words = line.replace("->", "").split()
        if len(words) >= 8 and words[3] == kind and words[5] == device:
            first, last, pid = int(words[6]), words[7], int(words[4])
            reaches = marks[1] if last == "EOF" else int(last)
            if first <= marks[1] and reaches >= marks[0] and pid > 0 and pid != os.getpid():
                pids.add(pid)
    return [_named(pid) for pid in sorted(pids)]


def _named(pid: int) -> str:
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"
