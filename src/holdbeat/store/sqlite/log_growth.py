"""The write-ahead log of a SQLite store that cannot be emptied, and who keeps it from that.

A checkpoint moves the log into the file only up to the oldest snapshot that somebody still reads. One reader that does
not end, such as a forgotten BEGIN in a database browser, lets the log grow without end.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdbeat.domain.attention import OpenReader

LARGE_LOG = 64 * 1024 * 1024
"""SQLite begins to empty the log at 4 MB; far beyond that, something keeps it from doing so."""
_READ_MARKS = (123, 127)
"""The bytes of the log's index that readers lock, by SQLite's file format."""


def log_bytes(path: str) -> int:
    try:
        return os.path.getsize(f"{path}-wal")
    except OSError:
        return 0


def open_reader(path: str) -> OpenReader | None:
    """The reader that keeps the log from being emptied; None if the log is not large."""
    size = log_bytes(path)
    if size <= LARGE_LOG:
        return None
    readers = [f"process {pid} ({command})" if command else f"process {pid}" for pid, command in readers_of(path)]
    readers_words = f" Readers now: {', '.join(readers)}." if readers else ""
    return OpenReader(
        f"The write-ahead log {path}-wal has {size // 1024**2} MB: a reader that does not end keeps it from being "
        f"emptied, and it fills the disk.{readers_words}",
        "End transactions that only read, such as in a database browser or a long backup.",
    )


def readers_of(path: str) -> list[tuple[int, str]]:
    """Other processes that read a snapshot of the store right now, where the kernel tells (Linux)."""
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
        if len(words) >= 8 and words[3] == "READ" and words[5] == device:
            first, last, pid = int(words[6]), words[7], int(words[4])
            reaches = _READ_MARKS[1] if last == "EOF" else int(last)
            if first <= _READ_MARKS[1] and reaches >= _READ_MARKS[0] and pid > 0 and pid != os.getpid():
                pids.add(pid)
    return [(pid, _command(pid)) for pid in sorted(pids)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
